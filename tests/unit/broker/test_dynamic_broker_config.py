"""Passwords among dynamic settings, on a standalone broker with its own store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.unit.broker.handler_stand import Broker, Client, with_broker
from tests.unit.broker.nodes import node

from ottla.base.errors import Error
from ottla.base.password_encoder import Encoding, decode_password, encode_password
from ottla.broker.configs.dynamic_broker_config import StoredPasswordEncoder, encode_once, replace_values
from ottla.broker.handlers import incremental_alter_configs
from ottla.controller.decisions.config_changes import (
    ConfigOperation,
    ConfigResourceChange,
    ConfigResourceType,
    OperationType,
)
from ottla.protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)

KEY = "listener.name.clients.ssl.key.password"
SECRET = {"password_encoder_secret": "the secret"}


def request(*changes: tuple[str, str], broker: str = "1") -> IncrementalAlterConfigsRequest:
    configs = [IncrementalAlterableConfig(name=name, config_operation=0, value=value) for name, value in changes]
    return IncrementalAlterConfigsRequest(
        resources=[IncrementalAlterConfigsResource(resource_type=4, resource_name=broker, configs=configs)]
    )


async def change(broker: Broker, *changes: tuple[str, str]) -> tuple[int, str | None]:
    given: Any = broker
    given.node_id, given.workers = 1, asyncio.get_running_loop()._default_executor  # type: ignore[attr-defined]
    answer = await Client(broker).ask(incremental_alter_configs.handle, request(*changes), 1)
    (row,) = answer.responses
    return row.error_code, row.error_message


def test_a_password_is_stored_plain_without_a_secret_and_encrypted_with_one(tmp_path: Path) -> None:
    async def plain(broker: Broker) -> None:
        assert await change(broker, (KEY, "geheim"), ("num.io.threads", "8")) == (0, None)
        assert broker.image.broker_configs["1"] == {KEY: "geheim", "num.io.threads": "8"}

    async def encrypted(broker: Broker) -> None:
        assert await change(broker, (KEY, "geheim"), ("num.io.threads", "8")) == (0, None)
        stored = broker.image.broker_configs["1"]
        assert stored["num.io.threads"] == "8"
        assert decode_password(stored[KEY], "the secret") == "geheim"
        assert await change(broker, ("num.io.threads", "9")) == (0, None)
        assert broker.image.broker_configs["1"] == {KEY: stored[KEY], "num.io.threads": "9"}
        assert await change(broker, (KEY, stored[KEY])) == (0, None)  # it is not encrypted twice
        assert broker.image.broker_configs["1"][KEY] == stored[KEY]

    (tmp_path / "plain").mkdir()
    (tmp_path / "encrypted").mkdir()
    with_broker(tmp_path / "plain", plain)
    with_broker(tmp_path / "encrypted", encrypted, **SECRET)


def test_the_encoder_settings_are_used() -> None:
    settings = node(
        {
            "password.encoder.secret": "the secret",
            "password.encoder.keyfactory.algorithm": "PBKDF2WithHmacSHA256",
            "password.encoder.cipher.algorithm": "AES/GCM/NoPadding",
            "password.encoder.key.length": "256",
            "password.encoder.iterations": "2000",
        }
    ).settings
    text = encode_once("geheim", settings)
    for part in ("PBKDF2WithHmacSHA256", "AES/GCM/NoPadding", "keyLength:256,", "iterations:2000,"):
        assert part in text
    assert settings.decoded({KEY: text}) == {KEY: "geheim"}


def test_with_zookeeper_a_password_must_be_encrypted_or_in_a_protected_node(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        settings = {"broker.id": "1", "zookeeper.connect": "localhost:2181"}
        broker.settings = node(settings).settings
        code, message = await change(broker, (KEY, "geheim"))
        assert code == Error.INVALID_REQUEST
        assert message is not None
        assert KEY in message
        assert "geheim" not in message
        assert "password.encoder.secret" in message
        assert "zookeeper.set.acl=true" in message
        assert await change(broker, ("num.io.threads", "8")) == (0, None)
        broker.settings = node({**settings, "zookeeper.set.acl": "true"}).settings
        assert await change(broker, (KEY, "geheim")) == (0, None)

    with_broker(tmp_path, play)


def test_a_forwarded_password_is_encrypted() -> None:
    asked = request((KEY, "geheim"), ("num.io.threads", "8")).resources[0]
    operations = (
        ConfigOperation(OperationType.SET, KEY, "x:y"),
        ConfigOperation(OperationType.SET, "num.io.threads", "8"),
    )
    passed = replace_values(ConfigResourceChange(ConfigResourceType.BROKER, "1", operations), asked)
    assert [(config.name, config.value) for config in passed.configs] == [(KEY, "x:y"), ("num.io.threads", "8")]
    assert asked.configs[0].value == "geheim"


def test_stored_passwords_are_encrypted_again_with_the_current_secret(tmp_path: Path) -> None:
    other = "listener.name.clients.ssl.keystore.password"
    lost = "listener.name.clients.ssl.truststore.password"

    async def play(broker: Broker) -> None:
        old = encode_password("older", "before", Encoding())
        unknown = encode_password("?", "forgotten", Encoding())
        stored = {KEY: "plain", other: old, lost: unknown, "num.io.threads": "8"}
        broker.settings = node({"broker.id": "1"}).settings
        await change(broker, *stored.items())
        assert broker.image.broker_configs["1"] == stored
        me = node({"broker.id": "1", "password.encoder.secret": "now", "password.encoder.old.secret": "before"})
        me.images.image = broker.image
        workers = asyncio.get_running_loop()._default_executor  # type: ignore[attr-defined]
        parts: Any = SimpleNamespace(node=me, workers=workers, controller=broker.controller)
        passwords = StoredPasswordEncoder(parts, None)
        await passwords.encode_outdated()
        now = broker.image.broker_configs["1"]
        assert {name: decode_password(now[name], "now") for name in (KEY, other)} == {KEY: "plain", other: "older"}
        assert (now[lost], now["num.io.threads"]) == (unknown, "8")
        me.images.image = broker.image
        await passwords.encode_outdated()
        assert broker.image.broker_configs["1"] == now

    with_broker(tmp_path, play)
