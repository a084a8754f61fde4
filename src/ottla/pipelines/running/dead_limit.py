"""The limit for dead rows of a run, and when to warn about them. Pure.

A run fails if the dead share of a query's rows exceeds `max_dead`, or without it, if all rows are dead. This is checked
at the end of a run, and with `max_dead` also during the run, from ROWS_MIN rows on: the first records are not
representative. A warning is issued once if UNUSUAL_SHARE or more of the rows are dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.operations.pipeline_runs.snapshots import Snapshot, total_of, total_rows

ROWS_MIN = 100
UNUSUAL_SHARE = 0.1


class DeadLimit(NamedTuple):
    """The limit of a pipeline. `letters` is the topic with the reasons."""

    share_max: float | None = None
    letters: str | None = None

    def problem(self, snapshots: Iterable[Snapshot], is_over: bool) -> str | None:
        """Why the run has failed, or None."""
        for query, rows, dead in _deaths(snapshots):
            if self.share_max is None:
                if is_over and dead == rows:
                    return f"{query}: all {rows:,} rows are dead{self._where()}"
            elif dead > rows * self.share_max and (is_over or rows >= ROWS_MIN):
                allowed = f"more than max_dead: {percent(self.share_max)} allows"
                return f"{query}: {_share(rows, dead)}, {allowed}{self._where()}"
        return None

    def warnings(self, snapshots: Iterable[Snapshot], is_over: bool) -> Iterator[tuple[str, str]]:
        """Queries with unusually many dead rows, each with a sentence."""
        for query, rows, dead in _deaths(snapshots):
            if dead >= rows * UNUSUAL_SHARE and (is_over or rows >= ROWS_MIN):
                yield query, f"{query}: {_share(rows, dead)}{self._where()}"

    def _where(self) -> str:
        return f"; topic {self.letters} has the reasons" if self.letters else ""


def percent(share: float) -> str:
    return f"{share * 100:.3g} %"


def _deaths(snapshots: Iterable[Snapshot]) -> Iterator[tuple[str, int, int]]:
    """Query, rows, dead rows; a step that makes several rows of one may kill more than were read."""
    for snapshot in snapshots:
        rows, dead = total_rows([snapshot]), total_of(snapshot.steps, "dead")
        if dead:
            yield snapshot.query, rows, min(dead, rows)


def _share(rows: int, dead: int) -> str:
    return f"{dead:,} of {rows:,} rows are dead ({percent(dead / max(rows, 1))})"
