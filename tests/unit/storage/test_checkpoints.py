"""Checkpoint files and the other small files of a log directory."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

import pytest

from ottla.base.names import TopicPartition
from ottla.storage import files
from ottla.storage.checkpoints import (
    TRANSACTION_FILE,
    CheckpointError,
    read_offsets,
    read_transaction,
    write_offsets,
    write_transaction,
)
from ottla.storage.errors import LogDirError
from ottla.storage.log_dir import LogDir
from ottla.storage.meta_properties import check_meta_properties, write_meta_properties
from ottla.storage.partition_metadata import read_topic_id, write_topic_id


def test_offsets_are_written_as_kafka_writes_them(tmp_path: Path) -> None:
    offsets = {TopicPartition("a", 0): 17510, TopicPartition("b-c", 12): 0}

    write_offsets(str(tmp_path), "replication-offset-checkpoint", offsets)

    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n2\na 0 17510\nb-c 12 0\n"
    assert read_offsets(str(tmp_path), "replication-offset-checkpoint") == offsets
    assert os.listdir(tmp_path) == ["replication-offset-checkpoint"]


@pytest.mark.parametrize("content", [None, b""])
def test_a_missing_or_empty_file_holds_nothing(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "x").write_bytes(content)

    assert read_offsets(str(tmp_path), "x") == {}


@pytest.mark.parametrize(
    "content", [b"7\n0\n", b"0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na x 1\n", b"0\n1\na 0 -1\n", b"\xff\xfe"]
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)

    with pytest.raises(CheckpointError):
        read_offsets(str(tmp_path), "x")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "sync")

    partition = TopicPartition("a", 0)
    write_offsets(str(tmp_path), "x", {partition: 1})
    monkeypatch.setattr(files, "sync", fail)

    with pytest.raises(OSError, match="sync"):
        write_offsets(str(tmp_path), "x", {partition: 2})

    assert read_offsets(str(tmp_path), "x") == {partition: 1}


def test_the_order_of_a_durable_replacement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    rename = os.rename
    monkeypatch.setattr(
        files, "sync", lambda descriptor: steps.append(f"sync {os.readlink(f'/proc/self/fd/{descriptor}')}")
    )
    monkeypatch.setattr(files, "rename", lambda old, new: (steps.append(f"rename {new}"), rename(old, new)))

    files.replace_file(str(tmp_path / "x"), b"data", is_durable=True)

    assert steps == [f"sync {tmp_path}/x.tmp", f"rename {tmp_path}/x", f"sync {tmp_path}"]


def test_the_topic_id_is_kept_in_kafkas_form(tmp_path: Path) -> None:
    topic_id = uuid.UUID("793794d9-37dd-4604-80f9-e2b073b5c8fd")

    write_topic_id(str(tmp_path), topic_id)

    assert (tmp_path / "partition.metadata").read_text() == "version: 0\ntopic_id: eTeU2TfdRgSA-eKwc7XI_Q"
    assert read_topic_id(str(tmp_path)) == topic_id


@pytest.mark.parametrize("text", ["", "version: 1\ntopic_id: eTeU2TfdRgSA-eKwc7XI_Q", "version: 0\ntopic_id: short"])
def test_a_damaged_topic_id_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "partition.metadata").write_text(text)

    with pytest.raises(CheckpointError):
        read_topic_id(str(tmp_path))


def test_meta_properties_claims_a_folder(tmp_path: Path) -> None:
    assert check_meta_properties(str(tmp_path), 1, "cluster") is None

    write_meta_properties(str(tmp_path), 1, "cluster")

    assert check_meta_properties(str(tmp_path), 1, "cluster") == "cluster"
    assert check_meta_properties(str(tmp_path), 1, None) == "cluster"
    with pytest.raises(LogDirError, match=r"belongs to broker 1.*broker\.id=1"):
        check_meta_properties(str(tmp_path), 2, "cluster")
    with pytest.raises(LogDirError, match="belongs to cluster cluster"):
        check_meta_properties(str(tmp_path), 1, "other")


def test_meta_properties_of_kraft_are_understood(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("#\n#Sun Nov 15\nnode.id=3\ndirectory.id=x\nversion=1\ncluster.id=abc\n")

    assert check_meta_properties(str(tmp_path), 3, None) == "abc"


@pytest.mark.parametrize(
    "text", ["", "version=7\n", "garbage", "version=0\nbroker.id=1\nclust", "version=0\ncluster.id=x\n"]
)
def test_partial_meta_properties_have_an_error_with_a_remedy(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.properties").write_text(text)

    with pytest.raises(LogDirError, match="put the right file back"):
        check_meta_properties(str(tmp_path), 1, "cluster")


def test_a_new_directory_has_no_number(tmp_path: Path) -> None:
    assert read_transaction(str(tmp_path)) is None
    write_transaction(str(tmp_path), 42)
    assert read_transaction(str(tmp_path)) == 42
    assert (tmp_path / TRANSACTION_FILE).read_text() == '{"version":1,"transaction":42}'


@pytest.mark.parametrize("text", ["", "42", "[]", '{"version":1', '{"version":2,"transaction":1}', "\0\0", "null"])
def test_a_damaged_number_counts_as_none(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / TRANSACTION_FILE).write_text(text)
    assert read_transaction(str(tmp_path)) is None
    assert TRANSACTION_FILE in caplog.text


@pytest.mark.parametrize("number", ["-1", "1.5", '"7"', "null"])
def test_a_number_that_is_none_counts_as_none(tmp_path: Path, number: str) -> None:
    (tmp_path / TRANSACTION_FILE).write_text(f'{{"version":1,"transaction":{number}}}')
    assert read_transaction(str(tmp_path)) is None


def test_the_number_of_a_directory_only_rises_unless_it_goes_by_another_store(tmp_path: Path) -> None:
    log_dir = LogDir(str(tmp_path))
    for number, expected in ((7, 7), (5, 7), (9, 9)):
        log_dir.record_transaction(number)
        assert read_transaction(log_dir.path) == log_dir.metadata_transaction == expected
    log_dir.reset_transaction(3)
    assert read_transaction(log_dir.path) == log_dir.metadata_transaction == 3
    log_dir.unlock()


def test_a_number_is_synced_before_it_takes_the_place_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    for name in ("sync", "rename"):
        real = getattr(files, name)
        monkeypatch.setattr(files, name, lambda *given, name=name, real=real: (done.append(name), real(*given))[1])
    write_transaction(str(tmp_path), 1)
    assert done == ["sync", "rename", "sync"]
