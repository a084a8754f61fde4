"""Following a runner: its reports become snapshots, files and failures."""

from __future__ import annotations

import json
from pathlib import Path

from ottla.operations.pipeline_runs.statuses import read_points, read_status
from ottla.pipelines.running.following import Following
from ottla.pipelines.running.query_state import QueryState
from ottla.pipelines.running.status import RunFolder, new_status

REPORTS = [json.loads(line) for line in (Path(__file__).parent / "recorded_progress.jsonl").read_text().splitlines()]
KAFKA = [report for report in REPORTS if report["name"] == "kafka_plain"]


class Script:
    """A runner with scripted reports."""

    def __init__(self, *rounds: list[QueryState]) -> None:
        self.rounds = list(rounds)

    def poll(self) -> list[QueryState]:
        return self.rounds.pop(0)


def state(reports: list[dict[str, object]], is_active: bool = True, failure: str | None = None) -> QueryState:
    return QueryState("main", reports, [], is_active, failure, ["slow"])


def test_every_batch_is_reported_once() -> None:
    following = Following(Script([state(KAFKA[:2])], [state([])], [state(KAFKA[2:], is_active=False)]), ["main"])
    assert [snapshot.batches for snapshot in following.poll()] == [1, 2]
    assert following.poll() == []
    assert following.is_active
    assert [snapshot.batches for snapshot in following.poll()] == [3]
    assert not following.is_active
    assert following.warnings == ["slow"]


def test_a_failure_is_kept_with_the_query() -> None:
    following = Following(Script([state([], is_active=False, failure="no such topic")]), ["main"])
    following.poll()
    assert following.failures == ["main: no such topic"]


def test_a_full_disk_does_not_end_the_pipeline(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "gone", new_status("views", "", ""))  # never opened: its folder does not exist
    following = Following(Script([state(KAFKA)], [state([])]), ["main"], folder)
    assert len(following.poll()) == 3
    assert following.warnings == ["slow", "status not written: No such file or directory"]


def test_the_files_of_the_run_say_the_same(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, new_status("views", "", ""))
    folder.open()
    following = Following(Script([state(KAFKA)]), ["main"], folder)
    following.poll()
    seen = read_status(tmp_path, "views")
    assert seen is not None
    assert list(seen.queries) == following.snapshots
    assert len(read_points(tmp_path, "views")) == 3
