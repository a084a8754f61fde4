"""Progress reports are read once: a poll costs the same after a thousand batches as after one."""

from __future__ import annotations

import json
from typing import Any, cast

from ottla.pipelines.running.progress_reports import NOTHING_SEEN, new_reports, place_of


class Report:
    """A Java report that counts how often its text is read."""

    def __init__(self, number: int, second: int = 0) -> None:
        self.text = json.dumps({"batchId": number, "timestamp": f"2026-01-01T00:00:{second:02}.000Z"})
        self.reads = 0

    def json(self) -> str:
        self.reads += 1
        return self.text


class Query:
    """The used part of Spark's StreamingQuery; `_jsq` is the Java query."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self._jsq = self

    def recentProgress(self) -> list[Report]:  # noqa: N802 (Spark's)
        return self.reports


def test_a_poll_reads_only_the_reports_that_it_has_not_seen() -> None:
    query = Query()
    spark_query = cast("Any", query)
    query.reports = [Report(number) for number in range(1000)]
    seen = new_reports(spark_query, NOTHING_SEEN)
    assert [each["batchId"] for each in seen] == list(range(1000))
    for _ in range(5):
        assert new_reports(spark_query, place_of(seen[-1])) == []
    query.reports.append(Report(1000))
    assert [each["batchId"] for each in new_reports(spark_query, place_of(seen[-1]))] == [1000]
    assert [each.reads for each in query.reports[:999]] == [1] * 999
    assert query.reports[999].reads == 7  # the newest known one, at each of the later polls


def test_a_report_that_there_was_nothing_to_do_is_a_new_one() -> None:
    """Spark gives it the number of the next batch."""
    query = Query()
    query.reports = [Report(1, 1), Report(2, 2), Report(2, 12)]
    news = new_reports(cast("Any", query), place_of({"batchId": 2, "timestamp": "2026-01-01T00:00:02.000Z"}))
    assert [each["timestamp"] for each in news] == ["2026-01-01T00:00:12.000Z"]
