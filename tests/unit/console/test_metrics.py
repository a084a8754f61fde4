"""Metrics addresses, reading of metrics, and the answers for pages."""

from __future__ import annotations

import math
from pathlib import Path
from uuid import UUID

import pytest
from tests import virtual_time

from ottla.client.admin import Partition, Topic
from ottla.console.api.brokers import Link, replication_links
from ottla.console.clusters import metrics as reading
from ottla.console.clusters.metrics import (
    PERIOD_MS,
    ClusterMetrics,
    InvalidAddressError,
    MetricAddresses,
    parse_addresses,
    read_broker,
)
from ottla.console.clusters.snapshot import Broker, Snapshot
from ottla.console.clusters.time_series import COARSE_MAX, FINE_MAX, TimeSeries
from ottla.console.store import DATABASE_FILE, Store, Tables
from ottla.operations.errors import OperationError
from ottla.operations.metric_readings import Reading, parse_metrics

ONE, TWO = Broker(1, "a", 9092, None), Broker(2, "::1", 9092, "r")
SNAPSHOT = Snapshot(brokers={1: ONE, 2: TWO})
TEXT = 'ottla_info{{node_id="{0}"}} 1\nkafka_server_brokertopicmetrics_bytesin_total {1}\n'


class TurningClock:
    """A clock that advances by one second at each call."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


def test_a_pattern_and_single_addresses() -> None:
    found = parse_addresses("http://{host}:9404, 7=https://x:1/jolokia\n8=http://y/{id}/metrics")
    assert found.address_of(1, "a") == "http://a:9404"
    assert found.address_of(2, "::1") == "http://[::1]:9404"
    assert found.address_of(7, "a") == "https://x:1/jolokia"
    assert found.address_of(8, "a") == "http://y/8/metrics"
    assert parse_addresses("1=http://x:1").address_of(2, "a") is None
    assert not parse_addresses(" ").text
    assert found._replace(login="n:p w@").with_login("http://a:9404") == "http://n:p%20w%40@a:9404"


@pytest.mark.parametrize(
    "text",
    [
        "a:9404",
        "file:///etc/passwd",
        "http://",
        "http://a:x",
        "http://u:p@a:1",
        "http://a?x=/metrics",
        "http://a/#/metrics",
        "http://a http://b",
        "1=",
        "http://a:99999",
        "http://[",
        "ftp://a",
    ],
)
def test_invalid_metrics_addresses_are_refused(text: str) -> None:
    with pytest.raises(InvalidAddressError):
        parse_addresses(text)


def test_a_login_has_a_name_and_a_password() -> None:
    with pytest.raises(InvalidAddressError, match="NAME:PASSWORD"):
        parse_addresses("http://a", "secret")


def test_addresses_are_kept_and_forgotten_with_their_cluster(tmp_path: Path) -> None:
    store = Store(tmp_path / DATABASE_FILE)
    store.run_sync(Tables.put_metric_addresses, "c", parse_addresses("http://{host}:9404", "a:b"))
    assert store.run_sync(Tables.metric_addresses) == {"c": parse_addresses("http://{host}:9404", "a:b")}
    store.run_sync(Tables.drop_cluster, "c")
    assert store.run_sync(Tables.metric_addresses) == {}
    store.close()


def test_an_hour_is_kept_as_it_was_and_a_day_by_the_minute() -> None:
    track = TimeSeries(2)
    for number in range(2 * COARSE_MAX * 12):  # two days
        track.add(number * PERIOD_MS, (float(number), None))
    assert len(track.fine.times) <= FINE_MAX
    assert len(track.coarse.times) <= COARSE_MAX
    times, (values, unknown) = track.since(0, 10_000, 0)
    assert times == sorted(set(times))
    assert times[-1] - times[-2] == PERIOD_MS
    assert times[1] - times[0] == 60_000
    assert values[0] == times[0] / PERIOD_MS + 5.5, "the mean of a minute"
    assert all(map(math.isnan, unknown))
    assert len(track.since(0, 100, 0)[0]) <= 100
    assert track.since(10**15, 100, 0) == ([], [[], []])


def measured(monkeypatch: pytest.MonkeyPatch, answers: dict[int, list[str | Exception]], rounds: int) -> ClusterMetrics:
    """Metrics after some rounds, five seconds each, with these answers of the brokers."""
    clock = TurningClock()

    def read(_: MetricAddresses, broker: Broker, __: bool) -> Reading:
        answer = answers[broker.broker_id].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return parse_metrics(answer, clock.ms / 1000)

    monkeypatch.setattr(reading, "read_broker", read)
    metrics = ClusterMetrics("default", clock, lambda: SNAPSHOT, lambda: None)
    metrics.addresses = parse_addresses("http://{host}:9404")

    async def main() -> None:
        for _ in range(rounds):
            await metrics.read_once()
            clock.ms += PERIOD_MS

    virtual_time.run(main())
    return metrics


def test_rates_are_there_after_two_rounds_and_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[int, list[str | Exception]] = {
        each: [TEXT.format(each, 0), TEXT.format(each, 5_000 * each)] for each in (1, 2)
    }
    metrics = measured(monkeypatch, answers, 2)
    assert [metrics.measurements[each].load.bytes_in for each in (1, 2)] == [1000.0, 2000.0]  # type: ignore[union-attr]
    times, columns = metrics.track.since(0, 10, 0)
    assert (len(times), columns[1][0]) == (1, 3000.0)
    track = metrics.track_of(1)
    assert track is not None
    assert len(track.fine.times) == 1


def test_a_failing_broker_keeps_its_numbers_and_is_read_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = OperationError("no response")
    answers: dict[int, list[str | Exception]] = {
        1: [TEXT.format(1, number) for number in range(12)],
        2: [TEXT.format(2, 0), TEXT.format(2, 5_000), gone, gone, gone],
    }
    metrics = measured(monkeypatch, answers, 8)
    assert metrics.measurements[2].problem == "no response"
    assert metrics.measurements[2].load is not None
    assert metrics.measurements[2].at_ms == 1_000_000 + PERIOD_MS, "so old they are"
    assert not metrics.measurements[1].problem
    assert len(answers[2]) == 0, "three tries in six rounds, five, ten and twenty seconds apart"


def test_an_address_shared_by_brokers_is_used_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = ClusterMetrics("default", TurningClock(), lambda: SNAPSHOT, lambda: None)
    metrics.addresses = parse_addresses("http://x:9404")
    virtual_time.run(metrics.read_once())
    assert ["several brokers" in metrics.measurements[each].problem for each in (1, 2)] == [True, True]
    assert metrics.measurements[1].load is None


def test_metrics_of_another_broker_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "read_metrics", lambda *_: parse_metrics(TEXT.format(2, 0), 0.0))
    with pytest.raises(OperationError, match="is the address of broker 2"):
        read_broker(parse_addresses("http://{host}:9404"), ONE, True)


def test_an_address_inside_is_a_brokers_own_or_allowed() -> None:
    metrics = ClusterMetrics("default", TurningClock(), lambda: SNAPSHOT, lambda: None)
    metrics.addresses = parse_addresses("1=http://127.0.0.1:9404")
    assert not metrics.may_be_private("http://127.0.0.1:9404")
    assert metrics.may_be_private("http://a:9404")
    with pytest.raises(OperationError, match="private address"):
        read_broker(metrics.addresses, ONE, False)
    metrics.allows_private = True
    assert metrics.may_be_private("http://127.0.0.1:9404")


def test_replication_links_count_followers() -> None:
    partitions = [Partition(0, 1, [1, 2], [1]), Partition(1, 1, [2, 1], [1, 2]), Partition(2, 3, [3, 1], [3])]
    snapshot = Snapshot(brokers=SNAPSHOT.brokers, topics={"t": Topic("t", UUID(int=1), False, partitions)})
    assert replication_links(snapshot) == [Link(1, 2, 2, 1)], "a dead leader has no replication links"


def test_no_line_is_drawn_over_a_time_without_measurements() -> None:
    track = TimeSeries(1)
    told = [*range(0, 3_000_000, 5_000), *range(4_000_000, 10_000_000, 5_000)]
    for at_ms in told:
        track.add(at_ms, [1.0])
    for points_max in (7, 100, 100_000):
        times, [column] = track.since(0, points_max, 10_100_000)
        gaps = [at for at, number in zip(times, column, strict=True) if math.isnan(number)]
        assert len(gaps) == 2
        assert 2_900_000 < gaps[0] < 4_000_000
        assert gaps[1] == 10_100_000, "what is not known now is not drawn"
        assert times == sorted(times)
    assert not any(math.isnan(number) for number in track.since(4_000_000, 600, 10_000_000)[1][0])
