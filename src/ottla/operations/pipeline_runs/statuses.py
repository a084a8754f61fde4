"""What a run of a pipeline leaves on disk, read from outside: by another terminal or a page, now or afterwards.

    <state folder>/<pipeline>/_run/status.json      the present state, replaced as a whole
    <state folder>/<pipeline>/_run/progress.jsonl   one line a batch; when full it becomes progress.1.jsonl
    <state folder>/<pipeline>/_run/lock             held while the pipeline runs
    <state folder>/<pipeline>/_run/request.json     what another process asks of it (requests.py)

No stream can be called `_run`: the folders of checkpoints beside it are safe.

Rules:
1. A process is known by its id and by the time at which it started: ids are used again.
2. Whoever died without saying so is "killed", whatever the file says.
3. Files of another version, or damaged ones, are no reason to fail.
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

from ottla.operations.pipeline_runs.places import Places, read_places
from ottla.operations.pipeline_runs.snapshots import Snapshot, read_snapshot

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # of a pipeline, or of a stream in it
RUN_FOLDER = "_run"
KILLED: Final = "killed"
STATUS_BYTES_MAX: Final = 4 << 20  # ours have some kB
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
    """From its JSON form, also that of another version."""
    if not isinstance(value, Mapping):
        return None
    known: dict[str, Any] = {name: value[name] for name in Cost._fields if isinstance(value.get(name), int | float)}
    return Cost(**known)


class Status(NamedTuple):
    """One run of a pipeline."""

    name: str
    pid: int
    process_start: int  # as the kernel counts it; 0 where it does not tell
    host: str
    state: State
    reason: str = ""
    file: str = ""
    master: str = ""
    started_ms: int = 0
    updated_ms: int = 0
    metrics_port: int | None = None
    queries: tuple[Snapshot, ...] = ()
    restarts: int = 0  # how often it was started again after a failure
    last_failure: str = ""  # the newest of those
    is_shared: bool = False  # other pipelines run in the same process
    cost: Cost | None = None
    places: Places | None = None  # None: the run was one of an older version

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
    """Where runs and checkpoints are kept unless told otherwise."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "ottla" / "pipelines"


def run_folder(state_folder: Path, name: str) -> Path:
    return state_folder / name / RUN_FOLDER


def list_runs(state_folder: Path) -> list[Status]:
    """The last run of every pipeline, by name; the first RUNS_MAX of them."""
    names = sorted(path.parent.parent.name for path in state_folder.glob(f"*/{RUN_FOLDER}/status.json"))
    found = (read_status(state_folder, name) for name in names[:RUNS_MAX])
    return sorted((status for status in found if status is not None), key=lambda status: status.name)


def read_status(state_folder: Path, name: str) -> Status | None:
    """None where there was no run, or nothing readable is left of it."""
    if not NAME.fullmatch(name):
        return None
    try:
        with (run_folder(state_folder, name) / "status.json").open("rb") as file:
            text = file.read(STATUS_BYTES_MAX + 1)
        if len(text) > STATUS_BYTES_MAX:
            return None
        given = json.loads(text)
        known: dict[str, Any] = {key: given[key] for key in Status._fields if key in given}
        known["name"] = name  # that of the folder, whatever the file says
        known["queries"] = tuple(read_snapshot(query) for query in known.get("queries", ()))
        known["cost"] = read_cost(known.get("cost"))
        known["places"] = read_places(known.get("places"))
        return judged(Status(**known))
    except (OSError, ValueError, TypeError, OverflowError, RecursionError):
        return None


def judged(status: Status) -> Status:
    """The state as it really is."""
    if not status.is_live or not status.is_here or is_alive(status):
        return status
    return status._replace(state=KILLED, reason="the process ended without a word; run it again and it goes on")


def is_alive(status: Status) -> bool:
    """Is it still the same process?"""
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
    """Field 22 of /proc/PID/stat: clock ticks since boot. None where there is no such process, or no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    is_gone = fields[0] in ("Z", "X")
    return None if is_gone else int(fields[19])


def read_points(state_folder: Path, name: str) -> list[dict[str, Any]]:
    """The course of the last run, oldest batch first; torn lines are left out."""
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
