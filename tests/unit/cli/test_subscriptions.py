"""How `ottla client-metrics values` parses the metrics page."""

import argparse

import pytest

from ottla.cli.commands.subscriptions import metric_rows
from ottla.cli.live_screen import metrics_url_of
from ottla.operations.metric_readings import URL_VARIABLE

PAGE = """\
# HELP ottla_client_producer_rate Told by clients as producer.rate.
# TYPE ottla_client_producer_rate gauge
ottla_client_producer_rate{client_id="a\\"b",client_instance_id="x",client_software_name="librdkafka",\
client_software_version="2.1",topic="orders",node="1"} 2.5
ottla_info{version="1"} 1
"""


def test_only_client_metrics_are_shown() -> None:
    assert list(metric_rows(PAGE)) == [('a"b', "librdkafka 2.1", "producer_rate", "topic=orders,node=1", "2.5")]


def test_the_endpoint_is_named_by_the_option_or_the_variable_or_is_the_usual_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    assert metrics_url_of(argparse.Namespace(url=None)) == "http://127.0.0.1:9404"
    monkeypatch.setenv(URL_VARIABLE, "http://other:1")
    assert metrics_url_of(argparse.Namespace(url=None)) == "http://other:1"
    assert metrics_url_of(argparse.Namespace(url="http://third:2")) == "http://third:2"
