"""Checkpoint, notes and sinks: matching state continues, and any mismatch ends the run before it writes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.pipelines.model import sink_specs as model
from ottla.pipelines.running.beginning import look
from ottla.pipelines.running.belonging import (
    Found,
    Memory,
    Standing,
    StreamName,
    check_found,
    check_memory,
    check_state,
    check_swept,
    is_of_stream,
)
from ottla.pipelines.running.checkpoint import Checkpoint, CheckpointError
from ottla.pipelines.running.delivery import agreed_ends, can_last
from ottla.pipelines.sinks.batch_ledger import LastBatch
from ottla.pipelines.sinks.external_offsets import CONFLICTING_OFFSET

NAME = StreamName("views", "main")
ID = "0b1e7a52-58b5-4a4c-8d02-93cfcf0f5d67"
OTHER_ID = "11111111-2222-3333-4444-555555555555"
OWN = f"views.main.{ID}.0"
EARLIER = f"views.main.{OTHER_ID}.0"
OFFSETS = 'v1\n{"batchWatermarkMs":0}\n{"site":{"0":7}}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a stream whose query has completed batches 0 to 2."""
    main = tmp_path / "main"
    kept = main / f"query-{ID}"
    for number in range(3):
        write(main / "checkpoint" / "offsets" / str(number), OFFSETS)
        write(main / "checkpoint" / "commits" / str(number), COMMIT)
    write(main / "checkpoint" / "metadata", f'{{"id":"{ID}"}}')
    for name, text in (("owner", "views.main"), ("starting", "{}"), ("state-steps", "[]"), ("swept", "[2, 2]")):
        write(kept / name, text)
    write(kept / "sinks" / "0" / "table-rows" / "2" / "manifest.json", "{}")
    return main


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def found_in(folder: Path) -> Found:
    (folder / "checkpoint").mkdir(exist_ok=True)  # otherwise Spark would be needed
    return look(Checkpoint(cast("Any", None), str(folder / "checkpoint")), str(folder))


def remove_checkpoint(folder: Path) -> None:
    shutil.rmtree(folder / "checkpoint")


def remove_all_but_metadata(folder: Path) -> None:
    shutil.rmtree(folder / "checkpoint" / "offsets")
    shutil.rmtree(folder / "checkpoint" / "commits")


def remove_what_was_kept(folder: Path) -> None:
    shutil.rmtree(folder / f"query-{ID}")


def take_another_checkpoint(folder: Path) -> None:
    write(folder / "checkpoint" / "metadata", f'{{"id":"{OTHER_ID}"}}')


def take_another_beginning(folder: Path) -> None:
    remove_all_but_metadata(folder)
    take_another_checkpoint(folder)


def take_all_of_another_pipeline(folder: Path) -> None:
    write(folder / f"query-{ID}" / "owner", "others.main")


def remove_a_note(folder: Path) -> None:
    (folder / f"query-{ID}" / "starting").unlink()


def test_matching_state_continues(folder: Path) -> None:
    found = found_in(folder)
    check_found(found, NAME, can_last=False)
    assert (found.query_id, found.standing, found.is_new) == (ID, Standing(2, 2), False)


@pytest.mark.parametrize(
    ("accident", "words"),
    [
        (remove_checkpoint, "checkpoint is gone, and what its query kept is still there"),
        (remove_all_but_metadata, "knows of no batch, but its query has done some"),
        (remove_what_was_kept, f"query-{ID} was removed"),
        (take_another_checkpoint, f"belongs to query {OTHER_ID}, and nothing that this query kept"),
        (take_another_beginning, "checkpoint is gone, and what its query kept is still there"),
        (take_all_of_another_pipeline, "has the checkpoint of others.main, not of views.main"),
        (remove_a_note, f"query-{ID}/starting is missing"),
    ],
)
def test_mismatching_state_is_an_error_with_a_hint(folder: Path, accident: Callable[[Path], None], words: str) -> None:
    accident(folder)
    with pytest.raises(CheckpointError, match=rf"(?s){words}.*ottla pipeline reset views"):
        check_found(found_in(folder), NAME, can_last=False)


def test_without_its_checkpoint_a_query_goes_on_only_where_its_rows_say_where(folder: Path) -> None:
    remove_checkpoint(folder)
    found = found_in(folder)
    check_found(found, NAME, can_last=True)
    assert found.is_new
    with pytest.raises(CheckpointError, match=r"what window, join remembered.*put the checkpoint back"):
        check_state(["window", "join"], NAME)
    check_state([], NAME)


def test_a_start_that_failed_before_its_first_batch_is_no_accident(folder: Path) -> None:
    remove_all_but_metadata(folder)
    shutil.rmtree(folder / f"query-{ID}" / "sinks")
    write(folder / f"query-{ID}" / "swept", "[-1, -1]")
    found = found_in(folder)
    check_found(found, NAME, can_last=False)
    assert found.is_new
    remove_what_was_kept(folder)  # crashed before the first note
    check_found(found_in(folder), NAME, can_last=False)


def memory(batches: dict[str, int], **kind: bool) -> Memory:
    own = "views.main.0" if kind.get("is_lasting") else OWN
    return Memory("table rows", own, {query: LastBatch(number, "i") for query, number in batches.items()}, **kind)


@pytest.mark.parametrize(
    ("batches", "standing"),
    [
        ({}, Standing()),
        ({}, Standing(0, -1)),
        ({OWN: 0}, Standing(0, -1)),
        ({OWN: 2}, Standing(2, 2)),
        ({OWN: 2}, Standing(3, 2)),
        ({OWN: 3}, Standing(3, 2)),
        ({OWN: 3}, Standing(3, -1)),  # the commits are missing: batch 3 runs again
        ({OWN: 2, EARLIER: 9}, Standing(2, 2)),
        ({"others.main.0": 5, f"views.main.{'a' * 32}.0": 0}, Standing()),  # another pipeline; a run over all history
    ],
)
def test_a_sink_has_the_batch_before_or_the_one_that_is_done_again(batches: dict[str, int], standing: Standing) -> None:
    check_memory(memory(batches), NAME, standing, may_repeat=False)


@pytest.mark.parametrize(
    ("batches", "standing", "words"),
    [
        ({EARLIER: 2}, Standing(), "has rows of an earlier query of views.main.*--fresh"),
        ({"views.main.0": 2}, Standing(), "has rows of an earlier query"),  # keep_offsets was turned off
        ({}, Standing(2, 2), "has no batch of this query"),
        ({EARLIER: 2}, Standing(2, 2), "has no batch of this query"),
        ({OWN: 1}, Standing(2, 2), "has batches up to 1, and the checkpoint continues with batch 3"),
        ({OWN: 3}, Standing(2, 2), "has batches up to 3, and the checkpoint continues with batch 3"),
        ({OWN: 1}, Standing(3, 2), "has batches up to 1, and the checkpoint continues with batch 3"),
        ({OWN: 4}, Standing(3, 2), "has batches up to 4"),
        ({OWN: 4}, Standing(), "has rows of an earlier query"),
    ],
)
def test_a_mismatching_sink_is_an_error(batches: dict[str, int], standing: Standing, words: str) -> None:
    with pytest.raises(CheckpointError, match=f"(?s)table rows {words}"):
        check_memory(memory(batches), NAME, standing, may_repeat=False)


def test_writing_once_more_must_be_wanted() -> None:
    check_memory(memory({EARLIER: 2}), NAME, Standing(), may_repeat=True)
    with pytest.raises(CheckpointError, match=r"reset views --sinks"):  # a folder has one query
        check_memory(memory({EARLIER: 2}, is_exclusive=True), NAME, Standing(), may_repeat=True)


def test_a_batch_without_its_note_is_an_error() -> None:
    with pytest.raises(CheckpointError, match="the note of its newest batch is gone or damaged"):
        check_memory(memory({"": 2}, is_exclusive=True), NAME, Standing(2, 2), may_repeat=False)


def test_lasting_sinks_are_compared_by_offsets_in_the_first_batch() -> None:
    check_memory(memory({"views.main.0": 7}, is_lasting=True), NAME, Standing(0, -1), may_repeat=False)
    with pytest.raises(CheckpointError, match="has batches up to 7"):
        check_memory(memory({"views.main.0": 7}, is_lasting=True), NAME, Standing(3, 3), may_repeat=False)
    with pytest.raises(CheckpointError, match="earlier query"):  # rows without offsets
        check_memory(memory({"views.main.0": 7}, is_lasting=True), NAME, Standing(), may_repeat=True)


def test_a_sink_that_may_have_forgotten_is_not_asked_for_more() -> None:
    check_memory(memory({}, is_forgetful=True), NAME, Standing(2, 2), may_repeat=False)
    with pytest.raises(CheckpointError, match="has batches up to 5"):
        check_memory(memory({OWN: 5}, is_forgetful=True), NAME, Standing(2, 2), may_repeat=False)


def test_names_of_queries() -> None:
    assert is_of_stream(OWN, NAME)
    assert not is_of_stream(f"views.main2.{ID}.0", NAME)
    assert not is_of_stream(f"views.main.{ID}.0.rest", NAME)
    assert not is_of_stream("viewsxmain.0", NAME)


def test_only_if_all_sinks_keep_offsets_they_can_go_on_alone() -> None:
    table = model.SqliteSink(sqlite="a.db", table="t")
    lasting = model.SqliteSink(sqlite="a.db", table="t", keep_offsets=True)
    topic, console = model.TopicSink(topic="out"), model.ConsoleSink()
    expected = [((lasting,), True), ((lasting, console), True), ((lasting, lasting), True)]
    expected += [((lasting, topic), False), ((lasting, table), False), ((console,), False), ((table,), False)]
    for sinks, answer in expected:
        assert can_last(cast("Any", StreamWith(sinks))) == answer, sinks


def test_letters_that_were_not_sent_need_the_checkpoint() -> None:
    check_swept([], 5, NAME)  # no earlier queries: unknown
    check_swept([2, 5], 5, NAME)
    with pytest.raises(CheckpointError, match="dead letters of its batches from 5 to 5 may not be sent: put the"):
        check_swept([2, 4], 5, NAME)


class StreamWith:
    def __init__(self, sinks: tuple[model.Sink, ...]) -> None:
        self.sinks = sinks


def test_databases_must_agree_where_their_rows_end() -> None:
    assert agreed_ends([]) == {}
    with pytest.raises(CheckpointError, match="two streams of the query had read site up to different offsets"):
        agreed_ends([("table a", {"site": {0: CONFLICTING_OFFSET}})])
    assert agreed_ends([("a", {"t": {0: 5}}), ("b", {"t": {0: 5}})]) == {"t": {0: 5}}
    with pytest.raises(CheckpointError, match=r"a ends at .*5.*, b at .*4.*"):
        agreed_ends([("a", {"t": {0: 5}}), ("b", {"t": {0: 4}})])
    with pytest.raises(CheckpointError):  # tables of the same name, in two databases
        agreed_ends([("a", {"t": {0: 5}}), ("a", {})])
