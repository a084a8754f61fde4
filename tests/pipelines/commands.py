"""`ottla pipeline run` inside the test's own process: everything but the start of a Spark of its own."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.pipelines.running import LOOK_SECONDS

from ottla.cli.main import main
from ottla.cli.pipelines import run as pipeline_run


class Done(NamedTuple):
    code: int
    events: list[dict[str, Any]]
    errors: list[str]  # lines

    @property
    def warnings(self) -> list[str]:
        return [str(event["text"]) for event in self.events if event["event"] == "warning"]

    @property
    def steps(self) -> dict[str, dict[str, int]]:
        """Step counts by stream and step."""
        queries = self.events[-1]["queries"]
        return {f"{step['stream']} {step['step']}": step for query in queries for step in query["steps"]}


class Command:
    """A folder with a pipeline file, and the command in it. `{name}` and `{bootstrap}` stand in the file for both."""

    def __init__(self, folder: Path, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self.capsys = capsys
        self.name = f"bad-{uuid.uuid4().hex[:8]}"

    def write(self, text: str) -> None:
        (self.folder / "p.yaml").write_text(text.replace("{name}", self.name).replace("{bootstrap}", self.bootstrap))

    def run(self, *words: str) -> Done:
        self.capsys.readouterr()
        state = str(self.folder / "state")
        code = main(["pipeline", "run", str(self.folder / "p.yaml"), "--once", "--json", "--state", state, *words])
        out, errors = self.capsys.readouterr()
        assert "Traceback" not in errors, errors
        return Done(code, [json.loads(line) for line in out.splitlines()], errors.splitlines())

    def refused(self, *words: str, code: int = 1) -> str:
        """The one line with which it ends."""
        done = self.run(*words)
        assert done.code == code, done
        assert len(done.errors) == 1, done.errors
        return done.errors[0]

    def checkpoint(self, stream: str = "main") -> Path:
        return self.folder / "state" / self.name / stream / "checkpoint"

    def make_topic(self, partitions: int = 1) -> str:
        topic = f"{self.name}-in"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, partitions, -1)])[topic].result()
        return topic


@pytest.fixture
def command(
    spark: object, bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """It uses the session that runs already, and leaves it to the others."""
    assert spark is not None
    monkeypatch.setattr(pipeline_run, "_stop_spark", lambda _spark: None)
    monkeypatch.setattr(pipeline_run, "POLL_SECONDS", LOOK_SECONDS)
    return Command(tmp_path, bootstrap, capsys)
