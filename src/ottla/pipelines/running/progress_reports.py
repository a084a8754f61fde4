"""The progress reports of a query since the last call.

Spark keeps the last thousand, and PySpark converts all of them on every access. A query is polled several times per
second, so this module reads the newest first and stops at the first known one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from ottla.pipelines.running.query_state import Progress

Place = tuple[int, str]  # number and time of a report: both increase
NOTHING_SEEN: Place = (-1, "")


def new_reports(query: StreamingQuery, last_seen: Place) -> list[Progress]:
    """The reports after `last_seen`, in order."""
    found: list[Progress] = []
    for report in _newest_first(query, last_seen):
        if place_of(report) <= last_seen:
            break
        found.append(report)
    return found[::-1]


def place_of(report: Progress) -> Place:
    return report["batchId"], report["timestamp"]


def _newest_first(query: StreamingQuery, last_seen: Place) -> Iterator[Progress]:
    java: Any = getattr(query, "_jsq", None)
    if java is None:  # over Spark Connect, where reading the last one is cheaper than reading all
        last = query.lastProgress
        if last is None or (last["batchId"], last["timestamp"]) > last_seen:
            yield from (json.loads(report.json) for report in reversed(query.recentProgress))
        return
    reports = java.recentProgress()
    for number in reversed(range(len(reports))):
        yield json.loads(reports[number].json())
