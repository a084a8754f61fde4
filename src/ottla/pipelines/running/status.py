"""Writes the files of a run; operations/pipeline_runs/statuses.py describes them."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ottla.operations.pipeline_runs.requests import clear_requests
from ottla.operations.pipeline_runs.snapshots import Snapshot
from ottla.operations.pipeline_runs.statuses import PipelineTopics, State, Status, now_ms, process_start, run_folder
from ottla.pipelines.model.pipeline import Pipeline
from ottla.pipelines.model.sink_specs import TopicSink
from ottla.pipelines.running.cost import CostMeter
from ottla.pipelines.sinks.staging import local_path

PROGRESS_BYTES_MAX = 4 << 20
OWNER_BYTES_MAX = 300


class AlreadyRunningError(Exception):
    """The text names the running process."""


class RunFolder:
    """The files of one run; `open` takes the lock, and the end of the process releases it.

    A separate checkpoint folder is locked as well: two runs with separate state must not share a checkpoint.
    """

    def __init__(self, state_folder: Path, status: Status, checkpoints: str | None = None) -> None:
        self.folder = run_folder(state_folder, status.name)
        self.status = status
        self._meter = CostMeter(status.pid)
        elsewhere = None if checkpoints is None else local_path(checkpoints)
        others = [] if elsewhere is None else [run_folder(elsewhere, status.name)]
        self._locked = list({path.resolve(): path for path in (self.folder, *others)}.values())
        self._locks: list[int] = []

    def __repr__(self) -> str:
        return f"RunFolder({self.folder}, {self.status.state})"

    def lock(self) -> None:
        """Exclude other runs of the pipeline until `close`. Raises AlreadyRunningError."""
        if self._locks:
            return
        try:
            for folder in self._locked:
                self._locks.append(_locked(folder, self.status))
        except BaseException:
            self.close()
            raise

    def open(self) -> None:
        """Raises AlreadyRunningError."""
        self.lock()
        clear_requests(self.folder)
        for old in (self._progress, self._older_progress):
            old.unlink(missing_ok=True)
        self.change("starting")

    def change(self, state: State, reason: str = "", queries: Iterable[Snapshot] | None = None) -> None:
        """Write the current state atomically."""
        kept = self.status.queries if queries is None else tuple(queries)
        self.status = self.status._replace(state=state, reason=reason, updated_ms=now_ms(), queries=kept)
        unfinished = self.folder / "status.json.new"
        unfinished.write_text(json.dumps(self.status.as_json()), encoding="utf-8")
        unfinished.replace(self.folder / "status.json")

    def restarted(self, restarts: int, failure: str) -> None:
        """Written with the next change."""
        self.status = self.status._replace(restarts=restarts, last_failure=failure)

    def look(self) -> None:
        """Measure the cost of the run; written with the next change."""
        self.status = self.status._replace(cost=self._meter.look() or self.status.cost)

    def add(self, snapshot: Snapshot) -> None:
        """Add a batch to the report."""
        with suppress(FileNotFoundError):
            if self._progress.stat().st_size > PROGRESS_BYTES_MAX:
                self._progress.replace(self._older_progress)
        with self._progress.open("a", encoding="utf-8") as file:
            file.write(json.dumps(snapshot.as_point()) + "\n")

    def close(self) -> None:
        while self._locks:
            os.close(self._locks.pop())

    @property
    def _progress(self) -> Path:
        return self.folder / "progress.jsonl"

    @property
    def _older_progress(self) -> Path:
        return self.folder / "progress.1.jsonl"


def new_status(name: str, file: str, master: str, metrics_port: int | None = None) -> Status:
    """This process, before it runs a pipeline."""
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


def places_of(pipeline: Pipeline) -> PipelineTopics:
    """Targets that readers of the status may want to open."""
    own, queries = pipeline.fields.bootstrap_servers, pipeline.queries()
    sources = [source for query in queries for source in pipeline.sources_of(query)]
    sinks = [sink for query in queries for sink in query.sinks if isinstance(sink, TopicSink)]
    read = [(source.bootstrap_servers or own, topic) for source in sources for topic in source.topic]
    written = [(sink.bootstrap_servers or own, sink.topic) for sink in sinks]
    return PipelineTopics(
        own,
        reads=_once(topic for servers, topic in read if servers == own),
        patterns=_once(source.pattern for source in sources if source.pattern),
        writes=_once(topic for servers, topic in written if servers == own),
        elsewhere=_once(f"{topic} ({servers})" for servers, topic in [*read, *written] if servers != own),
        groups=_once(pipeline.group_of(query) for query in queries),
        dead_letters=pipeline.dead_letter_topic or "",
        late_rows=pipeline.fields.late_rows or "",
    )


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _locked(folder: Path, status: Status) -> int:
    """The open lock file, which names its owner. Raises AlreadyRunningError."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"process {status.pid} on {status.host}".encode(), 0)
    except BlockingIOError:
        owner = os.pread(lock, OWNER_BYTES_MAX, 0).decode(errors="replace") or "another process"
        os.close(lock)
        cure = f"stop it first (ottla pipeline stop {status.name}; a notebook: stop() of what start() gave)"
        raise AlreadyRunningError(f"{status.name} is already run by {owner}: {cure}") from None
    except BaseException:
        os.close(lock)
        raise
    return lock
