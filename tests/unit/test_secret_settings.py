"""No setting that is a password is shown anywhere that settings are shown: each is tried at each place."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator

import pytest
from tests.unit.broker.test_configs import FakeContext
from tests.unit.broker.test_resource_changes import WHO, altered
from tests.unit.broker.test_server_authenticator import NoCredentials
from tests.virtual_time import LoopClock

from ottla.base.broker_settings import BrokerSettings, load_broker_settings
from ottla.base.errors import Error
from ottla.base.listeners import SASL_KEYS, TLS_KEYS
from ottla.base.settings import SettingsError
from ottla.broker.audit.event import encode_event
from ottla.broker.configs.dynamic_broker_config import DynamicBrokerConfig
from ottla.broker.security.listener_mechanisms import listener_rules
from ottla.cli.java.options import OptionError
from ottla.cli.kafka.configs import parse_added, redact_arguments
from ottla.cli.metadata.tree import without_secrets
from ottla.console.clusters import cluster
from ottla.controller.decisions.config_changes import ConfigOperation, ConfigResourceType, OperationType
from ottla.controller.image import MetadataImage
from ottla.operations.cluster_policy import cluster_state
from ottla.operations.cluster_policy.cluster_plan import CHANGE, SettingChange
from ottla.security.jaas import JaasError

BROKER = ConfigResourceType.BROKER
MARK = "topsecret"
PASSWORDS = sorted(name for name, key in BrokerSettings.keys.items() if key.is_sensitive)
OF_LISTENERS = sorted(
    f"listener.name.clients.{'plain.' if name in SASL_KEYS else ''}{name}"
    for name in PASSWORDS
    if name in SASL_KEYS | TLS_KEYS
)
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
# As people write them, rightly or not.
VALUES = (
    MARK,
    f'{MODULE} user_admin="{MARK}";',
    f"{MODULE} user_admin={MARK}",
    f'{MODULE} user_admin="a,{MARK}" user_b="c={MARK}";',
    f'{MODULE} user_admin "{MARK}";',
    f'"{MARK}" required;',
    f"{MARK} required {MARK};",
    f"{MODULE} {MARK} ;",
    f"{MODULE} {MARK}= ;",
    f"com.example.Unknown required password={MARK};",
    f'com.sun.security.auth.module.JndiLoginModule required password="{MARK}";',
    f"-----BEGIN PRIVATE KEY-----\n{MARK}=\n-----END PRIVATE KEY-----",
)


@pytest.fixture(autouse=True)
def nothing_in_the_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    assert MARK not in caplog.text


def complaint(make: Callable[..., object], *words: str) -> str:
    try:
        make(*words)
    except (OptionError, JaasError, SettingsError) as problem:
        return str(problem)
    return ""


def test_there_are_passwords_to_try() -> None:
    assert {"sasl.jaas.config", "ssl.keystore.key", "ssl.key.password", "password.encoder.secret"} <= set(PASSWORDS)
    assert "listener.name.clients.plain.sasl.jaas.config" in OF_LISTENERS
    assert "listener.name.clients.ssl.keystore.key" in OF_LISTENERS


@pytest.mark.parametrize("name", [*PASSWORDS, *OF_LISTENERS, "my.plugin.key", "user_admin", "SCRAM-SHA-256"])
@pytest.mark.parametrize("value", VALUES)
def test_kafka_configs_quoted_its_arguments_with_passwords(name: str, value: str) -> None:
    for added in (f"{name}={value}", f"{name}=[{value}]", f"num.io.threads=8,{name}=[{value}]", f"{name}=[[{value}]]"):
        for words in (
            ["--alter", "--add-config", added, "--entity-type", "brokers"],
            ["--alter", f"--add-config={added}"],
        ):
            assert MARK not in " ".join(redact_arguments(words, added))
            if name != "my.plugin.key":
                assert MARK not in " ".join(redact_arguments(words, added, hides_unknown=False))
        assert MARK not in complaint(parse_added, added)


def test_kafka_configs_quotes_what_is_no_password() -> None:
    words = ["--alter", "--add-config", "retention.ms=1000,cleanup.policy=[compact,delete],ssl.keystore.key=x"]
    shown = redact_arguments(words, words[2])
    assert shown[2] == "retention.ms=1000,cleanup.policy=[compact,delete],ssl.keystore.key=[hidden]"
    assert redact_arguments(["--add-config", "kafka.server=DEBUG"], "kafka.server=DEBUG")[1] == "kafka.server=DEBUG"
    assert redact_arguments(["--describe"], "") == ["--describe"]
    assert redact_arguments(["--add-config", "nonsense=[1]"], "nonsense=[1]", hides_unknown=False)[1] == "nonsense=[1]"
    assert redact_arguments(["--add-config", "nonsense=[1]"], "nonsense=[1]")[1] == "nonsense=[hidden]"


@pytest.mark.parametrize("name", [*PASSWORDS, *OF_LISTENERS, "my.plugin.key"])
@pytest.mark.parametrize("value", VALUES)
def test_brokers_answer_without_passwords(name: str, value: str) -> None:
    context = FakeContext(**{name.replace(".", "_"): MARK} if name in PASSWORDS else {})
    for broker in ("1", ""):
        for answer in (
            context.change(BROKER, broker, (OperationType.SET, name, value), validate_only=True),
            context.change(
                BROKER, broker, (OperationType.SET, name, value), (OperationType.SET, "num.io.threads", "x")
            ),
            context.change(BROKER, broker, (OperationType.APPEND, name, value)),
            context.change(BROKER, broker, (OperationType.SET, name, value)),
            context.describe(BROKER, broker),
        ):
            assert MARK not in repr(answer)
    assert MARK not in repr(ConfigOperation(OperationType.SET, name, value))


@pytest.mark.parametrize("name", [*PASSWORDS, *OF_LISTENERS, "my.plugin.key"])
@pytest.mark.parametrize("value", VALUES)
def test_logs_audit_and_tools_show_no_passwords(name: str, value: str) -> None:
    for error in (Error.NONE, Error.INVALID_REQUEST):
        change = altered(BROKER, "1", (OperationType.SET, name, value), error=error)
        line = encode_event("config.alter", WHO, change, id_="1", time_ms=0, broker=1)
        assert MARK.encode() not in line.value
    if name == "my.plugin.key":
        return  # what is stored of it is shown as it is
    node = json.dumps({"version": 1, "config": {name: value, "num.io.threads": "8"}}).encode()
    assert MARK.encode() not in without_secrets(node)
    assert b'"num.io.threads": "8"' in without_secrets(node)
    assert MARK not in repr(SettingChange(CHANGE, "brokers", "1", name, value, value).row())
    assert cluster_state.is_secret(name)
    assert cluster.is_secret(name) or "certificate" in name  # which the console shows of its own properties
    settings = BrokerSettings({"node.id": "1", name: value})
    assert MARK not in repr(settings)
    DynamicBrokerConfig(settings).apply_image(MetadataImage().with_broker_config("1", {name: value}))


@pytest.mark.parametrize("value", VALUES)
def test_a_start_that_fails_prints_no_password(value: str) -> None:
    name = "listener.name.clients.plain.sasl.jaas.config"
    settings = {
        "listeners": "CLIENTS://127.0.0.1:9092",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        "sasl.enabled.mechanisms": "PLAIN",
        name: value,
    }
    said = complaint(lambda: listener_rules(load_broker_settings(None, settings), {}, NoCredentials(), LoopClock()))
    assert name in said or not said
    assert MARK not in said
