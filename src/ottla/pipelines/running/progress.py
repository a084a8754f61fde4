"""How a query is doing: figures from the progress reports that Spark makes of every batch. Pure.

Spark leaves out what it does not know, writes numbers as text and rates as NaN or infinity: whatever is not a finite
number is "unknown" here (None), never a zero that looks like a measurement. So is the rate at which rows came into the
first batch, which has no batch before it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from ottla.operations.lag import PartitionLag
from ottla.pipelines.running.accounting import StepCount
from ottla.pipelines.running.growth import Growth
from ottla.pipelines.running.query_state import QueryState

QUIET_MS = 10_000  # without a batch for so long a query is idle, and its last rates say nothing any more

Report = Mapping[str, object]  # as query.lastProgress is as JSON


class Snapshot(NamedTuple):
    """One query after its last batch; sums are those of this run. None is what nobody knows."""

    query: str
    at_ms: int = 0  # when the last batch began
    batch: int = -1
    batches: int = 0
    rows: int = 0
    batch_rows: int = 0
    rows_in_per_s: float | None = None
    rows_done_per_s: float | None = None
    batch_ms: int | None = None
    lag: int | None = None  # records in the topics that no batch has taken yet
    lag_min: int | None = None  # of one partition, as Spark's own source says it: min, max, avgOffsetsBehindLatest
    lag_max: int | None = None
    lag_avg: float | None = None
    watermark_ms: int | None = None
    watermark_age_ms: int | None = None  # against the clock, when the batch began
    state_rows: int = 0
    state_bytes: int = 0
    state_rows_per_hour: float | None = None  # over the last hour
    state_bytes_per_hour: float | None = None
    late: int = 0
    steps: tuple[StepCount, ...] = ()
    is_active: bool = True
    error: str | None = None
    unsent: int = 0  # dead letters that wait to be sent
    doing: str = ""  # what it waits for, where nothing happens
    records: Mapping[str, int] = MappingProxyType({})  # read by each source stream; a stream may belong to many queries

    @property
    def end_ms(self) -> int | None:
        """When the last batch was done."""
        return self.at_ms + (self.batch_ms or 0) if self.batches else None

    def is_idle(self, now_ms: int) -> bool:
        return self.end_ms is not None and now_ms - self.end_ms > QUIET_MS

    def as_json(self) -> dict[str, object]:
        found: dict[str, object] = self._asdict()
        found["steps"] = [step._asdict() for step in self.steps]
        found["records"] = dict(self.records)
        return found

    def as_point(self) -> dict[str, object]:
        """For the course of a run: what changes from batch to batch."""
        found = self.as_json()
        return {name: found[name] for name in ("query", *POINT_FIELDS)}


POINT_FIELDS = (
    "at_ms", "batch", "batch_rows", "rows", "rows_in_per_s", "rows_done_per_s", "batch_ms", "lag",
    "watermark_age_ms", "state_rows", "state_bytes", "late",
)  # fmt: skip


class Tracker:
    """Adds up the reports of one query; `before` is what it did until it was started again."""

    def __init__(self, query: str, before: Snapshot | None = None) -> None:
        self.before = before or Snapshot(query)
        self.snapshot = self.before._replace(is_active=True, error=None, unsent=0, doing="")
        self._growth = Growth()
        if self.before.state_rows:
            self._growth.add(self.before.at_ms, self.before.state_rows, self.before.state_bytes)

    def __repr__(self) -> str:
        now = self.snapshot
        return f"Tracker({now.query}, batch {now.batch}, {now.rows} rows)"

    def add(self, report: Report) -> Snapshot | None:
        """The new snapshot; None for a report of a batch that had nothing to do."""
        if not is_batch(report):
            return None
        before = self.snapshot
        at_ms = _time_ms(report.get("timestamp")) or before.at_ms
        watermark_ms = _watermark_ms(report)
        rows = _whole(report.get("numInputRows")) or 0
        operators = _list(report.get("stateOperators"))
        state_rows, state_bytes = _sum(operators, "numRowsTotal"), _sum(operators, "memoryUsedBytes")
        growth = self._growth.add(at_ms, state_rows, state_bytes) if operators else None
        self.snapshot = before._replace(
            at_ms=at_ms,
            batch=_whole(report.get("batchId")) or 0,
            batches=before.batches + 1,
            rows=before.rows + rows,
            batch_rows=rows,
            rows_in_per_s=number(report.get("inputRowsPerSecond")) if before.batches else None,
            rows_done_per_s=number(report.get("processedRowsPerSecond")),
            batch_ms=_whole(_mapping(report.get("durationMs")).get("triggerExecution")),
            **lag_figures(partition_lags(report)),
            watermark_ms=watermark_ms,
            watermark_age_ms=at_ms - watermark_ms if watermark_ms is not None else None,
            state_rows=state_rows,
            state_bytes=state_bytes,
            state_rows_per_hour=growth[0] if growth else None,
            state_bytes_per_hour=growth[1] if growth else None,
            late=before.late + _sum(operators, "numRowsDroppedByWatermark"),
        )
        return self.snapshot

    def settle(self, state: QueryState) -> Snapshot:
        """What the runner knows beside the reports."""
        self.snapshot = self.snapshot._replace(
            steps=added_steps(self.before.steps, state.counts),
            is_active=state.is_active,
            error=state.failure,
            unsent=state.unsent,
            doing=state.doing,
            records=added_records(self.before.records, state.records),
        )
        return self.snapshot


def added_steps(before: Sequence[StepCount], now: Sequence[StepCount]) -> tuple[StepCount, ...]:
    """Of the same steps, before and after a restart; nothing has happened to the pipeline in between."""
    earlier = {(step.stream, step.number): step for step in before}
    return tuple(step.plus(earlier.get((step.stream, step.number))) for step in now) or tuple(before)


def added_records(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {stream: before.get(stream, 0) + now.get(stream, 0) for stream in {**before, **now}}


def total_rows(snapshots: Iterable[Snapshot]) -> int:
    """Records that were read. Queries that share a source stream read it each, and its records count once."""
    found: dict[str, int] = {}
    uncounted = 0
    for snapshot in snapshots:
        for stream, rows in snapshot.records.items():
            found[stream] = max(found.get(stream, 0), rows)
        uncounted += 0 if snapshot.records else snapshot.rows
    return sum(found.values()) + uncounted


def total_of(steps: Iterable[StepCount], fate: Literal["dead", "late"]) -> int:
    """The same for what became of rows: a step of a shared stream counts once."""
    found: dict[tuple[str, int], int] = {}
    for step in steps:
        key = step.stream, step.number
        found[key] = max(found.get(key, 0), getattr(step, fate))
    return sum(found.values())


def read_snapshot(value: object) -> Snapshot:
    """From its JSON form, also that of another version: what is unknown here is left out."""
    given = _mapping(value)
    known = {name: given[name] for name in Snapshot._fields if name in given and name not in ("steps", "records")}
    known["records"] = {stream: _whole(rows) or 0 for stream, rows in _mapping(given.get("records")).items()}
    steps = tuple(_read_step(entry) for entry in _list(given.get("steps")))
    return Snapshot(**{"query": "?", **known, "steps": steps})  # type: ignore[arg-type]


def is_batch(report: Report) -> bool:
    """Spark also reports, every ten seconds, that there was nothing to do."""
    return "addBatch" in _mapping(report.get("durationMs"))


def lag_figures(lags: Sequence[int]) -> dict[str, Any]:
    """The fields of a snapshot; nothing is known without a partition."""
    if not lags:
        return dict.fromkeys(("lag", "lag_min", "lag_max", "lag_avg"))
    return {"lag": sum(lags), "lag_min": min(lags), "lag_max": max(lags), "lag_avg": sum(lags) / len(lags)}


def partition_lags(report: Report) -> list[int]:
    """What is in each partition beyond the end of the batch, of all sources that say what the latest is."""
    found: list[int] = []
    for source in map(_mapping, _list(report.get("sources"))):
        latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        lags = (
            PartitionLag(end.get(partition, 0), at) for partition, at in latest.items()
        )  # a new one: from its start
        found += [lag.records for lag in lags if lag.records is not None]
    return found


def number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _offsets(value: object) -> dict[tuple[str, str], int]:
    """{"topic": {"0": 5}} as {("topic", "0"): 5}; some sources hand it over as text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    found: dict[tuple[str, str], int] = {}
    for topic, partitions in _mapping(value).items():
        for partition, offset in _mapping(partitions).items():
            whole = _whole(offset)
            if whole is not None:
                found[str(topic), str(partition)] = whole
    return found


def _watermark_ms(report: Report) -> int | None:
    """Before the first row with a time Spark reports 1970, which is no watermark."""
    found = _time_ms(_mapping(report.get("eventTime")).get("watermark"))
    return found or None


def _time_ms(text: object) -> int | None:
    try:
        return round(datetime.fromisoformat(str(text)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _whole(value: object) -> int | None:
    found = number(value)
    return None if found is None else int(found)


def _sum(entries: Iterable[object], name: str) -> int:
    return sum(_whole(_mapping(entry).get(name)) or 0 for entry in entries)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []


def _read_step(value: object) -> StepCount:
    given = _mapping(value)
    words = {name: str(given.get(name, "?")) for name in ("stream", "step")}
    counts = {name: _whole(given.get(name)) or 0 for name in StepCount._fields if name not in words}
    return StepCount(**words, **counts)  # type: ignore[arg-type]
