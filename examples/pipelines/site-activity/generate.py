"""Visitor activity of a web site as events: the data of `ottla demo`, to send yourself.

    python generate.py --count 20000       # to the topic site-activity, as fast as possible, the same each time
    python generate.py --rate 100          # live, until Ctrl-C
    python generate.py --expect            # what the pipeline must find in the first 20,000

The events themselves are made by ottla.pipelines.demo.site; here is the same analysis without Spark.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import permutations
from typing import Any

from ottla.pipelines.demo.generator import Record, run_generator
from ottla.pipelines.demo.site import visits

REQUIRED = {"id": str, "at": str, "user": str, "page": str, "ms": (int, float)}
HOT = 5
SUPPORT = 0.02  # share of the baskets of a window in which things must be found together
CONFIDENCE = 0.6  # share of the baskets with the first thing that hold the second, too


def expected(records: Iterable[Record]) -> dict[str, Any]:
    """All figures that the pipeline must produce, in plain Python."""
    count = readable = 0
    events: dict[str, dict[str, Any]] = {}
    for record in records:
        count += 1
        event = _read(record.value)
        if event is not None:
            readable += 1
            events.setdefault(event["id"], event)
    viewed = [event for event in events.values() if event["action"] == "view"]
    bought = [event for event in events.values() if event["action"] == "buy"]
    return {
        "records": count,
        "dead": count - readable,
        "duplicates": readable - len(events),
        "events": len(events),
        "views": {start: Counter(event["page"] for event in each) for start, each in windows(viewed, 60, 60).items()},
        "hot": {start: hottest(each) for start, each in windows(viewed, 60, 10).items()},
        "rules": {start: rules(each) for start, each in windows(bought, 120, 30).items()},
        "slow": slow(list(events.values())),
    }


def windows(events: Iterable[dict[str, Any]], size: int, slide: int) -> dict[str, list[dict[str, Any]]]:
    """The events of each window of `size` seconds, under its start; one begins every `slide` seconds."""
    found: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        second = int(datetime.fromisoformat(event["at"]).timestamp())
        newest = second - second % slide
        for start in range(newest, second - size, -slide):
            found.setdefault(start, []).append(event)
    return {datetime.fromtimestamp(start, UTC).strftime("%H:%M:%S"): found[start] for start in sorted(found)}


def hottest(viewed: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """The pages with the most views; equal ones by name."""
    counts = Counter(event["page"] for event in viewed)
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:HOT]


def rules(bought: list[dict[str, Any]]) -> list[list[object]]:
    """Baskets with the first item that also contain the second: their number, and their share."""
    by_session: dict[str, set[str]] = {}
    for event in bought:
        by_session.setdefault(event["session"], set()).add(event["item"])
    baskets = list(by_session.values())
    single = Counter(item for basket in baskets for item in basket)
    both = Counter(pair for basket in baskets for pair in permutations(sorted(basket), 2))
    return sorted(
        [when, then, count, count / single[when]]
        for (when, then), count in both.items()
        if count >= SUPPORT * len(baskets) and count >= CONFIDENCE * single[when]
    )


def slow(events: list[dict[str, Any]]) -> list[str]:
    """Ids of requests that took more than eight times as long as is usual for their service."""
    usual: dict[str, float] = {}
    for service in {event["service"] for event in events}:
        times = sorted(event["ms"] for event in events if event["service"] == service)
        usual[service] = times[len(times) // 2]
    return sorted(event["id"] for event in events if event["ms"] > 8 * usual[event["service"]])


def _read(value: bytes | None) -> dict[str, Any] | None:
    try:
        event = json.loads((value or b"").decode("utf-8"))
        if not all(isinstance(event[name], kind) for name, kind in REQUIRED.items()):
            return None
        datetime.fromisoformat(event["at"])
    except (ValueError, KeyError, TypeError):
        return None
    return dict(event)


if __name__ == "__main__":
    sys.exit(run_generator("Activity on a web site.", "site-activity", visits, expected))
