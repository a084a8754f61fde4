"""What a runner tells of a query each time it is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ottla.operations.pipeline_runs.snapshots import StepCount

Progress = dict[str, Any]  # as Spark reports it after each batch


@dataclass
class QueryState:
    """What is new since the last time, and how the query stands."""

    name: str
    progress: list[Progress]
    counts: list[StepCount]
    is_active: bool
    failure: str | None = None
    warnings: list[str] = field(default_factory=list)
    unsent: int = 0  # dead letters that wait to be sent
    doing: str = ""  # what it waits for, in words
    records: dict[str, int] = field(default_factory=dict)  # read by each source stream
