"""The text that Prometheus reads: names as jmx_exporter's rules make them."""

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from ottla.metrics.beans import Bean, ObjectName, Source, gauge, histogram_attributes, meter_attributes, named, quoted
from ottla.metrics.histogram import TIMES_NS, Histogram
from ottla.metrics.meters import Meter, RecentHistogram
from ottla.metrics.prometheus import Family, Sample, labelled, merge_pages, render, render_families, up_family
from ottla.operations.metric_readings import parse_metrics


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


def test_partitions_are_left_out_unless_requested() -> None:
    bean = gauge("kafka.log", "Log", "Size", 5, topic="t", partition="0")
    source = Source("kafka.log", "Log", lambda: iter((bean,)), is_large=True)
    assert "".join(render([source], with_large=False)) == ""
    assert "kafka_log_log_size" in "".join(render([source], with_large=True))


def page(count: int, *, with_lag: bool = False) -> str:
    families = [
        Family(
            "bytes_total", "counter", "Bytes\nin", [Sample((), count), Sample((("topic", 'a"b{c} d,broker="e'),), 1)]
        ),
        Family("lag", "gauge", "Lag", [Sample((("broker", "7"), ("topic", "t")), 5)]),
        Family("time", "summary", "Time", [Sample((("quantile", "0.5"),), 0.25), Sample((), 3, "_count")]),
    ]
    return "".join(render_families(each for each in families if with_lag or each.name != "lag"))


def test_each_family_stands_there_once_with_the_samples_of_all() -> None:
    text = "".join(merge_pages({1: page(10), 2: page(20, with_lag=True)}))
    assert text.splitlines() == [
        "# HELP bytes_total Bytes\\nin",
        "# TYPE bytes_total counter",
        'bytes_total{broker="1"} 10',
        'bytes_total{broker="1",topic="a\\"b{c} d,broker=\\"e"} 1',
        'bytes_total{broker="2"} 20',
        'bytes_total{broker="2",topic="a\\"b{c} d,broker=\\"e"} 1',
        "# HELP time Time",
        "# TYPE time summary",
        'time{broker="1",quantile="0.5"} 0.25',
        'time_count{broker="1"} 3',
        'time{broker="2",quantile="0.5"} 0.25',
        'time_count{broker="2"} 3',
        "# HELP lag Lag",
        "# TYPE lag gauge",
        'lag{broker="2",exported_broker="7",topic="t"} 5',
    ]


def test_what_is_merged_can_be_read_as_before() -> None:
    reading = parse_metrics("".join(merge_pages({1: page(10), 2: page(20)})), 0.0)
    assert reading.total("bytes_total", broker="2") == 21
    assert reading.value_or_zero("bytes_total", broker="1") == 10
    assert {sample.labels.get("topic") for sample in reading.samples_of("bytes_total")} == {None, 'a"b{c} d,broker="e'}


def test_a_label_of_the_same_name_gets_another_wherever_it_stands() -> None:
    assert labelled('a{x="1",broker="2"} 3', 9) == 'a{broker="9",x="1",exported_broker="2"} 3'


def test_an_unreachable_broker_is_reported() -> None:
    text = "".join(up_family({1: True, 2: False}, {1: "http://h:1", 2: "http://h:2"}))
    assert text.endswith(
        'ottla_process_up{broker="1",url="http://h:1"} 1\nottla_process_up{broker="2",url="http://h:2"} 0\n'
    )
    assert list(merge_pages({})) == []
