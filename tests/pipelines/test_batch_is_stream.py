"""The same steps over a batch and over a stream give the same rows, and those that plain Python computes.

Rows arrive out of order, but within the watermark; the last one lies far ahead, and the watermark passes all others.
A total is told again at every change, so the last row of each key counts.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.frames import living, table, through
from tests.pipelines.streams import END, START, Rows, at, run, streaming

from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.step_table import STEPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id bigint, user string, page string, at timestamp, ms double"
WATERMARK = {"watermark": {"time": "at", "delay": "30 seconds"}}
MINUTE = timedelta(minutes=1)

Event = tuple[int, str | None, str, datetime, float]
Compared = list[tuple[Any, ...]]


def _events(seed: int) -> list[Event]:
    """240 events of four minutes, up to 20 seconds out of order; users come back, pages differ in popularity."""
    rng = random.Random(seed)
    events: list[Event] = []
    for number in range(240):
        user = rng.choice(["ann", "bob", "cid", None])
        page = rng.choice(["home"] * 4 + ["shop"] * 2 + ["cart", "help"])
        moment = at(number + rng.randrange(1000) / 1000)
        ms = 500.0 if number == 200 else 50 + rng.random()
        events.append((number, user, page, moment, ms))
    return sorted(events, key=lambda event: event[3] + timedelta(seconds=rng.random() * 20))


EVENTS = _events(7)
BATCHES: list[Rows] = [EVENTS[:100], [*EVENTS[100:], (-1, "end", "end", END, 0.0)]]
Case = tuple[list[dict[str, object]], Callable[[Frame | list[dict[str, Any]]], Compared], Callable[[], Compared]]


def naive(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None)


def minute_of(moment: datetime, size: timedelta = MINUTE) -> datetime:
    return naive(START + (moment - START) // size * size)


def tumbling() -> Iterator[tuple[Any, ...]]:
    groups: dict[Any, list[Event]] = defaultdict(list)
    for event in EVENTS:
        groups[minute_of(event[3]), event[1]].append(event)
    for (start, user), found in groups.items():
        first = min(found, key=lambda event: event[3])
        yield start, start + MINUTE, user, len(found), max(event[4] for event in found), first[2]


def sliding() -> Iterator[tuple[Any, ...]]:
    groups: Counter[datetime] = Counter()
    for event in EVENTS:
        newest = minute_of(event[3], timedelta(seconds=30))
        groups.update([newest, newest - timedelta(seconds=30)])
    return ((start, start + MINUTE, count) for start, count in groups.items())


def sessions() -> Iterator[tuple[Any, ...]]:
    gap = timedelta(seconds=8)
    for user in {event[1] for event in EVENTS}:
        times = sorted(event[3] for event in EVENTS if event[1] == user)
        start, last, count = times[0], times[0], 0
        for moment in times:
            if moment - last >= gap:
                yield naive(start), naive(last + gap), user, count
                start, count = moment, 0
            last, count = moment, count + 1
        yield naive(start), naive(last + gap), user, count


def twice() -> Iterator[tuple[Any, ...]]:
    groups = Counter(minute_of(event[3], 2 * MINUTE) for event in EVENTS)
    return ((start, start + 2 * MINUTE, count) for start, count in groups.items())


def totals() -> Iterator[tuple[Any, ...]]:
    counts = Counter(event[2] for event in EVENTS)
    return ((page, count) for page, count in counts.items())


def first_of_each() -> Iterator[tuple[Any, ...]]:
    """Ids repeat within 15 seconds: id // 10 is constant for ten seconds."""
    return iter(sorted({(event[0] // 10,) for event in EVENTS}))


def hottest() -> Iterator[tuple[Any, ...]]:
    groups: dict[datetime, Counter[str]] = defaultdict(Counter)
    for event in EVENTS:
        groups[minute_of(event[3])][event[2]] += 1
    for start, counts in groups.items():
        best = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:2]
        for rank, (page, count) in enumerate(best, start=1):
            yield start, start + MINUTE, rank, page, count


def together() -> Iterator[tuple[Any, ...]]:
    """By brute force: every pair of items of every window."""
    baskets: dict[Any, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for event in EVENTS:
        baskets[minute_of(event[3])][event[0] // 5].add(event[2])
    for start, groups in baskets.items():
        alone = Counter(page for pages in groups.values() for page in pages)
        pairs = Counter(pair for pages in groups.values() for pair in combinations(sorted(pages), 2))
        for pair, count in pairs.items():
            for when, then in (pair, pair[::-1]):
                if count / len(groups) >= 0.2 and count / alone[when] >= 0.6:
                    lift = count / alone[when] * len(groups) / alone[then]
                    yield start, (when,), then, count, len(groups), round(lift, 9)


def strange() -> Iterator[tuple[Any, ...]]:
    for user in {event[1] for event in EVENTS}:
        history: list[float] = []
        for event in sorted((event for event in EVENTS if event[1] == user), key=lambda event: event[3]):
            if len(history) < 10:
                yield event[0], "warming up", None
            else:
                middle = median(history)
                spread = median(abs(each - middle) for each in history) * 1.4826
                score = (event[4] - middle) / spread
                yield event[0], "anomaly" if abs(score) >= 3.5 else "normal", round(score, 6)
            history = [*history, event[4]][-20:]


def in_line() -> Iterator[tuple[Any, ...]]:
    return ((event[0],) for event in sorted(EVENTS, key=lambda event: event[3]))


def followed() -> Iterator[tuple[Any, ...]]:
    """The first later visit to the shop of each user who was at home, if it comes within ten seconds."""
    for number, (_, user, page, moment, _) in enumerate(line := sorted(EVENTS, key=lambda event: event[3])):
        if user is not None and page == "home":
            later = (event for event in line[number + 1 :] if event[1:3] == (user, "shop"))
            shop = next(later, None)
            is_near = shop is not None and shop[3] - moment <= timedelta(seconds=10)
            end = naive(shop[3]) if shop is not None and is_near else naive(moment + timedelta(seconds=10))
            found = (line[number][0], shop[0]) if shop is not None and is_near else (line[number][0], None)
            yield user, "matched" if is_near else "timed_out", *found, end


class Pauses:
    """How many rows came one after the other, each within five seconds of the one before; every third row of a user
    is told at once."""

    def on_row(self, row: dict[str, Any], state: Any) -> dict[str, Any] | None:
        if state["until"] is not None:
            state.delete_timer(state["until"])
        state["rows"] = (state["rows"] or 0) + 1
        state["until"] = row["at"] + timedelta(seconds=5)
        state.set_timer(state["until"])
        return {"rows": state["rows"], "why": "third"} if state["rows"] % 3 == 0 else None

    def on_timer(self, time: datetime, state: Any) -> dict[str, Any]:
        made = {"rows": state["rows"], "why": "pause"}
        state.forget()
        return made


def pauses() -> Iterator[tuple[Any, ...]]:
    for user in ("ann", "bob", "cid"):
        times = sorted(event[3] for event in EVENTS if event[1] == user)
        count = 0
        for moment, following in zip(times, [*times[1:], END], strict=True):
            count += 1
            if count % 3 == 0:
                yield user, count, "third", naive(moment)
            if following - moment > timedelta(milliseconds=5000):
                yield user, count, "pause", naive(moment + timedelta(seconds=5))
                count = 0


def carts() -> Iterator[tuple[Any, ...]]:
    return ((str(event[0]), "***", event[4] / 1000) for event in EVENTS if event[2] == "cart")


WINDOW = ("window_start", "window_end")
LARGEST = {"size": "1 minute", "by": ["user"], "count": "n", "max": {"most": "ms"}, "first": {"page": "page"}}
BASKETS = {"basket": "id", "item": "page", "size": "1 minute", "support": 0.2, "confidence": 0.6, "items_in_set_max": 2}
STATELESS: list[dict[str, object]] = [
    {"rule": {"rules": {"no negative time": "ms >= 0"}}},
    {"derive": {"columns": {"seconds": "ms / 1000", "pair": "named_struct('id', id)", "tags": "array(page, user)"}}},
    {"flatten": {"columns": ["pair"]}},
    {"explode": {"column": "tags", "into": "tag"}},
    {"cast": {"columns": {"pair_id": "string"}}},
    {"rename": {"columns": {"pair_id": "number"}}},
    {"mask": {"columns": {"page": "redact"}}},
    {"drop": {"columns": ["ms"]}},
    {"sample": {"fraction": 1.0, "by": ["number"]}},
    {"filter": {"equals": {"tag": "cart"}}},
    {"select": {"columns": ["number", "page", "seconds"]}},
    {"sql": {"query": "SELECT number, page, seconds FROM stream"}},
    {"python": {"function": lambda rows: rows}},
]
CASES: dict[str, tuple[list[dict[str, object]], tuple[str, ...], Callable[[], Iterator[tuple[Any, ...]]]]] = {
    "window": (
        [{"window": LARGEST}],
        (*WINDOW, "user", "n", "most", "page"),
        tumbling,
    ),
    "sliding": ([{"window": {"size": "1 minute", "slide": "30 seconds", "count": "n"}}], (*WINDOW, "n"), sliding),
    "session": ([{"window": {"session": "8 seconds", "by": ["user"], "count": "n"}}], (*WINDOW, "user", "n"), sessions),
    "window of windows": (
        [
            {"window": {"size": "1 minute", "by": ["user"], "count": "n"}},
            {"window": {"size": "2 minutes", "sum": {"n": "n"}}},
        ],
        (*WINDOW, "n"),
        twice,
    ),
    "total": ([{"window": {"total": True, "by": ["page"], "count": "n"}}], ("page", "n"), totals),
    "deduplicate": ([{"deduplicate": {"by": ["id"]}}], ("id",), first_of_each),
    "top": ([{"top": {"of": ["page"], "k": 2, "size": "1 minute"}}], (*WINDOW, "rank", "page", "count"), hottest),
    "associations": (
        [{"associations": BASKETS}],
        ("window_start", "when", "then", "together", "baskets", "lift"),
        together,
    ),
    "anomalies": (
        [{"anomalies": {"value": "ms", "by": ["user"], "history": 20, "warm_up": 10}}],
        ("id", "verdict", "score"),
        strange,
    ),
    "order": ([{"order": {}}], ("id",), in_line),
    "pattern": (
        [{"pattern": {"by": ["user"], "first": "page = 'home'", "then": "page = 'shop'", "within": "10 seconds",
                      "emit": "both"}}],
        ("user", "outcome", "first_id", "then_id", "at"),
        followed,
    ),
    "stateful": (
        [{"stateful": {"by": ["user"], "code": Pauses, "state": {"rows": "int", "until": "timestamp"},
                       "schema": {"rows": "int", "why": "string"}, "forget_after": "1 minute"}}],
        ("user", "rows", "why", "at"),
        pauses,
    ),
    "steps that look at one row": (STATELESS, ("number", "page", "seconds"), carts),
}  # fmt: skip
GROUPED = {"deduplicate": 10, "associations": 5}  # steps that go by groups of ids
ELSEWHERE = {
    "watermark",  # every case here
    "join",  # test_joins.py
    "enrich",  # test_enrich.py
    "parse", "union", "outliers",  # look at one row at a time: the same code in batch and stream
}  # fmt: skip
KEPT_BY_KEY = {"total"}


def _rows(case: str, rows: Rows) -> Rows:
    size = GROUPED.get(case)
    return rows if size is None else [(row[0] // size, *row[1:]) for row in rows]


def _compared(case: str, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> Compared:
    made = [tuple(_plain(row[name]) for name in columns) for row in rows]
    if case in KEPT_BY_KEY:
        made = list({row[:-1]: row for row in made}.values())
    made = [row for row in made if not any(_is_end(value) for value in row)]
    return made if case == "order" else sorted(made, key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return round(value, 9) if isinstance(value, float) else value


def _is_end(value: Any) -> bool:
    return value in ("end", -1) or (isinstance(value, datetime) and value > naive(END) - timedelta(days=2))


@pytest.mark.parametrize("case", CASES)
def test_a_batch_and_a_stream_give_the_same(case: str, spark: SparkSession, tmp_path: Path) -> None:
    steps, columns, expected = CASES[case]
    batches = [_rows(case, rows) for rows in BATCHES]
    batch = through(table(spark, [row for rows in batches for row in rows], SCHEMA), WATERMARK, *steps)
    stream = through(streaming(spark, tmp_path / "in", SCHEMA, batches), WATERMARK, *steps)
    ran = run(stream, tmp_path, "update" if case in KEPT_BY_KEY else "append")
    in_batch = _compared(case, living(batch), columns)
    in_stream = _compared(case, ran.rows, columns)
    wanted = [tuple(_plain(value) for value in row) for row in expected()]
    if case == "anomalies":
        in_batch, in_stream = _rounded(in_batch), _rounded(in_stream)
    assert in_batch == (wanted if case == "order" else sorted(wanted, key=repr))
    assert in_stream == in_batch
    assert ran.late() == {}


def _rounded(rows: Compared) -> Compared:
    return sorted(((*row[:-1], None if row[-1] is None else round(row[-1], 6)) for row in rows), key=repr)


def test_every_step_is_compared_here_or_elsewhere() -> None:
    used = {name for steps, _, _ in CASES.values() for step in steps for name in step}
    assert set(STEPS) - used - ELSEWHERE == set()


def test_steps_that_depend_on_the_order_of_arrival_say_so() -> None:
    said = {name: getattr(step, "ORDER_MATTERS", None) for name, step in STEPS.items()}
    assert {name for name, text in said.items() if text} == {"deduplicate", "join", "top"}
