"""Keys of older times."""

import pytest

from ottla.base.broker_settings import load_broker_settings
from ottla.base.settings import SettingsError

LISTENER = {"listeners": "PLAINTEXT://127.0.0.1:9092"}


def warnings_of(texts: dict[str, str]) -> tuple[str, ...]:
    return load_broker_settings(None, {**LISTENER, **texts}).warnings


def test_port_and_host_name_become_a_listener() -> None:
    settings = load_broker_settings(None, {"port": "9999", "host.name": "127.0.0.1"})
    assert [str(listener) for listener in settings.listeners] == ["PLAINTEXT://127.0.0.1:9999"]
    (warning,) = settings.warnings
    assert warning == "--override host.name: host.name and port: old, taken as listeners=PLAINTEXT://127.0.0.1:9999"


def test_advertised_names_become_an_advertised_listener() -> None:
    settings = load_broker_settings(None, {**LISTENER, "advertised.host.name": "::1", "advertised.port": "5"})
    assert [str(listener) for listener in settings.advertised_listeners] == ["PLAINTEXT://[::1]:5"]


def test_listeners_win_over_port() -> None:
    settings = load_broker_settings(None, {**LISTENER, "port": "1"})
    assert [str(listener) for listener in settings.listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert settings.warnings == ("--override port: port: not used, because listeners is set",)


def test_renamed_keys_are_taken_under_their_new_names() -> None:
    settings = load_broker_settings(None, {**LISTENER, "socket.send.buffer": "4096", "log.file.size": "2000000"})
    assert (settings.socket_send_buffer_bytes, settings.log_segment_bytes) == (4096, 2_000_000)
    assert len(settings.warnings) == 2


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("request.required.acks", "it is a setting of clients"),
        ("zookeeper.connection.timeout.ms", "no zookeeper.connect is set"),
        ("zookeeper.sync.time.ms", "the connection to ZooKeeper has no such setting"),
        ("quota.producer.default", "Kafka has retired it"),
        ("replica.lag.max.messages", "use replica.lag.time.max.ms"),
    ],
)
def test_retired_keys_have_a_reason(key: str, reason: str) -> None:
    (warning,) = warnings_of({key: "1"})
    assert warning.startswith(f"--override {key}: {key}: has no effect, because {reason}")


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("num.partition", "num.partitions"),
        ("log.retention.hour", "log.retention.hours"),
        ("Log_Dirs", "log.dirs"),
        ("advertised.listner", "advertised.listeners"),
    ],
)
def test_a_typo_is_reported_with_the_nearest_key(typo: str, meant: str) -> None:
    (warning,) = warnings_of({typo: "1"})
    assert warning.endswith(f"unknown key, ignored: did you mean {meant}?")


def test_an_unknown_key_without_a_near_one() -> None:
    (warning,) = warnings_of({"qqqq.zzzz": "1"})
    assert "did you mean" not in warning


def test_keys_of_single_listeners_are_known() -> None:
    assert warnings_of({"listener.name.plaintext.max.connections": "5"}) == ()


def test_zookeeper_makes_a_broker_one_of_several() -> None:
    settings = load_broker_settings(None, {**LISTENER, "broker.id": "2", "zookeeper.connect": "zoo1:2181,zoo2/kafka"})
    assert (settings.zookeeper_connect, settings.node_id) == ("zoo1:2181,zoo2/kafka", 2)
    assert settings.zookeeper_session_timeout_ms == 6000
    assert settings.warnings == ()


def test_an_empty_address_of_zookeeper_is_none() -> None:
    settings = load_broker_settings(None, {**LISTENER, "zookeeper.connect": " "})
    assert (settings.zookeeper_connect, settings.node_id) == (None, 1)
    assert len(settings.warnings) == 1


@pytest.mark.parametrize("given", [{}, {"broker.id": "-1"}])
def test_a_broker_of_a_cluster_without_a_number_waits_for_one(given: dict[str, str]) -> None:
    settings = load_broker_settings(None, {**LISTENER, **given, "zookeeper.connect": "localhost:2181"})
    assert settings.node_id == -1
    numbered = settings.with_node_id(1001)
    assert (numbered.node_id, numbered.broker_id, numbered.zookeeper_connect) == (1001, 1001, "localhost:2181")


def test_ssl_mode_stops_the_start_only_when_it_is_on() -> None:
    with pytest.raises(SettingsError, match="asks for TLS: remove the line, and give listeners one with SSL://"):
        warnings_of({"ssl.mode.enable": "true"})
    assert warnings_of({"ssl.mode.enable": "false"}) == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("port", "9999"),
        ("host.name", "127.0.0.1"),
        ("advertised.host.name", "10.0.0.1"),
        ("advertised.port", "9999"),
        ("log.dir", "/data"),
        ("request.required.acks", "-1"),
        ("security.protocol", "SASL_PLAINTEXT"),
        ("group.id", "g"),
        ("enable.idempotence", "true"),
        ("max.in.flight.requests.per.connection", "1"),
        ("zookeeper.connection.timeout.ms", "6000"),
    ],
)
def test_each_old_key_of_the_sources_is_one_line_of_warning(key: str, value: str) -> None:
    (warning,) = warnings_of({key: value})
    assert warning.startswith(f"--override {key}: {key}: ")
    assert "unknown key" not in warning


@pytest.mark.parametrize(("key", "value"), [("sasl.kerberos.service.name", "kafka"), ("ssl.mode.enable", "false")])
def test_other_keys_of_the_sources_are_taken_without_a_word(key: str, value: str) -> None:
    assert warnings_of({key: value}) == ()
