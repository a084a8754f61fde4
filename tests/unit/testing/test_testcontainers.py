"""Arguments that the replacement for testcontainers supports, and those that it refuses."""

import pytest

from ottla.testing.child import BrokerError
from ottla.testing.testcontainers import KafkaContainer


def test_variables_of_the_environment_become_settings() -> None:
    container = KafkaContainer().with_env("KAFKA_MESSAGE_MAX_BYTES", "2000").with_envs(KAFKA_NUM_PARTITIONS="3")
    settings = container.settings()
    assert settings["message.max.bytes"] == "2000"
    assert settings["num.partitions"] == "3"
    assert settings["offsets.topic.num.partitions"] == "1"


def test_where_it_listens_is_not_up_to_the_environment() -> None:
    container = KafkaContainer(env={"KAFKA_LISTENERS": "X://0.0.0.0:9093", "KAFKA_HEAP_OPTS": "-Xmx1G"}).with_kraft()
    assert not {"listeners", "heap.opts"} & container.settings().keys()


def test_a_port_can_be_bound() -> None:
    container = KafkaContainer().with_bind_ports(9093, 19_393)
    assert container.settings()["listeners"] == "PLAINTEXT://127.0.0.1:19393"


@pytest.mark.parametrize(
    "ask",
    [
        lambda container: container.with_network(object()),
        lambda container: container.with_volume_mapping("/a", "/b"),
        lambda container: container.with_command("ls"),
        lambda container: container.with_exposed_ports(8080),
        lambda container: container.with_kwargs(mem_limit="1g"),
        lambda container: container.get_wrapped_container(),
    ],
)
def test_what_needs_a_container_is_refused_with_a_reason(ask) -> None:
    with pytest.raises(NotImplementedError, match=r"KafkaContainer cannot do .+: .+"):
        ask(KafkaContainer())


def test_an_address_before_the_start_is_refused_with_the_cure() -> None:
    with pytest.raises(BrokerError, match=r"call start\(\)"):
        KafkaContainer().get_bootstrap_server()


def test_security_protocols_that_it_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="PLAINTEXT listeners only"):
        KafkaContainer(security_protocol="SASL_SSL")
