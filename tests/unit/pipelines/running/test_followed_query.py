"""The work after batches of a query: retried until done, reported while pending, given up with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.client.errors import ClientError
from ottla.pipelines.model.document import parse_document
from ottla.pipelines.model.pipeline import read_pipeline
from ottla.pipelines.running.accounting import Account
from ottla.pipelines.running.builder import Choices
from ottla.pipelines.running.checkpoint import Checkpoint
from ottla.pipelines.running.dead_letters import NOTE, NOTHING, DeadLetters
from ottla.pipelines.running.followed_query import FollowedQuery
from ottla.pipelines.running.notes import write_note
from ottla.pipelines.running.owed import PATIENCE_S
from ottla.pipelines.steps.frame import AppliedStep
from ottla.pipelines.steps.step_table import STEPS

FILE = """\
name: views
from: {topic: site}
steps:
  - filter: {where: "page IS NOT NULL"}
to: {topic: out}
"""
AWAY = "cannot reach 127.0.0.1:9092"


class Query:
    """The used part of Spark's StreamingQuery."""

    def __init__(self) -> None:
        self.isActive = True
        self.recentProgress: list[Any] = []
        self.status = {"message": "Waiting for data to arrive", "isTriggerActive": False}
        self.lastProgress = None
        self.error: Exception | None = None

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.isActive = False

    def add(self, number: int, dead: int) -> None:
        source = {"startOffset": None, "endOffset": {"site": {"0": number + 1}}}
        report = {
            "batchId": number, "timestamp": f"2026-01-01T00:00:{number:02}.000Z", "durationMs": {"addBatch": 1},
            "sources": [source], "observedMetrics": {"ottla0": {"in": dead, "out": 0, "dead_1": dead}},
        }  # fmt: skip
        self.recentProgress.append(SimpleNamespace(json=json.dumps(report)))


class Letters(DeadLetters):
    def __init__(self, folder: Path) -> None:
        found = read_pipeline(parse_document(FILE, "views.yaml").values, STEPS, ".")
        spark = cast("Any", None)
        checkpoint = Checkpoint(spark, f"{folder}/checkpoint")
        super().__init__(spark, found, found.streams["main"], str(folder), Choices(), checkpoint, -1)
        write_note(str(folder), NOTE, NOTHING)
        self.is_away = False
        self.tries = 0
        self.sent: list[int] = []

    def _sent(self) -> int:
        return -1  # the markers of the topic

    def _sweep(self, first: int, last: int, bounds: object) -> None:
        self.tries += 1
        self._note(first - 1, last)
        if self.is_away:
            raise ClientError(AWAY)
        self.sent.append(last)

    def _sweep_from_checkpoint(self, first: int, last: int) -> None:
        self._sweep(first, last, None)
        self._note(last, last)


class Followed(FollowedQuery):
    def __init__(self, folder: Path) -> None:
        self.spark_query, self.letters, self.now_s = Query(), Letters(folder), 0.0
        account = Account([AppliedStep("main", 1, "filter", 1, "marks", "ottla0")])
        super().__init__(
            self.letters.pipeline, self.letters.stream, lambda: cast("Any", self.spark_query), account, str(folder),
            self.letters, seconds=lambda: self.now_s,
        )  # fmt: skip

    def _commit(self, ends: object) -> None:
        if self.letters.is_away:
            raise ClientError(AWAY)


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    (tmp_path / "checkpoint").mkdir()  # read without Spark
    return Followed(tmp_path)


def test_dead_letters_are_reported_before_they_are_sent(followed: Followed) -> None:
    followed.spark_query.add(0, dead=3)
    assert followed.poll().unsent == 3
    assert followed.letters.sent == []
    assert followed.poll().unsent == 0
    assert followed.letters.sent == [0]


def test_letters_are_tried_until_the_broker_is_back(followed: Followed) -> None:
    followed.letters.is_away = True
    followed.spark_query.add(0, dead=3)
    warnings: list[str] = []
    for _ in range(300):
        state = followed.poll()
        warnings += state.warnings
        followed.now_s += 1
    assert (state.unsent, state.is_active, state.failure) == (3, True, None)
    assert set(warnings) == {f"main: 3 dead letters are not sent yet: {AWAY}; it is tried again"}
    assert 15 < followed.letters.tries < 40  # each attempt costs a Spark job
    followed.letters.is_away = False
    followed.now_s += 60
    assert followed.poll().warnings == ["main: 3 dead letters are sent after all"]
    assert followed.letters.sent == [0]
    assert followed.poll().unsent == 0


def test_a_run_to_the_end_waits_for_its_letters(followed: Followed) -> None:
    """The only attempt was that at the end of the query."""
    followed.letters.is_away = True
    followed.spark_query.add(0, dead=1)
    followed.spark_query.stop()
    assert followed.poll().is_active
    assert followed.poll().is_active
    followed.letters.is_away = False
    followed.now_s += 5
    state = followed.poll()
    assert (state.is_active, state.failure, followed.letters.sent) == (False, None, [0])


def test_letters_that_cannot_be_sent_end_the_run_with_the_reason(followed: Followed) -> None:
    followed.letters.is_away = True
    followed.spark_query.add(0, dead=1)
    followed.spark_query.stop()
    while (state := followed.poll()).is_active:
        followed.now_s += 1
    assert followed.now_s >= PATIENCE_S
    assert state.failure == f"1 dead letter is not sent: {AWAY}; the next run sends them"
    assert state.unsent == 1


def test_a_failed_query_reports_its_unsent_dead_letters(followed: Followed) -> None:
    followed.letters.is_away = True
    followed.spark_query.add(0, dead=2)
    followed.spark_query.error = RuntimeError("the disk is full")
    followed.spark_query.stop()
    state = followed.poll()
    while state.is_active:
        state = followed.poll()
    assert followed.letters.tries == 1
    assert state.failure is not None
    assert "the disk is full" in state.failure
    assert f"2 dead letters are not sent: {AWAY}" in state.failure


def test_a_stopped_query_tries_once_more(followed: Followed) -> None:
    followed.letters.is_away = True
    followed.spark_query.add(0, dead=2)
    followed.poll()
    followed.stop(grace_seconds=0)
    states = [followed.poll(), followed.poll()]
    assert [state.is_active for state in states] == [True, False]
    assert states[-1].unsent == 2
