"""The reserved disk space of the metadata store."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.controller.stores.reserve import FREE_BYTES_MIN, PIECE_BYTES, RESERVE_BYTES, Reserve


@pytest.fixture
def reserve(tmp_path: Path) -> Reserve:
    return Reserve(str(tmp_path / "ottla.metadata.reserve"))


def free_bytes(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=count, f_frsize=1))


def test_real_blocks_are_set_aside(reserve: Reserve, monkeypatch: pytest.MonkeyPatch) -> None:
    free_bytes(monkeypatch, FREE_BYTES_MIN)
    reserve.fill()
    assert reserve.is_whole
    assert os.stat(reserve.path).st_blocks * 512 >= RESERVE_BYTES


def test_reserve_is_released_in_parts_and_found_by_the_next_start(
    reserve: Reserve, monkeypatch: pytest.MonkeyPatch
) -> None:
    free_bytes(monkeypatch, FREE_BYTES_MIN)
    reserve.fill()
    assert reserve.give_piece()
    assert os.stat(reserve.path).st_size == RESERVE_BYTES - PIECE_BYTES
    later = Reserve(reserve.path)
    later.look()
    assert sum(iter(later.give_piece, False)) == RESERVE_BYTES // PIECE_BYTES - 1
    assert not os.path.exists(reserve.path)


def test_nothing_is_set_aside_on_a_disk_that_is_nearly_full(reserve: Reserve, monkeypatch: pytest.MonkeyPatch) -> None:
    free_bytes(monkeypatch, FREE_BYTES_MIN - 1)
    reserve.fill()
    assert not reserve.is_whole
    assert not os.path.exists(reserve.path)
    free_bytes(monkeypatch, FREE_BYTES_MIN)
    reserve.fill()
    assert reserve.is_whole
