"""More lives of a cluster of real brokers: see test_brokers.py."""

from __future__ import annotations

import pytest
from tests.simulation.brokers.play import play_piece

PIECE = 15
SEEDS = range(30, 60, PIECE)


@pytest.mark.parametrize("first", SEEDS)
def test_no_seed_breaks_a_promise(first: int) -> None:
    play_piece(first, PIECE)
