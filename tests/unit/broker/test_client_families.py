"""Metrics of clients on the Prometheus page: nothing that a client says may spoil it."""

from ottla.broker.monitoring.client_families import client_families
from ottla.broker.telemetry.client_metrics import Sample

CLIENT = {
    "client_id": 'a"b',
    "client_instance_id": "id",
    "client_software_name": "librdkafka",
    "client_software_version": "2",
}


def sample(name: str, value: float = 1.0, is_counter: bool = True, **attributes: str) -> Sample:
    return Sample(CLIENT, name, tuple(attributes.items()), value, is_counter)


def test_a_metric_gets_a_name_and_its_client_as_labels() -> None:
    (family,) = client_families([sample("org.apache.kafka.producer.record.send.total", 7.0, topic="orders")])
    assert (family.name, family.kind) == ("ottla_client_producer_record_send_total", "counter")
    assert dict(family.samples[0].labels) == {**CLIENT, "topic": "orders"}
    assert family.samples[0].value == 7.0


def test_of_two_metrics_that_get_the_same_name_the_first_counts() -> None:
    families = list(client_families([sample("a.b", 1.0), sample("a_b", 2.0)]))
    assert [(family.name, family.samples[0].value) for family in families] == [("ottla_client_a_b", 1.0)]


def test_of_two_samples_with_the_same_labels_the_first_counts() -> None:
    (family,) = client_families([sample("a", 1.0, **{"x.y": "1"}), sample("a", 2.0, x_y="1")])
    assert [item.value for item in family.samples] == [1.0]


def test_a_client_cannot_pretend_to_be_another_one() -> None:
    (family,) = client_families([sample("a", client_id="somebody else")])
    assert dict(family.samples[0].labels)["client_id"] == CLIENT["client_id"]


def test_strange_names_become_names() -> None:
    families = list(client_families([sample("1 {}\n", **{"0": "x"}), sample("")]))
    assert [family.name for family in families] == ["ottla_client_x_1", "ottla_client_x_"]
    assert "x_0" in dict(families[0].samples[0].labels)


def test_a_metric_that_some_call_a_counter_and_some_do_not_is_a_gauge() -> None:
    (family,) = client_families([sample("a", topic="1"), sample("a", is_counter=False, topic="2")])
    assert family.kind == "gauge"
