"""`ottla pipeline` as typed by a user: a real broker, a real Spark, a second terminal."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.pipelines.running import read_all, wait_for

from ottla.operations.pipeline_runs.snapshots import total_rows
from ottla.operations.pipeline_runs.statuses import Status, read_status
from ottla.pipelines.spark.processes import children_of, command_of

WAIT_SECONDS_MAX = 180

PIPELINE = """\
name: {name}
bootstrap.servers: {bootstrap}
from: {{topic: {topic}}}
steps:
  - parse: {{format: json, schema: {{page: string, n: long}}}}
  - filter: {{where: "n % 2 = 0"}}
to:
  - {{topic: {topic}-out, key: page, delivery: at-least-once}}
  - {{sqlite: pages.db, table: pages}}
spark: {{spark.sql.shuffle.partitions: 2}}
"""


class Shell:
    """Commands in a folder of their own."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self.topic = f"command-{uuid.uuid4().hex[:8]}"
        self.environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        (folder / "p.yaml").write_text(PIPELINE.format(name="command", bootstrap=bootstrap, topic=self.topic))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self._command(words), capture_output=True, text=True, check=False, **self._where())

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command(words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **self._where()
        )

    def produce(self, first: int, after: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(first, after):
            value = json.dumps({"page": f"/{number % 3}", "n": number}) if number % 10 else "no JSON"
            producer.produce(self.topic, value=value)
        producer.flush()

    def status(self) -> Status | None:
        return read_status(Path(self.environment["XDG_STATE_HOME"]) / "ottla" / "pipelines", "command")

    def is_live(self, process: subprocess.Popen[str]) -> bool:
        """Whether the last run is that of this process, and goes on."""
        status = self.status()
        return status is not None and status.is_live and status.pid == process.pid

    def wait_for_rows(self, process: subprocess.Popen[str], rows: int) -> None:
        def has_them() -> bool:
            assert process.poll() is None, process.stdout and process.stdout.read()
            status = self.status()
            return self.is_live(process) and status is not None and total_rows(status.queries) >= rows

        wait_for(has_them, f"{rows} rows", WAIT_SECONDS_MAX)

    def rows(self) -> tuple[int, int]:
        """How many are in the table, and how many of these differ."""
        with sqlite3.connect(self.folder / "pages.db") as database:
            found: tuple[int, int] = database.execute("SELECT count(*), count(DISTINCT n) FROM pages").fetchone()
        return found

    def _command(self, words: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "ottla.cli.main", "pipeline", *words]

    def _where(self) -> dict[str, object]:
        return {"cwd": self.folder, "env": self.environment}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, bootstrap: str) -> Shell:
    made = Shell(tmp_path_factory.mktemp("command"), bootstrap)
    made.produce(0, 100)
    return made


@pytest.fixture(autouse=True)
def no_run_is_left(shell: Shell) -> Iterator[None]:
    """A test that fails must not leave its run to the next test, or to its second try."""
    yield
    status = shell.status()
    if status is not None and status.is_live:
        os.kill(status.pid, signal.SIGKILL)


def test_a_missing_topic_is_told_before_spark_is_started(shell: Shell) -> None:
    done = shell.run("run", "p.yaml", "--set", "from.topic=nowhere-at-all")
    assert done.returncode == 2
    assert "p.yaml:3: from, topic: there is no topic 'nowhere-at-all'" in done.stderr
    assert "Spark" not in done.stderr


def test_check_tells_the_line_of_a_column_that_is_not_there(shell: Shell) -> None:
    text = (shell.folder / "p.yaml").read_text().replace("n % 2", "m % 2")
    (shell.folder / "wrong.yaml").write_text(text)
    done = shell.run("check", "wrong.yaml")
    assert done.returncode == 2
    assert "wrong.yaml:6: step 2, filter: there is no column 'm'" in done.stderr.replace(", where", "")
    assert "Exception" not in done.stderr


def test_a_run_can_be_watched_from_elsewhere_and_an_interrupt_leaves_no_java_behind(shell: Shell) -> None:
    """The signal goes to the command alone, as a supervisor sends it: a terminal would send it to all of them."""
    running = shell.start("run", "p.yaml", "--master", "local[2]")
    shell.wait_for_rows(running, 100)
    second = shell.run("run", "p.yaml")
    assert second.returncode == 1
    assert f"already run by process {running.pid}" in second.stderr
    assert "command\trunning" in shell.run("list").stdout
    assert "stream  step" in interrupted(running, code=0)
    assert shell.rows() == (40, 40)


def test_once_goes_on_with_all_that_is_there_and_accounts_for_every_row(shell: Shell) -> None:
    shell.produce(100, 200)
    done = shell.run("run", "p.yaml", "--once", "--master", "local[2]", "--json")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    parse, filtered = events[-1]["queries"][0]["steps"]
    assert (parse["came"], parse["kept"], parse["dead"]) == (100, 90, 10)
    assert (filtered["came"], filtered["kept"], filtered["filtered"]) == (90, 40, 50)
    assert len(read_all(shell.bootstrap, f"{shell.topic}-out")) == 80
    assert shell.rows() == (80, 80)


def test_the_last_run_can_be_drawn(shell: Shell) -> None:
    done = shell.run("report", "command", "-o", "run.png")
    assert done.returncode == 0, done.stderr
    assert (shell.folder / "run.png").stat().st_size > 10_000


def test_an_interrupt_while_it_starts_leaves_no_java_behind(shell: Shell) -> None:
    running = shell.start("run", "p.yaml", "--master", "local[2]")
    wait_for(lambda: bool(java_below(running.pid)), "Java")
    interrupted(running, code=130)


def test_a_run_that_was_killed_is_told_so_and_leaves_no_java_behind(shell: Shell) -> None:
    running = shell.start("run", "p.yaml", "--master", "local[2]")
    wait_for(lambda: shell.is_live(running) and bool(java_below(running.pid)), "a start")
    started = java_below(running.pid)
    running.kill()
    running.wait()
    done = shell.run("status", "command")
    assert done.returncode == 1
    assert "command: killed" in done.stdout
    wait_for_end(started)


def wait_for_end(started: list[int]) -> None:
    """The first Java of a machine writes an archive of its classes before it ends: half a minute of work."""
    wait_for(lambda: not [pid for pid in started if command_of(pid)], f"the end of {started}", WAIT_SECONDS_MAX)


def interrupted(running: subprocess.Popen[str], code: int) -> str:
    """What it said, when it has ended with this code and its Java is gone."""
    started = java_below(running.pid)
    running.send_signal(signal.SIGINT)
    try:
        assert running.wait(WAIT_SECONDS_MAX) == code
        wait_for_end(started)
    finally:
        for pid in started:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    said = running.stdout.read() if running.stdout else ""
    assert "Traceback" not in said
    return said


def java_below(pid: int) -> list[int]:
    """Java among the processes that this one has started, and what these have started."""
    found = [each for child in children_of(pid) for each in (child, *java_below(child))]
    return [each for each in dict.fromkeys(found) if "java" in command_of(each).partition(" ")[0]]


def test_another_beginning_needs_a_word_about_the_checkpoint(shell: Shell) -> None:
    done = shell.run("run", "p.yaml", "--from", "beginning")
    assert done.returncode == 2
    assert "--fresh discards it" in done.stderr
