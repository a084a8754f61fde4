"""Dynamic settings of a broker (Kafka's DynamicBrokerConfig): the current settings, and the encryption of stored
passwords.

Rules for passwords among the dynamic settings:
1. The broker whose settings change encrypts them (password.encoder.secret) before the controller receives them.
2. Without that secret a broker with ZooKeeper accepts a password only if zookeeper.set.acl=true protects its node.
3. A stored password that is plain, or encrypted with the old secret, is encrypted again at run time.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.base.broker_keys.zookeeper import encoding_of
from ottla.base.broker_settings import BrokerSettings, is_password
from ottla.base.errors import Error, KafkaError
from ottla.base.password_encoder import decode_password, encode_password, is_encoded
from ottla.base.tasks import notify_safely
from ottla.base.topic_keys import topic_settings, validate_topic_overrides
from ottla.base.topic_settings import TopicSettings
from ottla.controller import tree
from ottla.controller.decisions.config_changes import ConfigResourceChange, ConfigResourceType, OperationType
from ottla.controller.decisions.decision import Decision, config_operations
from ottla.controller.image import MetadataImage
from ottla.controller.stores.store import CreateNode, MetadataStore, SetNode, StoreError
from ottla.security.remote_settings import dynamic_config_problem

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.services import BrokerServices


logger = logging.getLogger(__name__)

UNDECODABLE: Final = (
    "was encrypted with another secret than password.encoder.secret, or password.encoder.old.secret, of this broker"
)

STORED_PASSWORDS_CHECK_MS: Final = 60_000
REMEDY: Final = (
    "set password.encoder.secret in the broker's server.properties (it encrypts them), or zookeeper.set.acl=true."
)


class DynamicBrokerConfig:
    """The current BrokerSettings: the file's, overridden by dynamic settings."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.broker = settings
        self._listeners: list[Callable[[BrokerSettings], None]] = []
        self._applied: Mapping[str, str] = {}  # own dynamic settings of the image, and the accepted part of them:
        self._applied_allowed: Mapping[str, str] = self._applied

    def on_change(self, listener: Callable[[BrokerSettings], None]) -> None:
        """Call the listener with the new settings after each change."""
        self._listeners.append(listener)

    def apply_image(self, image: MetadataImage) -> bool:
        """Apply the dynamic settings of an image; returns whether anything changed."""
        after = self.with_image(image)
        if (
            after.cluster_default == self.broker.cluster_default
            and after.broker_overrides == self.broker.broker_overrides
        ):
            return False
        self.broker = after
        for listener in self._listeners:
            notify_safely(listener, self.broker)  # a failing one must not keep the others from the new settings
        return True

    def with_image(self, image: MetadataImage) -> BrokerSettings:
        """Return the broker's settings with the changes of an image."""
        changes = image.broker_configs
        return self.broker.with_dynamic(
            changes.get("", {}), self._without_disallowed(changes.get(str(self.broker.node_id), {}))
        )

    def _without_disallowed(self, own: Mapping[str, str]) -> Mapping[str, str]:
        """Return the settings without those that the settings file does not allow."""
        if own is not self._applied:
            plain = self.broker.decoded(own)
            problems = {name: dynamic_config_problem(self.broker, name, text) for name, text in plain.items()}
            problems |= {name: f"{name} {UNDECODABLE}" for name in own.keys() - plain.keys()}
            for problem in filter(None, problems.values()):
                logger.warning("a dynamic setting has no effect: %s", problem)
            self._applied = own
            self._applied_allowed = {name: text for name, text in plain.items() if problems[name] is None}
        return self._applied_allowed

    def topic_settings(self, image: MetadataImage, topic: str) -> TopicSettings:
        return topic_settings(self.broker, image.topic_configs.get(topic, {}))

    def check_topic_configs(self, configs: Mapping[str, str]) -> None:
        validate_topic_overrides(self.broker, configs)


async def encode_passwords(change: ConfigResourceChange, context: Context) -> ConfigResourceChange:
    """Return the change as it may be stored. Raises KafkaError."""
    settings = context.broker.settings
    names = [each.name for each in change.operations if each.type is OperationType.SET and is_password(each.name)]
    if change.resource_type != ConfigResourceType.BROKER or not names or context.is_forwarded:
        return change  # a forwarded change is already encrypted
    if settings.password_encoder_secret is None:
        if settings.zookeeper_connect and not settings.zookeeper_set_acl:
            raise KafkaError(
                Error.INVALID_REQUEST,
                f"Every client of ZooKeeper could read {', '.join(names)}: {REMEDY}",
            )
        return change

    def encode() -> ConfigResourceChange:
        return change._replace(
            operations=tuple(
                each._replace(value=encode_once(each.value, settings)) if each.name in names else each
                for each in change.operations
            )
        )

    return await asyncio.get_running_loop().run_in_executor(context.broker.workers, encode)


def encode_once(text: str, settings: BrokerSettings) -> str:
    """Encrypt with this broker's secret; an already encrypted value is returned unchanged."""
    secret = settings.password_encoder_secret
    assert secret is not None, "encryption needs a secret"
    if decode_password(text, secret) is not None:
        return text
    made = encode_password(text, secret, encoding_of(settings))
    decode_password(made, secret)  # caches the derived key: the event loop must not derive it when it reads the change
    return made


def replace_values(change: ConfigResourceChange, resource: Any) -> Any:
    """Return the resource of a request with the values of this change, for forwarding."""
    values = {each.name: each.value for each in change.operations}
    passed = copy.copy(resource)
    passed.configs = [copy.copy(config) for config in resource.configs]
    for config in passed.configs:
        if config.value is not None:
            config.value = values[config.name]
    return passed


def outdated_passwords(settings: BrokerSettings, stored: Mapping[str, str]) -> dict[str, str]:
    """Return, in plain text, the passwords of this broker that are not encrypted with its secret."""
    secret = settings.password_encoder_secret
    if secret is None:
        return {}
    secrets = {name: text for name, text in stored.items() if is_password(name)}
    plain = settings.decoded(secrets)
    outdated = [name for name, text in secrets.items() if decode_password(text, secret) is None]
    return {name: plain[name] for name in outdated if name in plain}


class StoredPasswordEncoder:
    """Keeps this broker's stored passwords encrypted (rule 3)."""

    def __init__(self, parts: BrokerServices, store: MetadataStore | None) -> None:
        """`store`: the metadata store of a cluster; a standalone broker uses its controller."""
        self._services = parts
        self._store = store
        self._name = str(parts.node.id)
        self._has_warned = False

    async def encode_outdated(self) -> None:
        image, settings = self._services.node.image, self._services.node.settings
        stored = image.broker_configs.get(self._name, {})
        path = tree.config_path(tree.BROKER_CONFIG, self._name)
        if not any(map(is_password, stored)) or path in image.damaged:
            return
        if settings.password_encoder_secret is None:
            self._warn(path, stored)
            return
        new = await asyncio.get_running_loop().run_in_executor(self._services.workers, self._encode, settings, stored)
        if not new:
            return
        try:
            await (
                self._write_to_store(path, stored, new)
                if self._store is not None
                else self._write_through_controller(stored, new)
            )
        except (StoreError, KafkaError, tree.DamagedNodeError) as problem:
            logger.warning("%s: stored passwords could not be encrypted, retrying: %s", path, problem)
        else:
            logger.info("%s: encrypted with password.encoder.secret: %s", path, ", ".join(sorted(new)))

    def _encode(self, settings: BrokerSettings, stored: Mapping[str, str]) -> dict[str, str]:
        return {name: encode_once(text, settings) for name, text in outdated_passwords(settings, stored).items()}

    def _warn(self, path: str, stored: Mapping[str, str]) -> None:
        settings = self._services.node.settings
        readable = sorted(name for name, text in stored.items() if is_password(name) and not is_encoded(text))
        if readable and settings.zookeeper_connect and not settings.zookeeper_set_acl and not self._has_warned:
            self._has_warned = True
            logger.warning("%s: every client of ZooKeeper can read %s: %s", path, ", ".join(readable), REMEDY)

    async def _write_through_controller(self, stored: Mapping[str, str], new: Mapping[str, str]) -> None:
        def decide(image: MetadataImage) -> Decision[None]:
            now = image.broker_configs.get(self._name, {})
            config = merge_unchanged(now, stored, new)
            operations = config_operations(tree.BROKER_CONFIG, self._name, config, exists=True) if config != now else ()
            return Decision(operations, image.with_broker_config(self._name, config), None)

        await self._services.controller.change(decide)

    async def _write_to_store(self, path: str, stored: Mapping[str, str], new: Mapping[str, str]) -> None:
        """Write settings with a notification for the controller, as tools of Kafka 3.9 do."""
        assert self._store is not None, "a standalone broker uses its controller"
        node = await self._store.get(path)
        if node is not None:
            config = merge_unchanged(tree.decode_config(path, node.data), stored, new)
            notification = tree.encode_config_change(tree.BROKER_CONFIG, self._name)
            await self._store.multi(
                [
                    SetNode(path, tree.encode_config(config), node.version),
                    CreateNode(tree.CONFIG_CHANGE_PREFIX, notification, is_sequential=True),
                ]
            )

    def __repr__(self) -> str:
        return f"<StoredPasswordEncoder of broker {self._name}>"


def merge_unchanged(now: Mapping[str, str], stored: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Return the current settings with the new values; settings that changed meanwhile are kept."""
    return {name: new[name] if name in new and text == stored[name] else text for name, text in now.items()}
