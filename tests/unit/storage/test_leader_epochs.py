"""Leader epochs and what OffsetForLeaderEpoch answers from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.storage.checkpoints import CheckpointError
from ottla.storage.leader_epochs import LeaderEpochCache, load_epochs


def epochs_of(directory: Path, *entries: tuple[int, int]) -> LeaderEpochCache:
    epochs = LeaderEpochCache(str(directory))
    for epoch, start_offset in entries:
        epochs.assign(epoch, start_offset)
    return epochs


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),  # no epoch at all
        (1, (1, 0)),  # older than all that we know: the start of the first
        (2, (2, 10)),
        (3, (2, 10)),  # never had a leader here: where the largest one below it ended
        (5, (5, 20)),
        (7, (7, 30)),  # the current one ends with the log
        (8, (-1, -1)),  # newer than all that we know
    ],
)
def test_the_end_of_an_epoch_is_where_the_next_one_starts(tmp_path: Path, asked: int, answer: tuple[int, int]) -> None:
    epochs = epochs_of(tmp_path, (2, 0), (5, 10), (7, 20))

    assert epochs.end_offset_for(asked, 30) == answer


def test_no_epochs_means_no_answer(tmp_path: Path) -> None:
    assert epochs_of(tmp_path).end_offset_for(0, 30) == (-1, -1)


def test_an_epoch_without_records_is_replaced_by_the_next(tmp_path: Path) -> None:
    epochs = epochs_of(tmp_path, (1, 0), (2, 10), (3, 10))

    assert epochs.entries == [(1, 0), (3, 10)]


def test_the_same_epoch_twice_changes_nothing(tmp_path: Path) -> None:
    epochs = epochs_of(tmp_path, (1, 0), (1, 5))

    assert epochs.entries == [(1, 0)]


def test_an_entry_that_a_new_leader_contradicts_is_void(tmp_path: Path) -> None:
    assert epochs_of(tmp_path, (1, 0), (900, 10), (2, 12)).entries == [(1, 0), (2, 12)]


def test_the_file_is_kafkas(tmp_path: Path) -> None:
    epochs = epochs_of(tmp_path, (0, 0), (3, 17))

    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n3 17\n"
    assert load_epochs(str(tmp_path)).entries == epochs.entries


@pytest.mark.parametrize("text", ["1\n0\n", "0\n2\n0 0\n", "0\nx\n", "0\n1\n0 0 0\n", "0\n2\n3 0\n2 5\n"])
def test_an_invalid_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text(text)

    with pytest.raises(CheckpointError):
        load_epochs(str(tmp_path))


def test_truncating_from_both_ends(tmp_path: Path) -> None:
    epochs = epochs_of(tmp_path, (1, 0), (2, 10), (3, 20), (4, 30))

    epochs.truncate_from_end(30)
    epochs.truncate_from_start(15)

    assert epochs.entries == [(2, 15), (3, 20)]
    assert load_epochs(str(tmp_path)).entries == epochs.entries


def test_the_epoch_of_an_offset(tmp_path: Path) -> None:
    epochs = epochs_of(tmp_path, (1, 5), (2, 10))

    assert [epochs.epoch_of(offset) for offset in (0, 5, 9, 10, 99)] == [-1, 1, 1, 2, 2]


def test_one_batch_with_a_wrong_epoch_adds_no_epoch(tmp_path: Path) -> None:
    epochs = LeaderEpochCache(str(tmp_path))
    for offset, epoch in enumerate([0, 0, 1, 1, 2**30, 1, 1, 2, 2, 0, 2]):
        epochs.add_from_batch(epoch, offset)

    assert epochs.entries == [(0, 0), (1, 2), (2, 7)]
