"""State of earlier runs: complete checkpoints, the same steps with state, names, and interrupted dead letters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.pipelines.model.document import parse_document
from ottla.pipelines.model.pipeline import Pipeline, read_pipeline
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.builder import Choices
from ottla.pipelines.running.checkpoint import Checkpoint, CheckpointError
from ottla.pipelines.running.checkpoints import check_names, put_aside
from ottla.pipelines.running.dead_letters import NOTE, NOTHING, DeadLetters, noted
from ottla.pipelines.running.late_letters import LateLetters
from ottla.pipelines.running.shape import check_shape, note_steps
from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.steps.frame import AppliedStep
from ottla.pipelines.steps.step_table import STEPS

FILE = """\
name: views
streams:
  pages:
    from: {topic: site}
    steps:
      - filter: {where: "page IS NOT NULL"}
      - watermark: {time: at, delay: 1 minute}
      - window: {size: 1 minute, by: [page], count: views}
    to: {topic: out}
"""
OFFSETS = 'v1\n{"batchWatermarkMs":0}\n{"site":{"0":7}}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def pipeline(text: str = FILE) -> Pipeline:
    return read_pipeline(parse_document(text, "views.yaml").values, STEPS, ".")


def make_checkpoint(folder: Path) -> Checkpoint:
    files = {"metadata": '{"id":"abc"}', "offsets/2": OFFSETS, "offsets/3": OFFSETS, "commits/3": COMMIT}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return Checkpoint(cast("Any", None), str(folder))


def test_a_whole_checkpoint_is_read_without_spark(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path)
    checkpoint.check()
    planned = checkpoint.planned(3)
    assert (checkpoint.query_id(), checkpoint.committed()) == ("abc", 3)
    assert planned is not None
    assert planned.ends == [{"site": {0: 7}}]


@pytest.mark.parametrize("text", ["", "v1", "v1\n{", "noise", "\x00\xff", "v1\n[]\n[]"])
@pytest.mark.parametrize("name", ["metadata", "offsets/3"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str, text: str) -> None:
    checkpoint = make_checkpoint(tmp_path)
    (tmp_path / name).write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match=f"{name} is damaged"):
        checkpoint.query_id()
        checkpoint.check()


@pytest.mark.parametrize("text", ["", "v1", "v1\n{", "noise"])
def test_a_damaged_commit_is_named(tmp_path: Path, text: str) -> None:
    checkpoint = make_checkpoint(tmp_path)
    (tmp_path / "commits" / "3").write_text(text)
    with pytest.raises(CheckpointError, match="commits/3 is damaged"):
        checkpoint.check()


def test_missing_parts_are_reported(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path)
    (tmp_path / "metadata").unlink()
    with pytest.raises(CheckpointError, match="metadata is missing"):
        checkpoint.check()
    (tmp_path / "metadata").write_text('{"id":"abc"}')
    (tmp_path / "offsets" / "2").unlink()
    with pytest.raises(CheckpointError, match="offsets/2 is missing"):  # the start of batch 3 is unknown
        checkpoint.check()
    (tmp_path / "offsets" / "3").unlink()
    with pytest.raises(CheckpointError, match="ends before batch 3"):
        checkpoint.check()


def test_only_steps_with_state_must_stay_as_they_were(tmp_path: Path) -> None:
    passages = [
        AppliedStep("pages", 1, "filter", 1, "marks"),
        AppliedStep("pages", 3, "window", 3, "merges", operators=1),
    ]

    def check(text: str, is_new: bool = False) -> None:
        found = pipeline(text)
        check_shape(found, found.streams["pages"], passages, str(tmp_path), is_new)

    check(FILE, is_new=True)
    check(FILE)
    check(FILE.replace("IS NOT NULL", "<> ''"))
    with pytest.raises(PipelineError) as caught:
        check(FILE.replace("size: 1 minute", "size: 2 minutes"))
    assert 'window {"count": "views", "size": 60000, "by": ["page"]}' in caught.value.texts()[0]
    check(FILE.replace("size: 1 minute", "size: 2 minutes"), is_new=True)


def passages_of(found: Pipeline) -> list[AppliedStep]:
    stream = found.streams["pages"]
    kept = ("window", "deduplicate", "join")
    return [
        AppliedStep("pages", number, step.name, number, "marks", operators=int(step.name in kept))
        for number, step in enumerate(stream.steps, start=1)
    ]


STATEFUL = FILE.replace("{topic: site}", "{topic: [site, shop]}").replace(
    "      - window:", "      - deduplicate: {by: [page, at]}\n      - window:"
)
WINDOW = "      - window: {size: 1 minute, by: [page], count: views}\n"
DEDUPLICATE = "      - deduplicate: {by: [page, at]}\n"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("size: 1 minute", "size: 5 minutes", "made with window"),
        ("by: [page], count", "by: [user], count", "made with window"),
        ("count: views", "count: visits", "made with window"),
        ("by: [page, at]", "by: [page]", "made with deduplicate"),
        (DEDUPLICATE, "", "now there is window"),
        (DEDUPLICATE + WINDOW, WINDOW + DEDUPLICATE, "made with deduplicate"),
        ("{time: at,", "{time: seen,", "times of column at, now it is seen"),
        ("    to: {topic: out}", "    to: {topic: out}\n    output: update", "output append, now it is update"),
        ("[site, shop]", "[site]", "topic shop is no longer read"),
        ("[site, shop]", "elsewhere", "topic site, shop is no longer read"),
    ],
)
def test_forbidden_changes_are_reported_with_a_hint(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in STATEFUL
    found = pipeline(STATEFUL)
    check_shape(found, found.streams["pages"], passages_of(found), str(tmp_path), is_new=True)
    changed = pipeline(STATEFUL.replace(old, new))
    with pytest.raises(PipelineError) as caught:
        check_shape(changed, changed.streams["pages"], passages_of(changed), str(tmp_path), is_new=False)
    (line,) = caught.value.texts()
    assert words in line
    assert "ottla pipeline savepoint views keeps the current state" in line


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("page IS NOT NULL", "page <> ''", []),
        (WINDOW, WINDOW + '      - filter: {where: "views > 1"}\n', []),
        ("delay: 1 minute", "delay: 5 minutes", []),
        ("[site, shop]", "[site, shop, news]", ["topic news is new: it is read from its beginning"]),
        ("to: {topic: out}", "to: [{topic: out}, console]", ["console 20 is new: it gets rows from now on"]),
    ],
)
def test_permitted_changes_are_reported(tmp_path: Path, old: str, new: str, said: list[str]) -> None:
    assert old in STATEFUL
    found = pipeline(STATEFUL)
    check_shape(found, found.streams["pages"], passages_of(found), str(tmp_path), is_new=True)
    changed = pipeline(STATEFUL.replace(old, new))
    stream = changed.streams["pages"]
    assert check_shape(changed, stream, passages_of(changed), str(tmp_path), is_new=False) == said


def test_a_damaged_plan_is_an_error_and_an_older_query_has_none(tmp_path: Path) -> None:
    found = pipeline()
    stream = found.streams["pages"]
    check_shape(found, stream, passages_of(found), str(tmp_path), is_new=True)
    (tmp_path / "plan").write_text("{")
    with pytest.raises(CheckpointError, match="plan is damaged"):
        check_shape(found, stream, passages_of(found), str(tmp_path), is_new=False)
    (tmp_path / "plan").unlink()
    assert check_shape(found, stream, passages_of(found), str(tmp_path), is_new=False) == []


GROUPING = FILE.replace(
    "window: {size: 1 minute, by: [page], count: views}",
    'sql: "SELECT page, count(*) AS views FROM stream GROUP BY page"',
)


def test_a_checkpoint_of_a_version_that_took_fewer_steps_for_such_with_state(tmp_path: Path) -> None:
    """It continues if the last run had exactly the same steps, and is refused if they were not stored."""
    found = pipeline(GROUPING)
    stream, passages = found.streams["pages"], passages_of(found)
    passages[-1] = replace(passages[-1], has_state=True)
    check_shape(found, stream, passages, str(tmp_path), is_new=True)
    (tmp_path / "state-steps").write_text("[]")
    with pytest.raises(PipelineError, match="an earlier version, which did not store sql"):
        check_shape(found, stream, passages, str(tmp_path), is_new=False)
    note_steps(found, passages, str(tmp_path))
    (tmp_path / "state-steps").write_text("[]")
    assert check_shape(found, stream, passages, str(tmp_path), is_new=False) == []
    note_steps(found, passages, str(tmp_path))  # stored from here on
    assert "GROUP BY page" in (tmp_path / "state-steps").read_text()
    changed = pipeline(GROUPING.replace("GROUP BY page", "GROUP BY page, at"))
    with pytest.raises(PipelineError, match="the checkpoint was made with sql"):
        check_shape(changed, changed.streams["pages"], passages, str(tmp_path), is_new=False)


def test_a_renamed_stream_is_reported_and_fresh_moves_the_old_one(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "views" / "pages" / "checkpoint")
    check_names(str(tmp_path), pipeline())
    renamed = pipeline(FILE.replace("  pages:", "  sites:"))
    with pytest.raises(PipelineError, match="stream 'sites' has no checkpoint, but 'pages' has"):
        check_names(str(tmp_path), renamed)
    put_aside(str(tmp_path), renamed)
    check_names(str(tmp_path), renamed)
    assert len(list(tmp_path.glob("views/_old/*/pages/checkpoint"))) == 1


class Letters(DeadLetters):
    """Records what it would send; fails on request."""

    def __init__(self, folder: Path, committed: int = -1) -> None:
        found = pipeline()
        checkpoint = Checkpoint(cast("Any", None), str(folder / "checkpoint"))
        if not (folder / NOTE).exists():
            (folder / NOTE).write_text(NOTHING)
        super().__init__(checkpoint.spark, found, found.streams["pages"], str(folder), Choices(), checkpoint, committed)
        self.in_topic = -1  # the last batch with dead letters in the topic
        self.sent: list[tuple[int, int]] = []
        self.fails = False

    def _sent(self) -> int:
        return self.in_topic

    def _sweep(self, first: int, last: int, bounds: object) -> None:
        self._note(first - 1, last)
        if self.fails:
            raise SinkError("the broker does not answer")
        self.sent.append((first, last))

    def _sweep_from_checkpoint(self, first: int, last: int) -> None:
        self._sweep(first, last, None)
        self._note(last, last)


def batch(number: int, dead: int) -> dict[str, Any]:
    source = {"startOffset": None, "endOffset": {"site": {"0": number}}}
    return {"batchId": number, "sources": [source], "observedMetrics": {"ottla0": {"dead_1": dead}}}


def test_letters_that_were_begun_are_sent_again_under_the_same_number(tmp_path: Path) -> None:
    """They may be in the topic already: another number would send them twice."""
    letters = Letters(tmp_path)
    letters.after_batches([batch(0, 2)])
    letters.fails = True
    with pytest.raises(SinkError):
        letters.after_batches([batch(1, 1)])
    letters.fails = False
    letters.after_batches([batch(2, 0), batch(3, 5)])
    assert letters.sent == [(0, 0), (1, 1), (3, 3)]


def test_a_run_without_new_batches_makes_up_for_the_last_one(tmp_path: Path) -> None:
    first = Letters(tmp_path)
    first.after_batches([batch(0, 0), batch(1, 1)])
    second = Letters(tmp_path, committed=4)  # 2 to 4 were committed before the kill
    second.after_batches([])
    second.after_batches([])
    assert second.sent == [(2, 4)]
    third = Letters(tmp_path, committed=4)
    third.after_batches([])
    assert third.sent == []


def test_letters_that_the_topic_has_are_not_sent_again_because_the_note_is_older(tmp_path: Path) -> None:
    (tmp_path / NOTE).write_text(NOTHING)
    letters = Letters(tmp_path, committed=4)
    letters.in_topic = 3
    letters.after_batches([])
    assert letters.sent == [(4, 4)]


def test_a_damaged_note_of_dead_letters_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    for text in ("", "[1", "[1]", "noise"):
        (tmp_path / "swept").write_text(text)
        with pytest.raises(CheckpointError, match="swept is damaged"):
            noted(str(tmp_path))


class Late(LateLetters):
    """Records which batches it would read; fails on request."""

    def __init__(self, folder: Path, committed: int = -1) -> None:
        found = pipeline(f"late_rows: late\n{FILE}")
        checkpoint = Checkpoint(cast("Any", None), str(folder))
        stream = found.streams["pages"]
        super().__init__(DeadLetters(cast("Any", None), found, stream, str(folder), Choices(), checkpoint, committed))
        self.swept: list[int] = []
        self.fails = False

    def _sweep(self, number: int) -> None:
        if self.fails:
            raise SinkError("the broker does not answer")
        self.swept.append(number)


def test_batches_with_late_rows_are_processed_and_those_with_unknown_ones(tmp_path: Path) -> None:
    first = Late(tmp_path)
    first.check()
    first.after_batches(3, {1, 3})
    first.after_batches(3, set())
    first.fails = True
    with pytest.raises(SinkError):
        first.after_batches(5, {5})
    first.fails = False
    first.after_batches(6, {5})
    assert first.swept == [1, 3, 5]
    second = Late(tmp_path, committed=8)  # 7 and 8 were committed before the kill
    second.check()
    second.after_batches(8, set())
    second.after_batches(10, set())
    assert second.swept == [7, 8]


def test_late_rows_are_sent_from_the_run_on_that_asks_for_them(tmp_path: Path) -> None:
    late = Late(tmp_path, committed=4000)
    late.check()
    late.after_batches(4001, {4001})
    assert late.swept == [4001]
    (tmp_path / "late-swept").write_text("noise")
    with pytest.raises(CheckpointError, match="late-swept is damaged"):
        late.check()
