"""Prometheus metrics without an MBean name."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests import virtual_time
from tests.unit.broker.nodes import node

from ottla.base import tasks
from ottla.broker.metrics_endpoint import prometheus_families as module
from ottla.broker.metrics_endpoint.event_loop_load import EventLoopLoad
from ottla.broker.metrics_endpoint.prometheus_families import (
    CONNECTIONS_PER_SLICE,
    WORST_MAX,
    client_families,
    own_families,
    tcp_families,
)
from ottla.broker.telemetry.client_metrics import ClientMetricsManager
from ottla.broker.telemetry.client_metrics import Sample as ClientSample
from ottla.controller.image import MetadataImage
from ottla.metrics.counters import BrokerCounters
from ottla.metrics.prometheus import Family, Sample, render_families
from ottla.metrics.tcp_info import TcpInfo
from ottla.network.connection import ConnectedClient
from ottla.network.poller import Poller


def told(image: MetadataImage | None = None) -> dict[str, list[Sample]]:
    families = own_families(
        node(id_=5, image=image), BrokerCounters(), ClientMetricsManager(), EventLoopLoad(Poller()), []
    )
    return {family.name: list(family.samples) for family in families}


def test_broker_info_is_reported_also_before_the_cluster_is_known() -> None:
    for image, cluster_id in ((None, ""), (MetadataImage(cluster_id="abc"), "abc")):
        labels = dict(told(image)["ottla_info"][0].labels)
        assert (labels["node_id"], labels["cluster_id"]) == ("5", cluster_id)


def test_the_time_of_slow_iterations_is_reported() -> None:
    samples = told()["ottla_loop_slow_seconds_total"]
    assert [dict(sample.labels)["state"] for sample in samples] == ["running", "waiting", "asleep"]


def test_failed_and_restarted_tasks_are_counted() -> None:
    def counts() -> list[float]:
        now = told()
        return [now[f"ottla_tasks_{what}_total"][0].value for what in ("failed", "restarted")]

    async def fail() -> None:
        raise ValueError("a fault of the program")

    async def whole() -> None:
        tasks.spawn(fail(), "work")
        loop = tasks.spawn_restarting(fail, "a loop")
        await asyncio.sleep(tasks.PAUSE_SECONDS_MIN * 1.5)
        loop.cancel()

    failed, restarted = counts()
    virtual_time.run(whole())
    assert counts() == [failed + 1, restarted + 2]


# ---- TCP of all connections: sums of all, names of the worst only

GOOD = TcpInfo(0, 0, 2_000, 0, 10, 1_000)


def tcp_samples(monkeypatch: pytest.MonkeyPatch, infos: list[TcpInfo | None]) -> list[Family | None]:
    monkeypatch.setattr(module, "read_tcp_info", lambda descriptor: infos[descriptor])
    connections: list[Any] = []
    for number in range(len(infos)):
        client = ConnectedClient("10.0.0.9", number, "PLAINTEXT")
        client.client_id = f"app\n{number}"
        connections.append(SimpleNamespace(descriptor=number, client=client, is_closed=False))
    return list(tcp_families(SimpleNamespace(connections=connections)))  # type: ignore[arg-type]


def by_name(families: list[Family | None]) -> dict[str, Family]:
    return {family.name: family for family in families if family is not None}


def test_sums_count_all_connections_and_a_good_network_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    families = by_name(tcp_samples(monkeypatch, [GOOD, GOOD, None, GOOD._replace(round_trip_us=30_000)]))
    values = {name: family.samples[0].value for name, family in families.items() if family.samples}
    assert values["ottla_tcp_connections"] == 3
    assert values["ottla_tcp_sent_segments"] == 3_000
    assert values["ottla_tcp_unsent_bytes"] == 30
    buckets = {sample.labels: sample.value for sample in families["ottla_tcp_round_trip_seconds"].samples}
    assert buckets[(("le", "0.001"),)] == 0
    assert buckets[(("le", "0.005"),)] == 2
    assert buckets[(("le", "0.05"),)] == buckets[(("le", "+Inf"),)] == 3
    assert not families["ottla_tcp_worst_retransmitted_ratio"].samples


def test_ten_thousand_bad_connections_give_a_bounded_page_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    infos: list[TcpInfo | None] = [GOOD._replace(retransmitted_segments=number % 100) for number in range(10_000)]
    infos[77] = GOOD._replace(unacknowledged_segments=1, silent_ms=9_000)
    families = tcp_samples(monkeypatch, infos)
    assert families.count(None) == len(infos) // CONNECTIONS_PER_SLICE
    worst = by_name(families)
    for what in ("retransmitted_ratio", "round_trip_seconds", "unsent_bytes", "waits_seconds"):
        assert len(worst[f"ottla_tcp_worst_{what}"].samples) == WORST_MAX
    first = worst["ottla_tcp_worst_waits_seconds"].samples[0]
    assert dict(first.labels) == {"client_id": "app?77", "address": "10.0.0.9:77", "listener": "PLAINTEXT"}
    assert first.value == 9.0
    assert all(sample.value == 0.09 for sample in worst["ottla_tcp_worst_retransmitted_ratio"].samples[1:])
    assert "" in list(render_families(families))


# ---- client metrics: no client input breaks the page

CLIENT = {
    "client_id": 'a"b',
    "client_instance_id": "id",
    "client_software_name": "librdkafka",
    "client_software_version": "2",
}


def sample(name: str, value: float = 1.0, is_counter: bool = True, **attributes: str) -> ClientSample:
    return ClientSample(CLIENT, name, tuple(attributes.items()), value, is_counter)


def test_a_metric_gets_a_name_and_its_client_as_labels() -> None:
    (family,) = client_families([sample("org.apache.kafka.producer.record.send.total", 7.0, topic="orders")])
    assert (family.name, family.kind) == ("ottla_client_producer_record_send_total", "counter")
    assert dict(family.samples[0].labels) == {**CLIENT, "topic": "orders"}
    assert family.samples[0].value == 7.0


def test_of_two_metrics_with_the_same_name_the_first_wins() -> None:
    families = list(client_families([sample("a.b", 1.0), sample("a_b", 2.0)]))
    assert [(family.name, family.samples[0].value) for family in families] == [("ottla_client_a_b", 1.0)]


def test_of_two_samples_with_the_same_labels_the_first_wins() -> None:
    (family,) = client_families([sample("a", 1.0, **{"x.y": "1"}), sample("a", 2.0, x_y="1")])
    assert [item.value for item in family.samples] == [1.0]


def test_a_client_cannot_pretend_to_be_another_one() -> None:
    (family,) = client_families([sample("a", client_id="other")])
    assert dict(family.samples[0].labels)["client_id"] == CLIENT["client_id"]


def test_invalid_names_are_cleaned() -> None:
    families = list(client_families([sample("1 {}\n", **{"0": "x"}), sample("")]))
    assert [family.name for family in families] == ["ottla_client_x_1", "ottla_client_x_"]
    assert "x_0" in dict(families[0].samples[0].labels)


def test_a_metric_that_is_a_counter_for_some_clients_only_is_a_gauge() -> None:
    (family,) = client_families([sample("a", topic="1"), sample("a", is_counter=False, topic="2")])
    assert family.kind == "gauge"
