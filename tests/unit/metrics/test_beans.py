"""Object names and patterns as JMX has them."""

import time

import pytest

from ottla.metrics.beans import (
    BadNameError,
    Bean,
    Source,
    find,
    gauge,
    glob_matches,
    histogram_attributes,
    named,
    parse_pattern,
    quoted,
    unquoted,
)
from ottla.metrics.histogram import TIMES_NS, Histogram
from ottla.metrics.meters import RecentHistogram

BYTES_IN = named("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", topic="orders")


def test_names_are_written_in_kafkas_order_and_canonically_sorted() -> None:
    assert str(BYTES_IN) == "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=orders"
    assert BYTES_IN.canonical == "kafka.server:name=BytesInPerSec,topic=orders,type=BrokerTopicMetrics"


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=orders", True),
        ("kafka.server:topic=orders,name=BytesInPerSec,type=BrokerTopicMetrics", True),
        ("kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec", False),
        ("kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,*", True),
        ("kafka.server:type=BrokerTopicMetrics,name=Bytes*,topic=*", True),
        ("kafka.*:*", True),
        ("*:topic=order?,*", True),
        ("kafka.log:*", False),
        ("kafka.server:type=Other,*", False),
    ],
)
def test_patterns_match_as_in_jmx(pattern: str, matches: bool) -> None:
    source = Source("kafka.server", "BrokerTopicMetrics", lambda: iter((Bean(BYTES_IN, {"Count": 1}),)))
    found = [bean for bean in find([source], parse_pattern(pattern)) if bean is not None]
    assert bool(found) == matches


@pytest.mark.parametrize("text", ["", "kafka.server", "kafka.server:", "a:b", "a:=b", "a:" + "x" * 2000])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(BadNameError):
        parse_pattern(text)


def test_a_quoted_value_may_hold_anything() -> None:
    path = '/data/a,b="c"\\d*?\n'
    assert unquoted(quoted(path)) == path
    bean = gauge("kafka.log", "LogManager", "LogDirectoryOffline", 0, logDirectory=quoted("/a,b"))
    pattern = parse_pattern('kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory="/a,b"')
    assert pattern.matches(bean.name)


def test_no_pattern_takes_long() -> None:
    started = time.process_time()
    assert not glob_matches("*a" * 200 + "b", "a" * 249)
    assert time.process_time() - started < 0.5


def test_requests_without_remote_time_count_as_zeros() -> None:
    histogram = Histogram(TIMES_NS)
    histogram.add(500_000_000)
    attributes = histogram_attributes(RecentHistogram(histogram), 100, 1e6, zeros=99)
    assert (attributes["50thPercentile"], attributes["Min"], attributes["Max"]) == (0.0, 0.0, 500.0)
    assert attributes["999thPercentile"] == pytest.approx(500, rel=0.2)
    assert attributes["Mean"] == 5.0
