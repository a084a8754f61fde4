"""What all simulations need."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def nothing_of_others() -> None:
    """Free unanswered requests of earlier tests now: freed in the middle of a run they would log errors there."""
    gc.collect()
