"""Two pipelines in one Spark over many cycles: saved while running, Java killed, restarted, stopped."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import free_port
from tests.pipelines.running import produce, wait_for
from tests.pipelines.sink_helpers import new_topic

from ottla.operations.pipeline_runs.statuses import read_status
from ottla.pipelines.spark.processes import children_of, command_of

PIPELINE = """\
name: {name}
bootstrap.servers: {bootstrap}
restart: {restart}
from: {{topic: {topic}}}
steps:
  - parse: {{format: json, schema: {{n: long, at: timestamp}}}}
  - deduplicate: {{by: [n], within: 1 hour, time: at}}
to: {{sqlite: {name}.db, table: rows}}
"""
WAIT_SECONDS_MAX = 240.0


class Long:
    """A run of two pipelines, and commands beside it."""

    def __init__(self, folder: Path, bootstrap: str, port: int) -> None:
        self.folder, self.bootstrap, self.port = folder, bootstrap, port
        self.topics = {name: new_topic(bootstrap, 1) for name in ("steady", "fragile")}
        self.sent = 0
        for name, restart in (("steady", "on-failure"), ("fragile", "never")):
            text = PIPELINE.format(name=name, bootstrap=bootstrap, restart=restart, topic=self.topics[name])
            (folder / f"{name}.yaml").write_text(text)
        self.add(50)
        self.log = (folder / "log").open("w")
        words = ["run", "steady.yaml", "fragile.yaml", "--metrics-port", str(port)]
        self.process = subprocess.Popen(self._words(words), cwd=folder, stdout=self.log, stderr=self.log)

    def _words(self, words: list[str]) -> list[str]:
        return [sys.executable, "-m", "ottla.cli.main", "pipeline", *words, "--state", str(self.folder / "state")]

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self._words([*words]), cwd=self.folder, capture_output=True, text=True, check=False)

    def add(self, count: int) -> None:
        """Every record twice: the state must know the first."""
        numbers = [n for n in range(self.sent, self.sent + count) for _ in range(2)]
        for topic in self.topics.values():
            produce(self.bootstrap, topic, [{"n": n, "at": "2026-01-01T10:00:00Z"} for n in numbers])
        self.sent += count

    def rows(self, name: str) -> list[int]:
        with suppress(sqlite3.OperationalError), sqlite3.connect(self.folder / f"{name}.db", timeout=30) as database:
            return sorted(n for (n,) in database.execute("SELECT n FROM rows"))
        return []

    def status(self, name: str) -> dict[str, Any]:
        """As `status --json` has it, which would start a Python at every look."""
        found = read_status(self.folder / "state", name)
        return {} if found is None else found.as_json()

    def counted(self, name: str) -> int:
        return sum(query["rows"] for query in self.status(name)["queries"])

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        wait_for(lambda: is_so() or self.process.poll() is not None, what, WAIT_SECONDS_MAX)
        assert is_so(), (self.folder / "log").read_text()

    def metric(self, line: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            lines = [each.rpartition(" ") for each in answer.read().decode().splitlines()]
        return next(float(value) for name, _, value in lines if name == line)


@pytest.fixture
def long(tmp_path: Path, bootstrap: str) -> Iterator[Long]:
    made = Long(tmp_path, bootstrap, free_port())
    yield made
    made.log.close()
    if made.process.poll() is None:
        made.process.kill()
        made.process.wait(60)


@pytest.mark.faults
def test_two_pipelines_in_one_spark_are_saved_started_again_and_stopped_each_on_its_own(long: Long) -> None:
    for name in long.topics:
        long.wait(lambda name=name: len(long.rows(name)) == 50, f"the rows of {name}")

    done = long.command("savepoint", "steady", "--to", "saved")  # while it runs
    assert (done.returncode, done.stderr) == (0, "")
    assert "made between two batches; steady continues" in done.stdout
    saved = json.loads((long.folder / "saved" / "savepoint.json").read_text())["streams"]["main"]
    assert saved["planned"] == saved["committed"] == saved["sinks"][0]["batch_id"]
    long.add(50)
    for name in long.topics:
        long.wait(lambda name=name: len(long.rows(name)) == 100, f"more rows of {name}")
    long.wait(lambda: long.counted("steady") == 200, "Spark's report of these rows, which comes after them")
    cost = long.status("steady")["cost"]
    assert min(cost["cpu_seconds"], cost["driver_bytes"], cost["java_bytes"], cost["workers_bytes"]) > 0

    (java,) = [child for child in children_of(long.process.pid) if "java" in command_of(child)]
    os.kill(java, signal.SIGKILL)
    long.wait(lambda: long.status("fragile")["state"] == "failed", "the end of the one that is not started again")
    long.add(50)
    long.wait(lambda: len(long.rows("steady")) == 150, "rows after the restart")
    long.wait(lambda: long.counted("steady") == 300, "the count of the whole run")
    after = long.status("steady")
    assert (after["state"], after["restarts"]) == ("running", 1)
    assert "Spark has ended" in after["last_failure"]
    assert long.metric('ottla_pipeline_restarts_total{pipeline="steady"}') == 1
    assert long.metric('ottla_pipeline_failed{pipeline="fragile"}') == 1
    assert "restarts 1, the last because of: Spark has ended" in long.command("status", "steady").stdout

    done = long.command("stop", "steady")
    assert (done.returncode, "steady is stopped: " in done.stdout) == (0, True), done
    assert long.process.wait(120) == 1  # one of the two has failed
    assert "fragile: Spark has ended" in (long.folder / "log").read_text()
    assert (long.rows("steady"), long.rows("fragile")) == (list(range(150)), list(range(100)))
    done = long.command("run", "steady.yaml", "--from-savepoint", "saved")
    assert done.returncode == 1
    assert "steady.db has batches up to" in done.stderr
