"""Leader epochs of stored batches that damage has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.storage.log import Log
from unit.storage.test_recovery import TopicSettings, batch_of, new_log, reopen

SETTINGS = TopicSettings()
COUNT = 10  # batches of one record each; the epoch rises from 3 to 4 with the sixth
EPOCH_AT = 12


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, list[int]]:
    """A log and where its batches begin."""
    log = new_log(tmp_path / "log", SETTINGS)
    positions = []
    for number in range(COUNT):
        positions.append(log.active.size)
        log.append(memoryview(batch_of(1, 20, 1_700_000_000_000)), 3 if number < 5 else 4, 1_700_000_000_000)
    log.close()
    return tmp_path / "log", positions


def read(directory: Path) -> Log:
    """All of it, as it is read after a restart."""
    log = reopen(directory, is_clean=True, recovery_point=COUNT, settings=SETTINGS)
    found = log.read(0, 1 << 20, COUNT, True)
    assert found is not None
    assert log.needs_check(found)
    log.check_range(found)
    found.release()
    return log


def data_of(log: Log) -> bytes:
    return os.pread(log.active.open_descriptor(), log.active.size, 0)


@pytest.mark.parametrize("number", [0, 2, 7, 9])
@pytest.mark.parametrize("wrong", [0, 2, 3, 4, 5, 1 << 24])
def test_a_wrong_epoch_between_right_ones_is_mended(stored: tuple[Path, list[int]], number: int, wrong: int) -> None:
    directory, positions = stored
    path = next(directory.glob("*.log"))
    before = path.read_bytes()
    data = bytearray(before)
    data[positions[number] + EPOCH_AT : positions[number] + EPOCH_AT + 4] = wrong.to_bytes(4, "big")
    path.write_bytes(data)
    log = read(directory)
    assert data_of(log) == before
    log.close()


def test_batches_that_agree_are_believed_more_than_the_file_of_epochs(stored: tuple[Path, list[int]]) -> None:
    directory, _ = stored
    before = next(directory.glob("*.log")).read_bytes()
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n2 0\n6 4\n")
    log = read(directory)
    assert data_of(log) == before
    log.close()
