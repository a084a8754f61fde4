"""What counts only for a change of a running broker's settings. The words are compared with Kafka in conformance."""

import pytest

from ottla.base.broker_settings import BrokerSettings
from ottla.base.dynamic_config_rules import change_mode, change_problem
from ottla.base.settings import Mode

BEFORE = BrokerSettings({"listeners": "PLAINTEXT://127.0.0.1:1"})


def problem_of(**texts: str) -> str | None:
    return change_problem(BEFORE, BEFORE.with_dynamic({}, {key.replace("_", "."): text for key, text in texts.items()}))


@pytest.mark.parametrize(
    ("key", "mode"),
    [
        ("log.retention.ms", Mode.CLUSTER_WIDE),
        ("cordoned.log.dirs", Mode.PER_BROKER),
        ("num.partitions", Mode.READ_ONLY),
        ("listener.name.internal.max.connections", Mode.CLUSTER_WIDE),
        ("listener.name.internal.ssl.keystore.location", Mode.PER_BROKER),
        ("listener.name.internal.ssl.keystore.type", Mode.PER_BROKER),
        ("listener.name.internal.plain.sasl.jaas.config", Mode.PER_BROKER),
        ("listener.name.internal.sasl.oauthbearer.jwks.endpoint.url", Mode.READ_ONLY),
        ("listener.name.internal.sasl.server.callback.handler.class", Mode.READ_ONLY),
        ("listener.name.internal.cordoned.log.dirs", Mode.READ_ONLY),
        ("ssl.keystore.location", Mode.PER_LISTENER),
        ("sasl.kerberos.min.time.before.relogin", Mode.PER_BROKER),
        ("no.such.key", Mode.CLUSTER_WIDE),
        ("listener.name.internal.no.such.key", Mode.PER_BROKER),
    ],
)
def test_for_whom_a_key_may_be_changed(key: str, mode: Mode) -> None:
    assert change_mode(key) is mode


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"num_io_threads": "3"}, "num.io.threads=3, value should be at least half the current value 8"),
        ({"num_io_threads": "17"}, "num.io.threads=17, value should not be greater than double the current value 8"),
        ({"listener_name_plaintext_num_network_threads": "7"}, "num.network.threads=7, value should not be greater"),
        ({"log_cleaner_threads": "3"}, "Log cleaner threads cannot be increased to more than double"),
        ({"max_connections": "0"}, "Invalid max.connections 0"),
        ({"listener_name_plaintext_max_connection_creation_rate": "0"}, "Invalid max.connection.creation.rate 0"),
        ({"log_local_retention_ms": "-1"}, "Value must not be -1 as log.retention.ms value is set as 604800000."),
        (
            {"log_local_retention_bytes": "9", "log_retention_bytes": "8"},
            "Value must not be more than log.retention.bytes property value: 8",
        ),
    ],
)
def test_steps_that_are_too_large(texts: dict[str, str], words: str) -> None:
    assert words in str(problem_of(**texts))


@pytest.mark.parametrize(
    "texts",
    [
        {},
        {"num_io_threads": "4"},
        {"num_io_threads": "16"},
        {"num_network_threads": "1"},  # half of 3, as whole numbers go
        {"log_retention_bytes": "-3"},
        {"max_connections": "1"},
    ],
)
def test_steps_that_are_taken(texts: dict[str, str]) -> None:
    assert problem_of(**texts) is None
