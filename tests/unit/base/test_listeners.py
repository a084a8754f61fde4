"""Listeners under Kafka's rules; the messages were taken from Apache Kafka 4.3."""

import socket

import pytest

from ottla.base import listeners
from ottla.base.broker_settings import BrokerSettings, load_broker_settings
from ottla.base.listeners import (
    Listener,
    advertised_problem,
    own_host_name,
    parse_listeners,
    parse_protocol_map,
    split_listener_key,
)
from ottla.base.setting_types import BadValueError
from ottla.base.settings import SettingsError

PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "INSIDE": "PLAINTEXT"}


def parse(*items: str) -> tuple[Listener, ...]:
    return parse_listeners(items, PROTOCOLS)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("PLAINTEXT://:9092", "", 9092),
        ("plaintext://localhost:0", "localhost", 0),
        ("PLAINTEXT://[::1]:9092", "::1", 9092),
        ("PLAINTEXT://::1:9092", "::1", 9092),
        ("PLAINTEXT://[fe80::1%eth0]:5", "fe80::1%eth0", 5),
        ("PLAINTEXT://a_b.example-1:65535", "a_b.example-1", 65535),
    ],
)
def test_an_endpoint(text: str, host: str, port: int) -> None:
    assert parse(text) == (Listener("PLAINTEXT", host, port, "PLAINTEXT"),)


def test_a_listener_is_written_as_it_is_read() -> None:
    for text in ("PLAINTEXT://:9092", "INSIDE://[::1]:1", "SSL://host:5"):
        assert str(parse(text)[0]) == text


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ((":9092",), "Unable to parse :9092 to a broker endpoint"),
        (("PLAINTEXT//x:1",), "Unable to parse PLAINTEXT//x:1 to a broker endpoint"),
        (("PLAINTEXT://host",), "Unable to parse PLAINTEXT://host to a broker endpoint"),
        (("FOO://:1",), "No security protocol defined for listener FOO"),
        (("PLAINTEXT://:99999",), "port 99999 is not between 0 and 65535"),
        (("PLAINTEXT://:-1",), "port -1 is not between 0 and 65535"),
        (("PLAINTEXT://:" + "9" * 5000,), "is not between 0 and 65535"),
        (
            ("PLAINTEXT://:1", "plaintext://:2"),
            "Each listener must have a different name, listeners: [PLAINTEXT://:1, plaintext://:2]",
        ),
        (
            ("PLAINTEXT://:1", "SSL://:1"),
            "Each listener must have a different port, listeners: [PLAINTEXT://:1, SSL://:1]",
        ),
        (
            ("PLAINTEXT://127.0.0.1:1", "SSL://127.0.0.2:1"),
            (
                "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, "
                "listeners: [PLAINTEXT://127.0.0.1:1, SSL://127.0.0.2:1], port: 1"
            ),
        ),
        (
            ("PLAINTEXT://localhost:1", "SSL://[::1]:1"),
            (
                "Each listener must have a different port unless exactly one listener has an IPv4 address and the "
                "other IPv6 address, listeners: [PLAINTEXT://localhost:1, SSL://[::1]:1], port: 1"
            ),
        ),
        (
            ("PLAINTEXT://127.0.0.1:1", "SSL://[::1]:1", "INSIDE://10.0.0.1:1"),
            "Each listener must have a different port unless exactly one listener has an IPv4 address",
        ),
    ],
)
def test_what_cannot_be_opened(items: tuple[str, ...], problem: str) -> None:
    with pytest.raises(BadValueError) as caught:
        parse(*items)
    assert str(caught.value).startswith(f"Error creating broker listeners from '[{', '.join(items)}]': ")
    assert problem in str(caught.value)


def test_one_port_may_be_opened_for_both_versions_of_ip_and_port_zero_many_times() -> None:
    assert len(parse("PLAINTEXT://127.0.0.1:1", "SSL://[::1]:1")) == 2
    assert len(parse("PLAINTEXT://:0", "SSL://:0")) == 2


def test_controller_listeners_are_read_but_not_opened() -> None:
    found = parse_listeners(("PLAINTEXT://:1", "CONTROLLER://:2"), PROTOCOLS, ["CONTROLLER"])
    assert [listener.name for listener in found] == ["PLAINTEXT"]


def test_advertised_ports_may_be_equal() -> None:
    assert len(parse_listeners(("PLAINTEXT://h:5", "SSL://h:5"), PROTOCOLS, is_advertised=True)) == 2


def test_the_protocol_map_takes_names_in_any_case() -> None:
    assert parse_protocol_map("inside:plaintext, OUT:SSL,") == {"INSIDE": "PLAINTEXT", "OUT": "SSL"}
    assert parse_protocol_map("") == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("A:FOO", "Invalid security protocol `FOO` defined in listener.security.protocol.map"),
        ("PLAINTEXT", "Error parsing configuration property 'listener.security.protocol.map'"),
    ],
)
def test_a_broken_protocol_map(text: str, problem: str) -> None:
    with pytest.raises(BadValueError, match=problem):
        parse_protocol_map(text)


def test_what_may_not_be_advertised() -> None:
    bound = parse("PLAINTEXT://:9092")
    assert advertised_problem(parse("PLAINTEXT://h:1"), bound) is None
    assert "nonroutable meta-address 0.0.0.0" in str(advertised_problem(parse("PLAINTEXT://0.0.0.0:1"), bound))
    assert "Found SSL. The valid options" in str(advertised_problem(parse("SSL://h:1"), bound))


def test_a_machine_whose_name_does_not_resolve_is_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    own_host_name.cache_clear()
    try:
        host, warning = own_host_name()
    finally:
        own_host_name.cache_clear()
    assert host == listeners.LOOPBACK
    assert "does not resolve" in str(warning)


TWO = {
    "listeners": "PLAINTEXT://127.0.0.1:1,INTERNAL://127.0.0.1:2",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
}


def load(**texts: str) -> BrokerSettings:
    return load_broker_settings(None, {**TWO, **{key.replace("_", "."): value for key, value in texts.items()}})


def test_a_key_is_taken_apart() -> None:
    assert split_listener_key("listener.name.internal.max.connections") == ("internal", "max.connections")
    for other in ("listener.name.internal", "listener.name.", "listener.name.internal.", "max.connections"):
        assert split_listener_key(other) is None


def test_a_listeners_own_number_wins_and_the_brokers_is_the_default() -> None:
    settings = load(max_connections="9", listener_name_internal_max_connections="5")
    assert settings.of_listener("INTERNAL", "max.connections") == 5
    assert settings.of_listener("PLAINTEXT", "max.connections") == 9
    changed = settings.with_dynamic({"listener.name.internal.max.connections": "3"}, {})
    assert changed.of_listener("INTERNAL", "max.connections") == 3


def test_a_bad_value_names_its_place() -> None:
    with pytest.raises(SettingsError, match=r"--override listener.name.internal.max.connections: Invalid value x"):
        load(listener_name_internal_max_connections="x")


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("listener.name.outside.max.connections", "no listener is called outside"),
        ("listener.name.INTERNAL.max.connections", "no listener is called INTERNAL (written small)"),
        ("listener.name.internal.ssl.keystore.type", "because the format of a file is detected from its first bytes"),
        ("listener.name.internal.connections.max.idle.ms", "because all listeners share this setting"),
        ("listener.name.internal.no.such.key", "because all listeners share this setting"),
    ],
)
def test_a_key_without_effect_is_reported(key: str, reason: str) -> None:
    (warning,) = load_broker_settings(None, {**TWO, key: "1"}).warnings
    assert reason in warning
