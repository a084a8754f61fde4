"""What all simulations need."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def nothing_of_others() -> None:
    """Requests that earlier tests left unanswered complain when they are freed: not in the middle of a story."""
    gc.collect()
