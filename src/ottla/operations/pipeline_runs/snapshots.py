"""How a query of a pipeline was doing after a batch: the figures that a run leaves behind, written and read. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeVar

T = TypeVar("T")
QUIET_MS = 10_000  # without a batch for so long a query is idle, and its last rates say nothing any more


class StepCount(NamedTuple):
    """Rows of one step. `made` is what came out of a step that makes new rows of many, else the same as kept."""

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
        """The same step, in two runs of its query."""
        if other is None:
            return self
        counts = [mine + theirs for mine, theirs in zip(self[3:], other[3:], strict=True)]
        return StepCount(self.stream, self.number, self.step, *counts)


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


def thinned(points: Sequence[T], most: int) -> Sequence[T]:
    """About so many at most, evenly taken, the last one always among them."""
    stride = -(-len(points) // most)
    return [*points[:-1:stride], points[-1]] if stride > 1 else points


def read_snapshot(value: object) -> Snapshot:
    """From its JSON form, also that of another version: what is unknown here is left out."""
    given = mapping(value)
    known = {name: given[name] for name in Snapshot._fields if name in given and name not in ("steps", "records")}
    known["records"] = {stream: whole(rows) or 0 for stream, rows in mapping(given.get("records")).items()}
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


def whole(value: object) -> int | None:
    found = number(value)
    return None if found is None else int(found)


def mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def items_of(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []


def _read_step(value: object) -> StepCount:
    given = mapping(value)
    words = {name: str(given.get(name, "?")) for name in ("stream", "step")}
    counts = {name: whole(given.get(name)) or 0 for name in StepCount._fields if name not in words}
    return StepCount(**words, **counts)  # type: ignore[arg-type]
