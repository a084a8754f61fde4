"""What broker settings must be among themselves."""

import pytest

from ottla.base.broker_checks import broker_warnings, check_broker_settings, parse_connection_overrides
from ottla.base.broker_settings import BrokerSettings, find_key
from ottla.base.setting_types import BadValueError

ONE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
}


def problem_of(texts: dict[str, str]) -> str | None:
    try:
        check_broker_settings(BrokerSettings({"listeners": "PLAINTEXT://127.0.0.1:9092", **texts}))
    except BadValueError as bad:
        return str(bad)
    return None


@pytest.mark.parametrize(
    "texts",
    [
        {},
        ONE_NODE,
        {**ONE_NODE, "inter.broker.listener.name": "plaintext"},
        {"process.roles": "broker"},
        {"log.retention.ms": "-5"},
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5, ::1:7"},
        {"queued.max.request.bytes": "0"},
        {"ottla.metrics.host": "0.0.0.0"},  # no port: the endpoint is off
        {"ottla.metrics.host": "0.0.0.0", "ottla.metrics.port": "1", "ottla.metrics.insecure": "true"},
        {"ottla.metrics.host": "::1", "ottla.metrics.port": "1"},
        {
            "ottla.metrics.host": "0.0.0.0",
            "ottla.metrics.port": "1",
            "ottla.metrics.ssl.keystore.location": "a.pem",
            "ottla.metrics.username": "a",
            "ottla.metrics.password": "b",
        },
        {"security.inter.broker.protocol": "PLAINTEXT"},
        {
            "listeners": "IN://127.0.0.1:1,OUT://127.0.0.1:2",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
        },
    ],
)
def test_what_one_broker_can_run_with(texts: dict[str, str]) -> None:
    assert problem_of(texts) is None


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        ({"ottla.metrics.host": "0.0.0.0", "ottla.metrics.port": "1"}, "or allow it with ottla.metrics.insecure=true"),
        (
            {
                "ottla.metrics.host": "0.0.0.0",
                "ottla.metrics.port": "1",
                "ottla.metrics.ssl.keystore.location": "a.pem",
            },
            "or allow it with ottla.metrics.insecure=true",
        ),
        ({"ottla.metrics.port": "1", "ottla.metrics.username": "a"}, "are set together, or not at all"),
        ({"process.roles": "controller"}, "a cluster needs ZooKeeper"),
        ({**ONE_NODE, "controller.quorum.voters": "1@a:1,2@b:1,3@c:1"}, "a cluster needs ZooKeeper"),
        ({**ONE_NODE, "controller.quorum.voters": "9@a:1"}, "9@a:1 is another node than 1"),
        ({"controller.quorum.bootstrap.servers": "a:1,b:1"}, "a cluster needs ZooKeeper"),
        ({"controller.quorum.voters": "abc"}, "Each entry should be in the form `{id}@{host}:{port}`."),
        ({"node.id": "1", "broker.id": "2"}, "You must set `node.id` to the same value as `broker.id`."),
        (
            {"zookeeper.connect": "zoo", "broker.id.generation.enable": "false"},
            "broker.id must be greater than or equal to 0",
        ),
        (
            {"zookeeper.connect": "zoo", "broker.id": "1001"},
            "broker.id must be greater than or equal to -1 and not greater than reserved.broker.max.id",
        ),
        ({"zookeeper.connect": "zoo", "process.roles": "broker,controller"}, "set only one of them"),
        ({"listeners": "CONTROLLER://:1", "controller.listener.names": "CONTROLLER"}, "none that clients could use"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot use the nonroutable meta-address 0.0.0.0"),
        ({"advertised.listeners": "SSL://x:5"}, "listener names must be equal to or a subset"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
        ),
        (
            {"listeners": "SASL_PLAINTEXT://x:1", "zookeeper.connect": "z:1"},
            "security.inter.broker.protocol is PLAINTEXT, and no listener has it",
        ),
        ({"inter.broker.listener.name": "C"}, "inter.broker.listener.name must be a listener name defined in"),
        ({"log.retention.hours": "0"}, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
        ({"log.roll.ms": "0"}, "log.roll.ms must be greater than or equal to 1"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms must be greater than or equal to 0"),
        (
            {"max.connections.per.ip": "0"},
            "can be set to zero only if max.connections.per.ip.overrides property is set.",
        ),
        ({"max.connections.per.ip.overrides": "a"}, "'a' is not HOST:NUMBER"),
        ({"max.connections.per.ip.overrides": "a b:5"}, "contains invalid addresses : a b"),
        ({"max.connections.per.ip.overrides": "a:b"}, 'For input string: "b"'),
        ({"cordoned.log.dirs": "/no,*"}, "Missing entries : /no"),
        ({"log.cleaner.threads": "0"}, "log.cleaner.threads must be greater than or equal to 1"),
        ({"queued.max.request.bytes": "100"}, "must be larger or equal to socket.request.max.bytes"),
        ({"log.cleaner.dedupe.buffer.size": "1000"}, "must be at least 1MB per cleaner thread."),
        ({"replica.fetch.wait.max.ms": "999999"}, "replica.socket.timeout.ms should always be at least"),
        ({"replica.lag.time.max.ms": "100"}, "to prevent frequent changes in ISR"),
        ({"offsets.topic.compression.codec": "9"}, "Unknown compression type id: 9"),
        ({"remote.log.storage.system.enable": "true"}, "remote storage, which is not built"),
    ],
)
def test_invalid_settings_stop_the_start(texts: dict[str, str], problem: str) -> None:
    found = problem_of(texts)
    assert found is not None
    assert problem in found
    assert "\n" not in found


def test_limits_of_single_addresses() -> None:
    assert parse_connection_overrides("127.0.0.1:5, ::1:7,") == {"127.0.0.1": 5, "::1": 7}
    with pytest.raises(BadValueError):
        parse_connection_overrides("host:many")


def test_what_is_doubtful_about_logins() -> None:
    def said(**texts: str) -> str:
        return " | ".join(
            broker_warnings(BrokerSettings({key.replace("_", "."): value for key, value in texts.items()}))
        )

    clear = "passwords cross the network as they are"
    listeners = "listener.name.a"
    assert clear in said(listeners="SASL_PLAINTEXT://:9092", sasl_enabled_mechanisms="PLAIN")
    assert clear not in said(listeners="SASL_PLAINTEXT://127.0.0.1:9092", sasl_enabled_mechanisms="PLAIN")
    assert clear not in said(listeners="SASL_PLAINTEXT://:9092", sasl_enabled_mechanisms="SCRAM-SHA-512")
    assert "every client with access" not in said(listeners="SASL_PLAINTEXT://:9092")
    assert "sasl.jaas.config: has no effect" in said(sasl_jaas_config="x")
    own = {f"{listeners}.plain.sasl.jaas.config": "geheim", f"{listeners}.sasl.enabled.mechanisms": "PLAIN"}
    protocols = {"listeners": "A://127.0.0.1:1", "listener.security.protocol.map": "A:SASL_PLAINTEXT"}
    assert broker_warnings(BrokerSettings({**protocols, **own})) == []


def test_the_login_of_a_listener_is_a_secret() -> None:
    key = find_key("listener.name.a.scram-sha-512.sasl.jaas.config")
    assert key is not None
    assert key.is_sensitive
