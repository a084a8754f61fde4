"""The segments that a log began with are gone, and nobody has deleted them: that must not pass for retention."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ottla.storage.log import Log
from unit.storage.test_recovery import SETTINGS, fill, new_log, reopen


def filled(directory: Path) -> tuple[Log, int]:
    """A log of several segments, and where the second one begins."""
    log = new_log(directory)
    fill(log, 120, 1)
    assert len(log.segments) > 2
    return log, log.segments[1].base_offset


def remove_first(directory: Path) -> None:
    for path in directory.glob(f"{0:020d}.*"):
        path.unlink()


@pytest.mark.parametrize("is_clean", [True, False])
def test_it_is_noticed_until_it_is_mended(tmp_path: Path, is_clean: bool) -> None:
    log, second = filled(tmp_path / "log")
    end_offset = log.end_offset
    log.close()
    remove_first(tmp_path / "log")
    for _ in range(2):  # also after a crash on the way
        opened = reopen(tmp_path / "log", is_clean=is_clean, recovery_point=end_offset)
        assert (opened.has_lost, opened.lost_offset) == (True, 0)
        assert (opened.log_start_offset, opened.end_offset) == (second, end_offset)
        opened.close()


def test_who_has_nobody_to_ask_lives_with_it(tmp_path: Path) -> None:
    log, second = filled(tmp_path / "log")
    end_offset = log.end_offset
    log.close()
    remove_first(tmp_path / "log")
    opened = reopen(tmp_path / "log", is_clean=True, recovery_point=end_offset)
    opened.accept_loss()
    opened.close()
    again = reopen(tmp_path / "log", is_clean=True, recovery_point=end_offset)
    assert (again.has_lost, again.lost_offset, again.log_start_offset) == (False, -1, second)


@pytest.mark.parametrize("deletes_by_hand", [True, False])
def test_what_retention_or_a_person_deletes_is_not_missed(tmp_path: Path, deletes_by_hand: bool) -> None:
    log, second = filled(tmp_path / "log")
    if deletes_by_hand:
        log.raise_log_start_offset(second)
    else:
        log.settings = replace(SETTINGS, retention_bytes=log.size_bytes - log.segments[0].size)
    assert log.delete_old_segments(0, log.end_offset) == 1
    end_offset = log.end_offset
    log.abandon()  # a crash: nothing else is written down
    opened = reopen(tmp_path / "log", is_clean=False, recovery_point=end_offset)
    assert (opened.has_lost, opened.lost_offset, opened.log_start_offset) == (False, -1, second)
