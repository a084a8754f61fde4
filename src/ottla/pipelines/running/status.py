"""What a run leaves on disk, so that it can be seen and stopped from another terminal, and looked at afterwards.

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

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from ottla.pipelines.model.pipeline import NAME
from ottla.pipelines.running.cost import Cost, CostMeter, read_cost
from ottla.pipelines.running.progress import Snapshot, read_snapshot
from ottla.pipelines.running.requests import forget

RUN_FOLDER = "_run"
PROGRESS_BYTES_MAX = 4 << 20
KILLED: Final = "killed"
LIVE_STATES = ("starting", "running", "restarting", "stopping")

State = Literal["starting", "running", "restarting", "stopping", "stopped", "failed", "killed"]


class AlreadyRunningError(Exception):
    """The text says who runs it."""


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

    @property
    def is_live(self) -> bool:
        return self.state in LIVE_STATES

    @property
    def is_here(self) -> bool:
        return self.host == socket.gethostname()

    def as_json(self) -> dict[str, object]:
        cost = None if self.cost is None else self.cost._asdict()
        return {**self._asdict(), "queries": [query.as_json() for query in self.queries], "cost": cost}


class RunFolder:
    """The files of one run; `open` takes the lock, and the end of the process gives it back."""

    def __init__(self, state_folder: Path, status: Status) -> None:
        self.folder = run_folder(state_folder, status.name)
        self.status = status
        self._meter = CostMeter(status.pid)
        self._lock: int | None = None

    def __repr__(self) -> str:
        return f"RunFolder({self.folder}, {self.status.state})"

    def lock(self) -> None:
        """Nobody else runs the pipeline until `close`. Raises AlreadyRunningError."""
        if self._lock is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = None
            raise AlreadyRunningError(_who_runs(self.folder, self.status.name)) from None

    def open(self) -> None:
        """Raises AlreadyRunningError."""
        self.lock()
        forget(self.folder)
        for old in (self._progress, self._older_progress):
            old.unlink(missing_ok=True)
        self.change("starting")

    def change(self, state: State, reason: str = "", queries: Iterable[Snapshot] | None = None) -> None:
        """Write the present state: whoever reads sees the old file or the new one."""
        kept = self.status.queries if queries is None else tuple(queries)
        self.status = self.status._replace(state=state, reason=reason, updated_ms=now_ms(), queries=kept)
        unfinished = self.folder / "status.json.new"
        unfinished.write_text(json.dumps(self.status.as_json()), encoding="utf-8")
        unfinished.replace(self.folder / "status.json")

    def restarted(self, restarts: int, failure: str) -> None:
        """Told with the next change."""
        self.status = self.status._replace(restarts=restarts, last_failure=failure)

    def look(self) -> None:
        """What the run costs; told with the next change."""
        self.status = self.status._replace(cost=self._meter.look() or self.status.cost)

    def add(self, snapshot: Snapshot) -> None:
        """A batch, for the report."""
        with suppress(FileNotFoundError):
            if self._progress.stat().st_size > PROGRESS_BYTES_MAX:
                self._progress.replace(self._older_progress)
        with self._progress.open("a", encoding="utf-8") as file:
            file.write(json.dumps(snapshot.as_point()) + "\n")

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def _progress(self) -> Path:
        return self.folder / "progress.jsonl"

    @property
    def _older_progress(self) -> Path:
        return self.folder / "progress.1.jsonl"


def new_status(name: str, file: str, master: str, metrics_port: int | None = None) -> Status:
    """This process, about to run a pipeline."""
    pid = os.getpid()
    return Status(
        name,
        pid,
        process_start(pid) or 0,
        socket.gethostname(),
        "starting",
        file=file,
        master=master,
        started_ms=now_ms(),
        metrics_port=metrics_port,
    )


def state_folder() -> Path:
    """Where runs and checkpoints are kept unless told otherwise."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "ottla" / "pipelines"


def run_folder(state_folder: Path, name: str) -> Path:
    return state_folder / name / RUN_FOLDER


def list_runs(state_folder: Path) -> list[Status]:
    """The last run of every pipeline, by name."""
    found = (
        read_status(state_folder, path.parent.parent.name) for path in state_folder.glob(f"*/{RUN_FOLDER}/status.json")
    )
    return sorted((status for status in found if status is not None), key=lambda status: status.name)


def read_status(state_folder: Path, name: str) -> Status | None:
    """None where there was no run, or nothing readable is left of it."""
    if not NAME.fullmatch(name):
        return None
    try:
        given = json.loads((run_folder(state_folder, name) / "status.json").read_text(encoding="utf-8"))
        known: dict[str, Any] = {key: given[key] for key in Status._fields if key in given}
        known["queries"] = tuple(read_snapshot(query) for query in known.get("queries", ()))
        known["cost"] = read_cost(known.get("cost"))
        status = Status(**known)
    except (OSError, ValueError, TypeError):
        return None
    return judged(status)


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


def _who_runs(folder: Path, name: str) -> str:
    try:
        status = json.loads((folder / "status.json").read_text(encoding="utf-8"))
        who = f"process {status['pid']} on {status['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        who = "another process"
    return f"{name} is already run by {who}: stop it first (ottla pipeline stop {name})"
