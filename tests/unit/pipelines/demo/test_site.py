"""The demo's visitors: reproducible for a seed, with the planted patterns."""

from __future__ import annotations

import json
from itertools import islice, pairwise

from ottla.pipelines.demo.generator import GeneratorSettings, first_records
from ottla.pipelines.demo.site import BUNDLES, Site, visits


def test_the_same_seed_gives_the_same_records_byte_for_byte():
    assert first_records(visits, 500) == first_records(visits, 500)
    assert first_records(visits, 500) != first_records(visits, 500, GeneratorSettings(seed=2))


def test_records_are_sent_in_order_at_the_requested_rate():
    records = first_records(visits, 2_000, GeneratorSettings(rate=200))
    moments = [record.at_ms for record in records]
    assert moments == sorted(moments)
    assert 8_000 < moments[-1] - moments[0] < 12_000


def test_some_come_twice_some_late_and_some_cannot_be_read():
    records = first_records(visits, 5_000)
    values = [record.value for record in records]
    assert 50 < len(values) - len(set(values)) < 200
    readable = [record for record in records if _event(record.value) is not None]
    assert 10 < len(records) - len(readable) < 100
    times = [str(json.loads(record.value)["at"]) for record in readable if record.value]
    assert any(after < before for before, after in pairwise(times))


def test_things_are_bought_together():
    baskets: dict[object, set[object]] = {}
    for record in first_records(visits, 5_000):
        event = _event(record.value)
        if event and event["action"] == "buy":
            baskets.setdefault(event["session"], set()).add(event["item"])
    with_tent = [items for items in baskets.values() if "tent" in items]
    assert len([items for items in with_tent if set(BUNDLES[0]) <= items]) > 0.7 * len(with_tent) > 0


def test_slow_requests_are_noted_and_far_from_usual():
    site = Site(GeneratorSettings())
    events = list(islice(site.events(), 5_000))
    slow = [event["ms"] for event in events if event["id"] in site.slow]
    assert slow
    assert min(slow) > max(
        event["ms"] for event in events if event["id"] not in site.slow and event["service"] == "home"
    )


def _event(value: bytes | None) -> dict[str, object] | None:
    try:
        event = json.loads(value or b"")
        return (
            dict(event)
            if {"user", "at"} <= set(event) and isinstance(event["ms"], float) and event["at"] > "2"
            else None
        )
    except (ValueError, TypeError):
        return None
