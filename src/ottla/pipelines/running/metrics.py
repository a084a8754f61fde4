"""The figures of a run for Prometheus, on 127.0.0.1 only: the same as in the terminal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from ottla.metrics.prometheus import CONTENT_TYPE, Family, Sample, render_families
from ottla.operations.pipeline_runs.statuses import Status

HOST = "127.0.0.1"
PREFIX = "ottla_pipeline_"
# name, kind, help, field of a snapshot, factor
FIGURES = (
    ("rows_total", "counter", "Rows read from the sources.", "rows", 1),
    ("batches_total", "counter", "Batches done.", "batches", 1),
    ("late_rows_total", "counter", "Rows that came after the watermark.", "late", 1),
    ("rows_in_per_second", "gauge", "Rows that arrived, per second.", "rows_in_per_s", 1),
    ("rows_done_per_second", "gauge", "Rows processed per second of the last batch.", "rows_done_per_s", 1),
    ("lag_records", "gauge", "Records in the topics that no batch has taken yet.", "lag", 1),
    ("lag_records_min", "gauge", "The same, of the partition that is least behind.", "lag_min", 1),
    ("lag_records_max", "gauge", "The same, of the partition that is most behind.", "lag_max", 1),
    ("lag_records_avg", "gauge", "The same, of a partition on average.", "lag_avg", 1),
    ("batch_seconds", "gauge", "How long the last batch took.", "batch_ms", 0.001),
    ("last_batch_timestamp_seconds", "gauge", "When the last batch was done.", "end_ms", 0.001),
    ("watermark_timestamp_seconds", "gauge", "The watermark.", "watermark_ms", 0.001),
    ("state_rows", "gauge", "Rows in the state stores.", "state_rows", 1),
    ("state_bytes", "gauge", "Memory of the state stores.", "state_bytes", 1),
    ("state_rows_per_hour", "gauge", "Growth of the state, over the last hour.", "state_rows_per_hour", 1),
    ("state_bytes_per_hour", "gauge", "The same, of its memory.", "state_bytes_per_hour", 1),
    ("dead_letters_waiting", "gauge", "Dead letters that could not be sent yet.", "unsent", 1),
    ("up", "gauge", "Is the query running?", "is_active", 1),
)
FATES = ("kept", "filtered", "late", "dead")

Source = Callable[[], Sequence[Status]]


class MetricsServer:
    """Serves until closed; without a port it does nothing. `source`: the runs, may be set later."""

    def __init__(self, port: int | None) -> None:
        self.source: Source = list
        self._server = _Server((HOST, port), self.text) if port else None

    def __repr__(self) -> str:
        return f"MetricsServer({self._server.server_address if self._server else 'off'})"

    def __enter__(self) -> Self:
        if self._server:
            threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()

    def text(self) -> str:
        return "".join(render_families(families(self.source())))


def families(runs: Sequence[Status]) -> Iterator[Family]:
    """All known metrics; unknown values have no sample."""
    for name, kind, words, field, factor in FIGURES:
        samples = [
            Sample((("pipeline", run.name), ("query", snapshot.query)), value * factor)
            for run in runs
            for snapshot in run.queries
            if (value := getattr(snapshot, field)) is not None
        ]
        yield Family(PREFIX + name, kind, words, samples)
    yield _steps(runs)
    yield from _of_runs(runs)


def _of_runs(runs: Sequence[Status]) -> Iterator[Family]:
    """Includes a failed pipeline while others of the process continue."""
    restarts = [Sample((("pipeline", run.name),), run.restarts) for run in runs]
    yield Family(f"{PREFIX}restarts_total", "counter", "How often it was started again after a failure.", restarts)
    failed = [Sample((("pipeline", run.name),), run.state in ("failed", "restarting")) for run in runs]
    yield Family(f"{PREFIX}failed", "gauge", "It has failed, or waits to be started again.", failed)
    costs = [(run.name, run.cost) for run in runs if run.cost is not None]
    spent = [Sample((("pipeline", name),), cost.cpu_seconds) for name, cost in costs]
    yield Family(f"{PREFIX}cpu_seconds_total", "counter", "Processor time of its process and all below it.", spent)
    memory = [
        Sample((("pipeline", name), ("process", process)), used)
        for name, cost in costs
        for process, used in cost.memory.items()
    ]
    yield Family(f"{PREFIX}memory_bytes", "gauge", "Resident memory of Python, Java and Python workers.", memory)


def _steps(runs: Sequence[Status]) -> Family:
    samples: list[Sample] = []
    counts = [(run.name, query.query, step) for run in runs for query in run.queries for step in query.steps]
    for pipeline, query, step in counts:
        labels = (
            ("pipeline", pipeline), ("query", query), ("stream", step.stream),
            ("number", str(step.number)), ("step", step.step),
        )  # fmt: skip
        samples += [Sample((*labels, ("fate", fate)), getattr(step, fate)) for fate in FATES]
    return Family(f"{PREFIX}step_rows_total", "counter", "What became of the rows of each step.", samples)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], text: Callable[[], str]) -> None:
        super().__init__(address, _Handler)
        self.text = text


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10

    def do_GET(self) -> None:
        """/metrics, and nothing else."""
        if self.path.partition("?")[0] not in ("/", "/metrics"):
            self.send_error(404)
            return
        body = self.server.text().encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # # noqa: A002 (the base class's name)
        """Request logs would disturb the pipeline's terminal output."""
