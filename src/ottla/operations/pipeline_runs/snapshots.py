"""The progress of a pipeline query after a batch, as written to and read from the run folder. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeVar

T = TypeVar("T")
QUIET_MS = 10_000  # without a batch for so long a query is idle, and its last rates no longer apply


class StepCount(NamedTuple):
    """Row counts of one step. `made` is the output of a step that aggregates rows, otherwise equal to `kept`."""

    stream: str
    number: int
    step: str
    came: int
    kept: int
    filtered: int
    late: int
    dead: int
    made: int

    def plus(self, other: StepCount | None) -> StepCount:
        """The sum with the same step of an earlier run of the query."""
        if other is None:
            return self
        counts = [mine + theirs for mine, theirs in zip(self[3:], other[3:], strict=True)]
        return StepCount(self.stream, self.number, self.step, *counts)


class Snapshot(NamedTuple):
    """One query after its last batch; sums are those of this run. None means unknown."""

    query: str
    at_ms: int = 0  # start of the last batch
    batch: int = -1
    batches: int = 0
    rows: int = 0
    batch_rows: int = 0
    rows_in_per_s: float | None = None
    rows_done_per_s: float | None = None
    batch_ms: int | None = None
    lag: int | None = None  # records in the topics that no batch has read
    lag_min: int | None = None  # of one partition: Spark's min, max and avgOffsetsBehindLatest
    lag_max: int | None = None
    lag_avg: float | None = None
    watermark_ms: int | None = None
    watermark_age_ms: int | None = None  # relative to the clock at the start of the batch
    state_rows: int = 0
    state_bytes: int = 0
    state_rows_per_hour: float | None = None  # over the last hour
    state_bytes_per_hour: float | None = None
    late: int = 0
    steps: tuple[StepCount, ...] = ()
    is_active: bool = True
    error: str | None = None
    unsent: int = 0  # dead letters to send
    doing: str = ""  # the reason for waiting, if idle
    records: Mapping[str, int] = MappingProxyType({})  # read by source stream; several queries may share a stream

    @property
    def end_ms(self) -> int | None:
        """End of the last batch."""
        return self.at_ms + (self.batch_ms or 0) if self.batches else None

    def is_idle(self, now_ms: int) -> bool:
        return self.end_ms is not None and now_ms - self.end_ms > QUIET_MS

    def as_json(self) -> dict[str, object]:
        found: dict[str, object] = self._asdict()
        found["steps"] = [step._asdict() for step in self.steps]
        found["records"] = dict(self.records)
        return found

    def as_point(self) -> dict[str, object]:
        """The figures that change from batch to batch, for the history of a run."""
        found = self.as_json()
        return {name: found[name] for name in ("query", *POINT_FIELDS)}


POINT_FIELDS = (
    "at_ms", "batch", "batch_rows", "rows", "rows_in_per_s", "rows_done_per_s", "batch_ms", "lag",
    "watermark_age_ms", "state_rows", "state_bytes", "late",
)  # fmt: skip


def total_rows(snapshots: Iterable[Snapshot]) -> int:
    """Records read. Queries that share a source stream each read it; its records count once."""
    found: dict[str, int] = {}
    uncounted = 0
    for snapshot in snapshots:
        for stream, rows in snapshot.records.items():
            found[stream] = max(found.get(stream, 0), rows)
        uncounted += 0 if snapshot.records else snapshot.rows
    return sum(found.values()) + uncounted


def total_of(steps: Iterable[StepCount], outcome: Literal["dead", "late"]) -> int:
    """The same for dead or late rows: a step of a shared stream counts once."""
    found: dict[tuple[str, int], int] = {}
    for step in steps:
        key = step.stream, step.number
        found[key] = max(found.get(key, 0), getattr(step, outcome))
    return sum(found.values())


def downsample(points: Sequence[T], most: int) -> Sequence[T]:
    """At most about `most` points, evenly spaced, including the last one."""
    stride = -(-len(points) // most)
    return [*points[:-1:stride], points[-1]] if stride > 1 else points


def read_snapshot(value: object) -> Snapshot:
    """From JSON, also of another version: unknown fields are ignored."""
    given = mapping(value)
    known = {name: given[name] for name in Snapshot._fields if name in given and name not in ("steps", "records")}
    known["records"] = {stream: integer(rows) or 0 for stream, rows in mapping(given.get("records")).items()}
    steps = tuple(_read_step(entry) for entry in items_of(given.get("steps")))
    return Snapshot(**{"query": "?", **known, "steps": steps})  # type: ignore[arg-type]


def number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def integer(value: object) -> int | None:
    found = number(value)
    return None if found is None else int(found)


def mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def items_of(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []


def _read_step(value: object) -> StepCount:
    given = mapping(value)
    words = {name: str(given.get(name, "?")) for name in ("stream", "step")}
    counts = {name: integer(given.get(name)) or 0 for name in StepCount._fields if name not in words}
    return StepCount(**words, **counts)  # type: ignore[arg-type]
