"""The page of the metrics endpoint as `ottla client-metrics values` reads it."""

from ottla.cli.subscriptions import metric_rows

PAGE = """\
# HELP ottla_client_producer_rate Told by clients as producer.rate.
# TYPE ottla_client_producer_rate gauge
ottla_client_producer_rate{client_id="a\\"b",client_instance_id="x",client_software_name="librdkafka",\
client_software_version="2.1",topic="orders",node="1"} 2.5
ottla_info{version="1"} 1
"""


def test_only_what_clients_told_is_shown() -> None:
    assert list(metric_rows(PAGE)) == [('a"b', "librdkafka 2.1", "producer_rate", "topic=orders,node=1", "2.5")]
