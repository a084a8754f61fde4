"""Writable folders, and their owners."""

import json
from pathlib import Path

import pytest

from ottla.pipelines.sinks.batch import Batch, ForeachBatch, SinkError
from ottla.pipelines.sinks.batch_ledger import LastBatch
from ottla.pipelines.sinks.files import (
    DeltaSink,
    FilesSink,
    batch_identity,
    check_inside,
    checkpoint_identity,
    make_folder,
    mark_batch_begun,
    newest_batch_of,
)


@pytest.mark.parametrize("path", ["/data/../etc", "/etc", "/database", "s3a://bucket/x", "file:///etc", "FILE:///etc"])
def test_a_path_outside_of_the_root_is_refused(path: str) -> None:
    with pytest.raises(SinkError, match="outside of /data"):
        check_inside(path, "/data")


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path)
    with pytest.raises(SinkError, match="outside"):
        FilesSink(str(tmp_path / "root" / "link" / "x"), root=str(tmp_path / "root"))


def test_paths_and_addresses_inside_of_the_root_are_taken(tmp_path: Path) -> None:
    check_inside(str(tmp_path / "a" / "b"), str(tmp_path))
    check_inside("s3a://bucket/a/b", "s3a://bucket/a")
    with pytest.raises(SinkError):
        check_inside("s3a://bucket/a/../b", "s3a://bucket/a")


def test_a_folder_that_cannot_be_created_fails_before_spark_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SinkError, match=r"file: Not a directory: let the pipeline write there$"):
        make_folder(tmp_path / "file" / "inside")


def test_the_newest_batch_is_found_by_its_folder(tmp_path: Path) -> None:
    for number in (2, 10, 9):
        folder = tmp_path / f"ottla_batch={number}"
        folder.mkdir()
        (folder / "_ottla").write_text(json.dumps({"query": "q", "identity": f"i{number}"}))
    (tmp_path / "ottla_batch=x").mkdir()
    assert newest_batch_of(tmp_path, "q") == LastBatch(10, "i10")
    assert newest_batch_of(tmp_path / "nothing", "q") is None
    with pytest.raises(SinkError, match="belongs to query 'q'"):
        newest_batch_of(tmp_path, "another")
    assert FilesSink(str(tmp_path)).last_batches() == {"q": LastBatch(10, "i10")}
    (tmp_path / "ottla_batch=10" / "_ottla").unlink()
    assert FilesSink(str(tmp_path)).last_batches() == {"": LastBatch(10, "")}


def test_a_delta_table_stores_the_newest_batch_of_each_query(tmp_path: Path) -> None:
    assert DeltaSink(str(tmp_path)).last_batches() == {}
    log = tmp_path / "_delta_log"
    log.mkdir()
    for number, query in enumerate(("a", "a", "b")):
        actions = [{"commitInfo": {"operation": "WRITE"}}, {"txn": {"appId": query, "version": number}}]
        (log / f"{number:020}.json").write_text("\n".join(json.dumps(each) for each in actions))
    assert DeltaSink(str(tmp_path)).last_batches() == {"a": LastBatch(1, ""), "b": LastBatch(2, "")}


def test_a_batch_is_identified_by_its_offsets_because_a_checkpoint_may_be_copied(tmp_path: Path) -> None:
    batch = Batch("q", 7, str(tmp_path / "kept"), "id")
    assert batch_identity(batch, "") == batch_identity(batch, str(tmp_path / "gone")) == "id"
    for name, end in (("one", 5), ("two", 6), ("three", 5)):
        (tmp_path / name / "offsets").mkdir(parents=True)
        (tmp_path / name / "offsets" / "7").write_text(f'v1\n{{}}\n{{"t":{{"0":{end}}}}}')
    one, two, three = (batch_identity(batch, str(tmp_path / name)) for name in ("one", "two", "three"))
    assert one == three
    assert one != two
    assert one.startswith("id.")


def test_a_checkpoint_keeps_its_identity_and_a_new_one_has_another(tmp_path: Path) -> None:
    first = checkpoint_identity(Batch("q", 0, str(tmp_path / "a")))
    assert checkpoint_identity(Batch("q", 7, str(tmp_path / "a"))) == first
    assert checkpoint_identity(Batch("q", 0, str(tmp_path / "b"))) != first
    assert checkpoint_identity(Batch("q", 0, str(tmp_path / "c"), "known")) == "known"


def test_a_batch_that_was_begun_is_known(tmp_path: Path) -> None:
    assert not mark_batch_begun(Batch("q", 3, str(tmp_path)), "/table")
    assert mark_batch_begun(Batch("q", 3, str(tmp_path)), "/table")
    assert not mark_batch_begun(Batch("q", 3, str(tmp_path)), "/other")
    assert not mark_batch_begun(Batch("q", 4, str(tmp_path)), "/table")


def test_a_query_needs_a_name_and_a_folder() -> None:
    with pytest.raises(SinkError, match="needs a name"):
        ForeachBatch(FilesSink("/x"), "", "/f")
    with pytest.raises(SinkError, match="needs a folder"):
        ForeachBatch(FilesSink("/x"), "q", "")
