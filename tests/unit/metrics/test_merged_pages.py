"""Pages of several brokers as one."""

from ottla.metrics.merged_pages import labelled, merge_pages, up_family
from ottla.metrics.prometheus import Family, Sample, render_families
from ottla.operations.metric_readings import parse_metrics


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
    assert reading.one("bytes_total", broker="1") == 10
    assert {sample.labels.get("topic") for sample in reading.all("bytes_total")} == {None, 'a"b{c} d,broker="e'}


def test_a_label_of_the_same_name_gets_another_wherever_it_stands() -> None:
    assert labelled('a{x="1",broker="2"} 3', 9) == 'a{broker="9",x="1",exported_broker="2"} 3'


def test_who_is_away_is_told() -> None:
    text = "".join(up_family({1: True, 2: False}, {1: "http://h:1", 2: "http://h:2"}))
    assert text.endswith(
        'ottla_process_up{broker="1",url="http://h:1"} 1\nottla_process_up{broker="2",url="http://h:2"} 0\n'
    )
    assert list(merge_pages({})) == []
