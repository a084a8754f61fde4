"""The state of a query that a runner returns from each poll."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ottla.operations.pipeline_runs.snapshots import StepCount

Progress = dict[str, Any]  # Spark's report after each batch


@dataclass
class QueryState:
    """News since the last poll, and the current state."""

    name: str
    progress: list[Progress]
    counts: list[StepCount]
    is_active: bool
    failure: str | None = None
    warnings: list[str] = field(default_factory=list)
    unsent: int = 0  # unsent dead letters
    doing: str = ""  # what it is waiting for, as text
    records: dict[str, int] = field(default_factory=dict)  # read by each source stream
