"""TCP over all connections of a broker: sums of everything, names of the worst only."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.monitoring import tcp_families as module
from ottla.broker.monitoring.tcp_families import SLICE, WORST_MAX, tcp_families
from ottla.metrics.prometheus import Family, render_families
from ottla.metrics.tcp_info import TcpInfo
from ottla.network.client_facts import ClientFacts

GOOD = TcpInfo(0, 0, 2_000, 0, 10, 1_000)


def told(monkeypatch: pytest.MonkeyPatch, infos: list[TcpInfo | None]) -> list[Family | None]:
    monkeypatch.setattr(module, "read_tcp_info", lambda descriptor: infos[descriptor])
    connections: list[Any] = []
    for number in range(len(infos)):
        client = ClientFacts("10.0.0.9", number, "PLAINTEXT")
        client.client_id = f"app\n{number}"
        connections.append(SimpleNamespace(descriptor=number, client=client, is_closed=False))
    return list(tcp_families(SimpleNamespace(connections=connections)))  # type: ignore[arg-type]


def by_name(families: list[Family | None]) -> dict[str, Family]:
    return {family.name: family for family in families if family is not None}


def test_sums_count_all_connections_and_nobody_is_named_on_a_good_network(monkeypatch: pytest.MonkeyPatch) -> None:
    families = by_name(told(monkeypatch, [GOOD, GOOD, None, GOOD._replace(round_trip_us=30_000)]))
    values = {name: family.samples[0].value for name, family in families.items() if family.samples}
    assert values["ottla_tcp_connections"] == 3
    assert values["ottla_tcp_sent_segments"] == 3_000
    assert values["ottla_tcp_unsent_bytes"] == 30
    buckets = {sample.labels: sample.value for sample in families["ottla_tcp_round_trip_seconds"].samples}
    assert buckets[(("le", "0.001"),)] == 0
    assert buckets[(("le", "0.005"),)] == 2
    assert buckets[(("le", "0.05"),)] == buckets[(("le", "+Inf"),)] == 3
    assert not families["ottla_tcp_worst_retransmitted_ratio"].samples


def test_ten_thousand_bad_links_give_a_bounded_page_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    infos: list[TcpInfo | None] = [GOOD._replace(retransmitted_segments=number % 100) for number in range(10_000)]
    infos[77] = GOOD._replace(unacknowledged_segments=1, silent_ms=9_000)
    families = told(monkeypatch, infos)
    assert families.count(None) == len(infos) // SLICE
    worst = by_name(families)
    for what in ("retransmitted_ratio", "round_trip_seconds", "unsent_bytes", "waits_seconds"):
        assert len(worst[f"ottla_tcp_worst_{what}"].samples) == WORST_MAX
    first = worst["ottla_tcp_worst_waits_seconds"].samples[0]
    assert dict(first.labels) == {"client_id": "app?77", "address": "10.0.0.9:77", "listener": "PLAINTEXT"}
    assert first.value == 9.0
    assert all(sample.value == 0.09 for sample in worst["ottla_tcp_worst_retransmitted_ratio"].samples[1:])
    assert "" in list(render_families(families))
