"""What a crash may leave in the folder of a partition."""

from __future__ import annotations

import os
from pathlib import Path

from ottla.protocol.batches import build_batch
from ottla.protocol.records import Record
from ottla.storage.partition_dir import read_partition_dir


def batch_at(base_offset: int) -> bytes:
    return bytes(build_batch([Record(-1, 0, b"k", b"v")], base_offset=base_offset))


def name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def test_unfinished_and_unneeded_files_go(tmp_path: Path) -> None:
    for file_name in (name(0, ".log"), name(0, ".log.cleaned"), name(3, ".log.deleted"), "partition.metadata.tmp"):
        (tmp_path / file_name).write_bytes(b"")

    folder = read_partition_dir(str(tmp_path))

    assert folder.segments == [0]
    assert os.listdir(tmp_path) == [name(0, ".log")]


def test_a_finished_replacement_takes_the_place_of_what_it_covers(tmp_path: Path) -> None:
    for base_offset in (0, 5, 10):
        (tmp_path / name(base_offset, ".log")).write_bytes(batch_at(base_offset))
        (tmp_path / name(base_offset, ".index")).write_bytes(b"")
    (tmp_path / name(0, ".log.swap")).write_bytes(batch_at(1) + batch_at(7))
    (tmp_path / name(0, ".index.swap")).write_bytes(b"")

    folder = read_partition_dir(str(tmp_path))

    assert folder.segments == [0, 10]
    assert (tmp_path / name(0, ".log")).read_bytes() == batch_at(1) + batch_at(7)
    assert sorted(os.listdir(tmp_path)) == [
        name(0, ".index"),
        name(0, ".log"),
        name(10, ".index"),
        name(10, ".log"),
    ]


def test_a_replacement_whose_originals_are_gone_is_not_thrown_away(tmp_path: Path) -> None:
    (tmp_path / name(0, ".log.deleted")).write_bytes(batch_at(0))
    (tmp_path / name(0, ".log.swap")).write_bytes(batch_at(0))

    assert read_partition_dir(str(tmp_path)).segments == [0]
    assert (tmp_path / name(0, ".log")).read_bytes() == batch_at(0)


def test_a_damaged_replacement_does_not_replace_anything(tmp_path: Path) -> None:
    (tmp_path / name(0, ".log")).write_bytes(batch_at(0))
    (tmp_path / name(0, ".log.swap")).write_bytes(batch_at(0)[:-1])

    read_partition_dir(str(tmp_path))

    assert (tmp_path / name(0, ".log")).read_bytes() == batch_at(0)
    assert os.listdir(tmp_path) == [name(0, ".log")]


def test_index_files_without_a_log_go(tmp_path: Path) -> None:
    (tmp_path / name(0, ".log")).write_bytes(b"")
    (tmp_path / name(7, ".index")).write_bytes(b"")

    read_partition_dir(str(tmp_path))

    assert os.listdir(tmp_path) == [name(0, ".log")]


def test_a_replacement_that_was_not_renamed_as_a_whole_goes(tmp_path: Path) -> None:
    (tmp_path / name(0, ".log")).write_bytes(batch_at(0) + batch_at(1))
    (tmp_path / name(0, ".index")).write_bytes(b"the index of two batches")
    (tmp_path / name(0, ".index.swap")).write_bytes(b"")
    (tmp_path / name(0, ".log.cleaned")).write_bytes(batch_at(1))

    read_partition_dir(str(tmp_path))

    assert sorted(os.listdir(tmp_path)) == [name(0, ".index"), name(0, ".log")]
    assert (tmp_path / name(0, ".index")).read_bytes() == b"the index of two batches"


def test_an_index_follows_its_log_that_is_in_place_already(tmp_path: Path) -> None:
    (tmp_path / name(0, ".log")).write_bytes(batch_at(0))
    (tmp_path / name(0, ".txnindex.swap")).write_bytes(b"aborted")

    read_partition_dir(str(tmp_path))

    assert (tmp_path / name(0, ".txnindex")).read_bytes() == b"aborted"


def test_a_replacement_of_which_nothing_is_left_takes_the_place_of_the_first(tmp_path: Path) -> None:
    (tmp_path / name(5, ".log")).write_bytes(batch_at(5))
    (tmp_path / name(5, ".log.swap")).write_bytes(b"")

    assert read_partition_dir(str(tmp_path)).segments == [5]
    assert (tmp_path / name(5, ".log")).read_bytes() == b""
