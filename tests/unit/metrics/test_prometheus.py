"""The text that Prometheus reads: names as jmx_exporter's rules make them."""

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from ottla.metrics.beans import Bean, ObjectName, Source, gauge, histogram_attributes, meter_attributes, named, quoted
from ottla.metrics.histogram import TIMES_NS, Histogram
from ottla.metrics.meters import Meter, RecentHistogram
from ottla.metrics.prometheus import render


def text_of(*beans: Bean | None, type_: str = "BrokerTopicMetrics") -> str:
    def made() -> Iterator[Bean | None]:
        return iter(beans)

    return "".join(render([Source("kafka.server", type_, made)], with_large=False))


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """As Prometheus' own parser reads them."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def meter_bean(name: str, count: int, **keys: str) -> Bean:
    return Bean(
        named("kafka.server", "BrokerTopicMetrics", name, **keys), meter_attributes(Meter(0), count, 1, "bytes")
    )


def test_a_meter_becomes_a_counter() -> None:
    text = text_of(meter_bean("BytesInPerSec", 7), None, meter_bean("BytesInPerSec", 5, topic="orders"))
    assert samples(text) == {
        ("kafka_server_brokertopicmetrics_bytesin_total", ()): 7,
        ("kafka_server_brokertopicmetrics_bytesin_total", (("topic", "orders"),)): 5,
    }
    assert text.count("# TYPE") == 1


def test_a_histogram_becomes_a_summary() -> None:
    histogram = Histogram(TIMES_NS)
    histogram.add(2_000_000)
    attributes = histogram_attributes(RecentHistogram(histogram), 4, 1e6)
    found = samples(
        text_of(Bean(named("kafka.network", "RequestMetrics", "TotalTimeMs", request="Produce"), attributes))
    )
    name = "kafka_network_requestmetrics_totaltimems"
    assert found[name, (("quantile", "0.99"), ("request", "Produce"))] == 2.0
    assert found[f"{name}_count", (("request", "Produce"),)] == 4
    assert found[f"{name}_sum", (("request", "Produce"),)] == 8.0


def test_attributes_with_dashes_become_names() -> None:
    name = ObjectName("kafka.server", (("type", "socket-server-metrics"), ("listener", "PLAINTEXT")))
    found = samples(text_of(Bean(name, {"connection-count": 3, "connection-creation-total": 9, "version": "1"})))
    labels = (("listener", "PLAINTEXT"),)
    assert found == {
        ("kafka_server_socket_server_metrics_connection_count", labels): 3,
        ("kafka_server_socket_server_metrics_connection_creation_total", labels): 9,
    }


def test_label_values_survive_whatever_they_hold() -> None:
    path = '/da"ta\\x\ny'
    found = samples(text_of(gauge("kafka.log", "LogManager", "LogDirectoryOffline", 1, logDirectory=quoted(path))))
    assert list(found) == [("kafka_log_logmanager_logdirectoryoffline", (("logDirectory", path),))]


def test_partitions_are_left_out_unless_asked_for() -> None:
    bean = gauge("kafka.log", "Log", "Size", 5, topic="t", partition="0")
    source = Source("kafka.log", "Log", lambda: iter((bean,)), is_large=True)
    assert "".join(render([source], with_large=False)) == ""
    assert "kafka_log_log_size" in "".join(render([source], with_large=True))
