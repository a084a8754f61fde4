"""A stopping broker answers for as long as somebody asks, within reason."""

import pytest

import virtual_time
from ottla.broker.cluster import drain_before_stop
from ottla.metrics.counters import BrokerCounters


@pytest.mark.parametrize(("requests", "looks"), [(0, 1), (1, 2), (3, 4), (99, 5)])
def test_it_serves_until_nobody_asks(requests: int, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counters = BrokerCounters()
    meter = counters.meter(0, "Produce", 13)
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) <= requests:
            meter.count_request(9)

    monkeypatch.setattr(drain_before_stop.asyncio, "sleep", sleep)
    virtual_time.run(drain_before_stop.drain_before_stop(counters))
    assert slept == [drain_before_stop.QUIET_SECONDS] * looks
