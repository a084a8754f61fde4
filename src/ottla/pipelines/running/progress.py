"""How a query is doing: figures from the progress reports that Spark makes of every batch. Pure.

Spark leaves out what it does not know, writes numbers as text and rates as NaN or infinity: whatever is not a finite
number is "unknown" here (None), never a zero that looks like a measurement. So is the rate at which rows came into the
first batch, which has no batch before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ottla.operations.lag import PartitionLag
from ottla.operations.pipeline_runs.snapshots import Snapshot, StepCount, items_of, mapping, number, whole
from ottla.pipelines.running.growth import Growth
from ottla.pipelines.running.query_state import QueryState

Report = Mapping[str, object]  # as query.lastProgress is as JSON


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
        rows = whole(report.get("numInputRows")) or 0
        operators = items_of(report.get("stateOperators"))
        state_rows, state_bytes = _sum(operators, "numRowsTotal"), _sum(operators, "memoryUsedBytes")
        growth = self._growth.add(at_ms, state_rows, state_bytes) if operators else None
        self.snapshot = before._replace(
            at_ms=at_ms,
            batch=whole(report.get("batchId")) or 0,
            batches=before.batches + 1,
            rows=before.rows + rows,
            batch_rows=rows,
            rows_in_per_s=number(report.get("inputRowsPerSecond")) if before.batches else None,
            rows_done_per_s=number(report.get("processedRowsPerSecond")),
            batch_ms=whole(mapping(report.get("durationMs")).get("triggerExecution")),
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
    """Of the same steps, before and after a restart; nothing has happened to the pipeline in between. A sink that has
    refused rows only before is only there."""
    earlier = {(step.stream, step.number): step for step in before}
    there = {(step.stream, step.number) for step in now}
    added = [step.plus(earlier.get((step.stream, step.number))) for step in now]
    return (*added, *(step for key, step in earlier.items() if key not in there))


def added_records(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {stream: before.get(stream, 0) + now.get(stream, 0) for stream in {**before, **now}}


def is_batch(report: Report) -> bool:
    """Spark also reports, every ten seconds, that there was nothing to do."""
    return "addBatch" in mapping(report.get("durationMs"))


def lag_figures(lags: Sequence[int]) -> dict[str, Any]:
    """The fields of a snapshot; nothing is known without a partition."""
    if not lags:
        return dict.fromkeys(("lag", "lag_min", "lag_max", "lag_avg"))
    return {"lag": sum(lags), "lag_min": min(lags), "lag_max": max(lags), "lag_avg": sum(lags) / len(lags)}


def partition_lags(report: Report) -> list[int]:
    """What is in each partition beyond the end of the batch, of all sources that say what the latest is."""
    found: list[int] = []
    for source in map(mapping, items_of(report.get("sources"))):
        latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        lags = (
            PartitionLag(end.get(partition, 0), at) for partition, at in latest.items()
        )  # a new one: from its start
        found += [lag.records for lag in lags if lag.records is not None]
    return found


def _offsets(value: object) -> dict[tuple[str, str], int]:
    """{"topic": {"0": 5}} as {("topic", "0"): 5}; some sources hand it over as text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    found: dict[tuple[str, str], int] = {}
    for topic, partitions in mapping(value).items():
        for partition, offset in mapping(partitions).items():
            known = whole(offset)
            if known is not None:
                found[str(topic), str(partition)] = known
    return found


def _watermark_ms(report: Report) -> int | None:
    """Before the first row with a time Spark reports 1970, which is no watermark."""
    found = _time_ms(mapping(report.get("eventTime")).get("watermark"))
    return found or None


def _time_ms(text: object) -> int | None:
    try:
        return round(datetime.fromisoformat(str(text)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _sum(entries: Iterable[object], name: str) -> int:
    return sum(whole(mapping(entry).get(name)) or 0 for entry in entries)
