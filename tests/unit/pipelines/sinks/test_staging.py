"""Staged rows: the manifest makes them valid, once."""

from pathlib import Path

import pytest

from ottla.pipelines.sinks.batch import Batch, SinkError
from ottla.pipelines.sinks.staging import (
    LocalStaging,
    SparkStaging,
    StagedBatch,
    StagedFile,
    add_file,
    local_path,
    parse_manifest,
    replace_file,
    staging_for,
)


def pinned(folder: Path, batch_id: int = 3) -> StagedBatch:
    """As left by a driver."""
    place = folder / str(batch_id) / "rows-a"
    place.mkdir(parents=True)
    (place / "part-0.parquet").write_bytes(b"12345")
    staged = StagedBatch(batch_id, "a", (StagedFile(str(place / "part-0.parquet"), 5),))
    assert add_file(folder / str(batch_id) / "manifest.json", staged.to_json())
    return staged


def test_a_manifest_comes_back_as_it_was() -> None:
    staged = StagedBatch(3, "a", (StagedFile("/x/part-0.parquet", 5),))
    assert parse_manifest(staged.to_json()) == staged


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"batch_id": "x"}', "null"])
def test_an_invalid_manifest_is_none(text: str) -> None:
    assert parse_manifest(text) is None


def test_rows_without_a_manifest_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "3" / "rows-b").mkdir(parents=True)
    assert LocalStaging(tmp_path).find(3) is None


def test_pinned_rows_are_found_by_the_next_driver(tmp_path: Path) -> None:
    staged = pinned(tmp_path)
    assert LocalStaging(tmp_path).find(3) == staged
    assert LocalStaging(tmp_path).find(4) is None


def test_truncated_rows_are_an_error(tmp_path: Path) -> None:
    staged = pinned(tmp_path)
    Path(staged.files[0].path).write_bytes(b"123")
    with pytest.raises(SinkError, match="damaged"):
        LocalStaging(tmp_path).find(3)


def test_a_second_driver_does_not_replace_the_manifest_of_the_first(tmp_path: Path) -> None:
    assert add_file(tmp_path / "manifest.json", "first")
    assert not add_file(tmp_path / "manifest.json", "second")
    assert (tmp_path / "manifest.json").read_text() == "first"
    assert [each.name for each in tmp_path.iterdir()] == ["manifest.json"]


def test_released_rows_are_gone_and_their_identity_stays(tmp_path: Path) -> None:
    staged = pinned(tmp_path)
    LocalStaging(tmp_path).release(staged)
    found = LocalStaging(tmp_path).find(3)
    assert found == StagedBatch(3, "a", (), is_released=True)
    assert not list(tmp_path.glob("*/rows-*"))


def test_leftovers_of_earlier_batches_go_and_later_ones_stay(tmp_path: Path) -> None:
    for batch_id in (1, 2, 4):
        pinned(tmp_path, batch_id)
    staged = pinned(tmp_path, 3)
    (tmp_path / "3" / "rows-dead").mkdir()
    LocalStaging(tmp_path)._remove_leftovers(staged)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["3", "4"]
    assert [each.name for each in (tmp_path / "3").glob("rows-*")] == ["rows-a"]


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "note").write_text("old")
    replace_file(tmp_path / "note", "new")
    assert (tmp_path / "note").read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 1


def test_the_folder_decides_how_rows_are_pinned(tmp_path: Path) -> None:
    assert isinstance(staging_for(Batch("q", 0, str(tmp_path)), "out"), LocalStaging)
    assert isinstance(staging_for(Batch("q", 0, f"file://{tmp_path}"), "out"), LocalStaging)
    assert isinstance(staging_for(Batch("q", 0, "s3a://bucket/x"), "out"), SparkStaging)


def test_paths_and_addresses_are_distinguished() -> None:
    assert local_path("file:///a/b") == Path("/a/b")
    assert local_path("file:/a/b") == local_path("File:///a/b") == Path("/a/b")
    assert local_path("/a/b:c") == Path("/a/b:c")
    assert local_path("hdfs://host/a") is None
