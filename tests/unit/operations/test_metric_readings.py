"""Readings of a broker's metrics, over Prometheus' text and over Jolokia, and rates between two of them."""

from __future__ import annotations

import json

import pytest

from ottla.operations.errors import OperationError
from ottla.operations.jolokia_readings import BEANS, parse_jolokia
from ottla.operations.metric_readings import Rates, parse_metrics

BYTES = "kafka_server_brokertopicmetrics_bytesin_total"
HISTOGRAM = {f"{share}thPercentile": 4.0 for share in (50, 75, 95, 98, 99, 999)} | {"Mean": 2.0, "Count": 3}


def rates(before: str, now: str) -> Rates:
    return Rates(parse_metrics(before, 10.0), parse_metrics(now, 12.0))


def test_a_rate_is_the_growth_per_second() -> None:
    found = rates('a_total{x="1"} 4\na_total{x="2"} 1', 'a_total{x="1"} 10\na_total{x="2"} 3')
    assert found.rate("a_total", x="1") == 3.0
    assert found.total_rate("a_total") == 4.0


def test_a_counter_that_appears_began_at_zero() -> None:
    assert rates("", 'a_total{x="1"} 6').rate("a_total", x="1") == 3.0


def test_missing_and_decreasing_counters_have_no_rate() -> None:
    found = rates("a_total 9\nb_total 1", "a_total 3")
    assert found.rate("a_total") is None, "the broker was started again"
    assert found.total_rate("a_total") is None
    assert found.rate("b_total") is None
    assert found.total_rate("b_total") is None
    assert rates("a_total 9", "a_total 9").rate("a_total") == 0.0


def answers(**given: object) -> str:
    """An agent's response to BEANS: beans by the beginning of their names, otherwise an error."""
    found = []
    for asked in BEANS:
        value = next((each for start, each in given.items() if start in asked.replace("-", "_")), None)
        found.append({"status": 404} if value is None else {"status": 200, "value": value})
    return json.dumps(found)


def test_beans_have_the_names_of_prometheus() -> None:
    text = answers(
        BrokerTopicMetrics={
            "kafka.server:name=BytesInPerSec,type=BrokerTopicMetrics": {"Count": 70, "OneMinuteRate": 1.5},
            "kafka.server:name=BytesInPerSec,topic=orders,type=BrokerTopicMetrics": {"Count": 30},
        },
        TotalTimeMs={"kafka.network:name=TotalTimeMs,request=Fetch,type=RequestMetrics": HISTOGRAM},
        ReplicaManager={"kafka.server:name=LeaderCount,type=ReplicaManager": {"Value": 5}},
        socket_server={
            "kafka.server:listener=A,networkProcessor=0,type=socket-server-metrics": {
                "connection-count": 2.0,
                "connection-creation-total": 9.0,
            }
        },
    )
    reading = parse_jolokia(text, 1.0)
    assert reading.value_or_zero(BYTES) == 70
    assert reading.value_or_zero(BYTES, topic="orders") == 30
    assert reading.value_or_zero("kafka_server_replicamanager_leadercount") == 5
    assert reading.total("kafka_server_socket_server_metrics_connection_creation_total") == 9
    assert reading.value_or_zero("kafka_network_requestmetrics_totaltimems", request="Fetch", quantile="0.99") == 4.0
    assert reading.value_or_zero("kafka_network_requestmetrics_totaltimems_sum", request="Fetch") == 6.0


def test_process_metrics_of_java_get_prometheus_names() -> None:
    text = answers(
        OperatingSystem={"ProcessCpuTime": 2_500_000_000, "OpenFileDescriptorCount": 30, "Name": "Linux"},
        Memory={"HeapMemoryUsage": {"used": 7, "max": 9}, "Verbose": False},
    )
    reading = parse_jolokia(text, 1.0)
    assert reading.value_or_zero("process_cpu_seconds_total") == 2.5
    assert reading.value_or_zero("process_open_fds") == 30
    assert reading.value_or_zero("java_lang_memory_heapmemoryusage_used") == 7
    assert reading.value_or_none("process_resident_memory_bytes") is None, "a heap is not the memory of its process"


@pytest.mark.parametrize(
    "value",
    [
        {"nonsense": {"Count": 1}},
        {"kafka.server:name=BytesInPerSec,type=BrokerTopicMetrics": {"MeanRate": 1.0}},
        {"kafka.server:name=BytesInPerSec,type=BrokerTopicMetrics": {"Count": None}},
        {"kafka.server:name=BytesInPerSec,type=BrokerTopicMetrics": 7},
        {"kafka.server:name=X,type=BrokerTopicMetrics": {"50thPercentile": 1.0}},
        7,
    ],
)
def test_beans_that_make_no_sense_are_left_out(value: object) -> None:
    assert parse_jolokia(answers(BrokerTopicMetrics=value), 1.0).samples == {}


def test_other_pages_are_refused() -> None:
    with pytest.raises(OperationError, match="not a Jolokia agent"):
        parse_jolokia("<html>", 1.0)
    assert parse_jolokia('{"status": 200}', 1.0).samples == {}
