"""The status of pipeline runs, read from their run folders by other processes.

    <state folder>/<pipeline>/_run/status.json      the current status, replaced atomically
    <state folder>/<pipeline>/_run/progress.jsonl   one line per batch; when full it becomes progress.1.jsonl
    <state folder>/<pipeline>/_run/lock             held while the pipeline runs
    <state folder>/<pipeline>/_run/request.json     requests of other processes (requests.py)

`_run` is not a valid name of a stream, so checkpoint folders never conflict with it.
Rules:
1. A process is identified by its ID and start time, because IDs are reused.
2. A run whose process died without a final status is "killed", whatever the file contains.
3. Damaged files and files of other versions never raise.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from ottla.operations.pipeline_runs.snapshots import Snapshot, read_snapshot


class PipelineTopics(NamedTuple):
    """Topics and groups that a pipeline uses in its own cluster, `bootstrap`; "" or () if there are none."""

    bootstrap: str = ""
    reads: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()  # of subscribed topics
    writes: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()  # topics of other clusters, with their brokers
    groups: tuple[str, ...] = ()  # that show the progress of its queries
    dead_letters: str = ""
    late_rows: str = ""


def read_pipeline_topics(value: object) -> PipelineTopics | None:
    """From JSON, also of another version; None if it is missing. Invalid fields are ignored."""
    if not isinstance(value, Mapping):
        return None
    known: dict[str, Any] = {}
    for name, standard in PipelineTopics._field_defaults.items():
        given = value.get(name)
        if isinstance(standard, str):
            known[name] = given if isinstance(given, str) else ""
        else:
            known[name] = tuple(each for each in given if isinstance(each, str)) if isinstance(given, list) else ()
    return PipelineTopics(**known)


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # of a pipeline or a stream
RUN_FOLDER = "_run"
KILLED: Final = "killed"
STATUS_BYTES_MAX: Final = 4 << 20  # typical files have some kB
RUNS_MAX: Final = 1_000  # of one state folder
LIVE_STATES = ("starting", "running", "restarting", "stopping")

State = Literal["starting", "running", "restarting", "stopping", "stopped", "failed", "killed"]


class Cost(NamedTuple):
    """Since the start of the process; several pipelines in one process share it."""

    cpu_seconds: float = 0.0
    driver_bytes: int = 0
    java_bytes: int = 0
    workers_bytes: int = 0

    @property
    def memory(self) -> dict[str, int]:
        return {"driver": self.driver_bytes, "java": self.java_bytes, "workers": self.workers_bytes}


def read_cost(value: object) -> Cost | None:
    """From JSON, also of another version."""
    if not isinstance(value, Mapping):
        return None
    known: dict[str, Any] = {name: value[name] for name in Cost._fields if isinstance(value.get(name), int | float)}
    return Cost(**known)


class Status(NamedTuple):
    """One run of a pipeline."""

    name: str
    pid: int
    process_start: int  # in kernel ticks; 0 if unknown
    host: str
    state: State
    reason: str = ""
    file: str = ""
    master: str = ""
    started_ms: int = 0
    updated_ms: int = 0
    metrics_port: int | None = None
    queries: tuple[Snapshot, ...] = ()
    restarts: int = 0  # after failures
    last_failure: str = ""  # the cause of the last restart
    is_shared: bool = False  # other pipelines run in the same process
    cost: Cost | None = None
    places: PipelineTopics | None = None  # None: the run was of an older version

    @property
    def is_live(self) -> bool:
        return self.state in LIVE_STATES

    @property
    def is_here(self) -> bool:
        return self.host == socket.gethostname()

    def as_json(self) -> dict[str, object]:
        cost = None if self.cost is None else self.cost._asdict()
        places = None if self.places is None else self.places._asdict()
        queries = [query.as_json() for query in self.queries]
        return {**self._asdict(), "queries": queries, "cost": cost, "places": places}


def state_folder() -> Path:
    """The default folder of runs and checkpoints."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "ottla" / "pipelines"


def run_folder(state_folder: Path, name: str) -> Path:
    return state_folder / name / RUN_FOLDER


def list_runs(state_folder: Path) -> list[Status]:
    """The last run of each pipeline, by name; at most RUNS_MAX."""
    names = sorted(path.parent.parent.name for path in state_folder.glob(f"*/{RUN_FOLDER}/status.json"))
    found = (read_status(state_folder, name) for name in names[:RUNS_MAX])
    return sorted((status for status in found if status is not None), key=lambda status: status.name)


def read_status(state_folder: Path, name: str) -> Status | None:
    """The status of the last run; None if there is none that can be read."""
    if not NAME.fullmatch(name):
        return None
    try:
        with (run_folder(state_folder, name) / "status.json").open("rb") as file:
            text = file.read(STATUS_BYTES_MAX + 1)
        if len(text) > STATUS_BYTES_MAX:
            return None
        given = json.loads(text)
        known: dict[str, Any] = {key: given[key] for key in Status._fields if key in given}
        known["name"] = name  # the folder's name, whatever the file contains
        known["queries"] = tuple(read_snapshot(query) for query in known.get("queries", ()))
        known["cost"] = read_cost(known.get("cost"))
        known["places"] = read_pipeline_topics(known.get("places"))
        return correct_state(Status(**known))
    except (OSError, ValueError, TypeError, OverflowError, RecursionError):
        return None


def correct_state(status: Status) -> Status:
    """The status, with the state corrected if the process is gone."""
    if not status.is_live or not status.is_here or is_alive(status):
        return status
    return status._replace(
        state=KILLED, reason="the process ended without a final status; run the pipeline again to continue"
    )


def is_alive(status: Status) -> bool:
    """Whether the same process still runs."""
    if status.process_start:
        return process_start(status.pid) == status.process_start
    try:
        os.kill(status.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def process_start(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat: clock ticks since boot. None without such a process, or without /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the process name before it may contain any character
    is_gone = fields[0] in ("Z", "X")
    return None if is_gone else int(fields[19])


def read_points(state_folder: Path, name: str) -> list[dict[str, Any]]:
    """The batches of the last run, oldest first; incomplete lines are skipped."""
    points: list[dict[str, Any]] = []
    folder = run_folder(state_folder, name)
    for path in (folder / "progress.1.jsonl", folder / "progress.jsonl"):
        with suppress(FileNotFoundError), path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                with suppress(ValueError):
                    point = json.loads(line)
                    points += [point] if isinstance(point, dict) and "at_ms" in point and "query" in point else []
    return points


def now_ms() -> int:
    return time.time_ns() // 1_000_000
