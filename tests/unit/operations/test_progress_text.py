"""Snapshots in words."""

from __future__ import annotations

import pytest

from ottla.operations.pipeline_runs.progress_text import (
    age,
    batch_line,
    cost_line,
    end_line,
    growth_line,
    size,
    step_table,
)
from ottla.operations.pipeline_runs.snapshots import Snapshot, StepCount
from ottla.operations.pipeline_runs.statuses import Cost

FULL = Snapshot(
    "views", batch=4, batches=5, rows=12_000, batch_rows=1234, rows_in_per_s=100.4, rows_done_per_s=2000.0,
    batch_ms=617, lag=45, watermark_ms=1, watermark_age_ms=12_300, state_rows=7, state_bytes=18_808,
    steps=(
        StepCount("views", 1, "filter", 1234, 1000, 200, 0, 34, 1000),
        StepCount("views", 2, "window", 1000, 990, 0, 10, 0, 7),
    ),
)  # fmt: skip


def test_a_batch_is_one_line() -> None:
    assert batch_line(FULL) == (
        "views: batch 4  1,234 rows in 0.62 s  100/s in, 2,000/s done  lag 45  "
        "watermark 12.3 s ago  state 7 rows 18.8 kB"
    )


def test_what_is_unknown_is_not_mentioned() -> None:
    assert batch_line(Snapshot("q", batch=0, batch_rows=2)) == "q: batch 0  2 rows in ?  ? done"


def test_the_table_of_steps_adds_up_line_by_line() -> None:
    heading, first, second = step_table([FULL])
    assert heading.split() == ["stream", "step", "in", "kept", "filtered", "late", "dead", "rows", "made"]
    assert first.split() == ["views", "1", "filter", "1,234", "1,000", "200", "0", "34"]
    assert second.split() == ["views", "2", "window", "1,000", "990", "0", "10", "0", "7"]


def test_the_end_names_what_was_lost() -> None:
    assert end_line([FULL]) == "12,000 rows in 5 batches, 34 dead, 10 late"
    assert end_line([]) == "0 rows in 0 batches"


def test_what_queries_share_is_counted_once_and_each_step_names_its_query() -> None:
    """A person counts 12,000 records, however many queries look at them."""
    parse = StepCount("events", 1, "parse", 12_000, 11_900, 0, 0, 100, 11_900)
    quick = Snapshot("quick", batches=5, rows=12_000, records={"events": 12_000}, steps=(parse,))
    joined = Snapshot("joined", batches=4, rows=12_050, records={"events": 12_000, "users": 50}, steps=(parse,))
    assert end_line([quick, joined]) == "12,050 rows in 9 batches, 100 dead"
    heading, first, second = step_table([quick, joined])
    assert heading.split()[:3] == ["query", "stream", "step"]
    assert first.split()[:5] == ["quick", "events", "1", "parse", "12,000"]
    assert second.split()[:5] == ["joined", "events", "1", "parse", "12,000"]


def test_letters_that_are_not_sent_are_told() -> None:
    waiting = FULL._replace(unsent=34)
    assert batch_line(waiting).endswith("18.8 kB  34 dead letters to send")
    assert end_line([waiting]).endswith("34 dead, 10 late, 34 dead letters are not sent")


@pytest.mark.parametrize(
    ("ms", "text"),
    [(1500, "1.5 s"), (600_000, "10 min"), (7_300_000, "2 h"), (86_400_000 * 400, "400 d"), (-5_000, "-5.0 s")],
)
def test_ages_have_one_part(ms: int, text: str) -> None:
    assert age(ms) == text


def test_sizes_are_short() -> None:
    assert [size(n) for n in (0, 999, 18_808, 5e9)] == ["0 B", "999 B", "18.8 kB", "5.0 GB"]


def test_what_it_costs_and_how_the_state_grows() -> None:
    assert cost_line(Cost(65.6, 162_300_000, 761_900_000, 0)) == (
        "65.6 s of CPU; memory: Python 162.3 MB, Java 761.9 MB, Python workers 0 B"
    )
    now = Snapshot("main", state_rows_per_hour=-959.2, state_bytes_per_hour=1_200_000.0)
    assert growth_line(now) == "state -959 rows, +1.2 MB an hour"
    assert growth_line(Snapshot("main")) == ""
