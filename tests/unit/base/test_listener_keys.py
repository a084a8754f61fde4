"""Settings of single listeners."""

import pytest

from ottla.base.broker_settings import BrokerSettings, load_broker_settings
from ottla.base.listener_keys import split_listener_key
from ottla.base.settings import SettingsError

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
        ("listener.name.internal.ssl.keystore.type", "because the form of a file is seen in its first bytes"),
        ("listener.name.internal.connections.max.idle.ms", "because all listeners share this setting"),
        ("listener.name.internal.no.such.key", "because all listeners share this setting"),
    ],
)
def test_a_key_without_effect_is_told(key: str, reason: str) -> None:
    (warning,) = load_broker_settings(None, {**TWO, key: "1"}).warnings
    assert reason in warning
