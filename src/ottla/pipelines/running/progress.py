"""Figures of a query from Spark's progress reports of every batch. Pure.

Spark omits unknown values, and writes numbers as text and rates as NaN or infinity. Any value that is not a finite
number is unknown (None), never zero. So is the input rate of the first batch, which has no previous batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ottla.operations.lag import PartitionLag
from ottla.operations.pipeline_runs.snapshots import Snapshot, StepCount, integer, items_of, mapping, number
from ottla.pipelines.running.growth import Growth
from ottla.pipelines.running.query_state import QueryState

Report = Mapping[str, object]  # the JSON form of query.lastProgress


class Tracker:
    """Sums the reports of one query; `before` holds the sums before its restart."""

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
        """The new snapshot; None for a report of an idle batch."""
        if not is_batch(report):
            return None
        before = self.snapshot
        at_ms = _time_ms(report.get("timestamp")) or before.at_ms
        watermark_ms = _watermark_ms(report)
        rows = integer(report.get("numInputRows")) or 0
        operators = items_of(report.get("stateOperators"))
        state_rows, state_bytes = _sum(operators, "numRowsTotal"), _sum(operators, "memoryUsedBytes")
        growth = self._growth.add(at_ms, state_rows, state_bytes) if operators else None
        self.snapshot = before._replace(
            at_ms=at_ms,
            batch=integer(report.get("batchId")) or 0,
            batches=before.batches + 1,
            rows=before.rows + rows,
            batch_rows=rows,
            rows_in_per_s=number(report.get("inputRowsPerSecond")) if before.batches else None,
            rows_done_per_s=number(report.get("processedRowsPerSecond")),
            batch_ms=integer(mapping(report.get("durationMs")).get("triggerExecution")),
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
        """Add the runner's information."""
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
    """The same steps before and after a restart of an unchanged pipeline. A sink that has rejected rows only before
    appears only there."""
    earlier = {(step.stream, step.number): step for step in before}
    there = {(step.stream, step.number) for step in now}
    added = [step.plus(earlier.get((step.stream, step.number))) for step in now]
    return (*added, *(step for key, step in earlier.items() if key not in there))


def added_records(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {stream: before.get(stream, 0) + now.get(stream, 0) for stream in {**before, **now}}


def is_batch(report: Report) -> bool:
    """Every ten seconds Spark also reports that it was idle."""
    return "addBatch" in mapping(report.get("durationMs"))


def lag_figures(lags: Sequence[int]) -> dict[str, Any]:
    """The lag fields of a snapshot; unknown without partitions."""
    if not lags:
        return dict.fromkeys(("lag", "lag_min", "lag_max", "lag_avg"))
    return {"lag": sum(lags), "lag_min": min(lags), "lag_max": max(lags), "lag_avg": sum(lags) / len(lags)}


def partition_lags(report: Report) -> list[int]:
    """The records of each partition after the end of the batch, for all sources that report their latest offsets."""
    found: list[int] = []
    for source in map(mapping, items_of(report.get("sources"))):
        latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        lags = (
            PartitionLag(end.get(partition, 0), at) for partition, at in latest.items()
        )  # a new partition: from its start
        found += [lag.records for lag in lags if lag.records is not None]
    return found


def _offsets(value: object) -> dict[tuple[str, str], int]:
    """{"topic": {"0": 5}} as {("topic", "0"): 5}; some sources return it as text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    found: dict[tuple[str, str], int] = {}
    for topic, partitions in mapping(value).items():
        for partition, offset in mapping(partitions).items():
            known = integer(offset)
            if known is not None:
                found[str(topic), str(partition)] = known
    return found


def _watermark_ms(report: Report) -> int | None:
    """Before the first row with a time Spark reports 1970, which is not a watermark."""
    found = _time_ms(mapping(report.get("eventTime")).get("watermark"))
    return found or None


def _time_ms(text: object) -> int | None:
    try:
        return round(datetime.fromisoformat(str(text)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _sum(entries: Iterable[object], name: str) -> int:
    return sum(integer(mapping(entry).get(name)) or 0 for entry in entries)
