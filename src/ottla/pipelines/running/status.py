"""The files of a run, written by whoever runs the pipeline; operations/pipeline_runs/statuses.py says what they are."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ottla.operations.pipeline_runs.places import Places
from ottla.operations.pipeline_runs.requests import forget
from ottla.operations.pipeline_runs.snapshots import Snapshot
from ottla.operations.pipeline_runs.statuses import State, Status, now_ms, process_start, run_folder
from ottla.pipelines.model.pipeline import Pipeline
from ottla.pipelines.model.sinks import TopicSink
from ottla.pipelines.running.cost import CostMeter

PROGRESS_BYTES_MAX = 4 << 20


class AlreadyRunningError(Exception):
    """The text says who runs it."""


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


def places_of(pipeline: Pipeline) -> Places:
    """What whoever looks at the run may want to look at, too."""
    own, queries = pipeline.head.bootstrap_servers, pipeline.queries()
    sources = [source for query in queries for source in pipeline.sources_of(query)]
    sinks = [sink for query in queries for sink in query.sinks if isinstance(sink, TopicSink)]
    read = [(source.bootstrap_servers or own, topic) for source in sources for topic in source.topic]
    written = [(sink.bootstrap_servers or own, sink.topic) for sink in sinks]
    return Places(
        own,
        reads=_once(topic for servers, topic in read if servers == own),
        patterns=_once(source.pattern for source in sources if source.pattern),
        writes=_once(topic for servers, topic in written if servers == own),
        elsewhere=_once(f"{topic} ({servers})" for servers, topic in [*read, *written] if servers != own),
        groups=_once(pipeline.group_of(query) for query in queries),
        dead_letters=pipeline.dead_letter_topic or "",
        late_rows=pipeline.head.late_rows or "",
    )


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _who_runs(folder: Path, name: str) -> str:
    try:
        status = json.loads((folder / "status.json").read_text(encoding="utf-8"))
        who = f"process {status['pid']} on {status['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        who = "another process"
    return f"{name} is already run by {who}: stop it first (ottla pipeline stop {name})"
