"""Changes of settings over the wire: what a topic's or a broker's own settings become, or why they stay.

Rule 1: pure. A change is decided on an image and the broker's settings; codes and messages are Kafka's.
Rule 2: only keys that Kafka and ottla allow to change at run time are taken for brokers, never one that nobody knows.
        What names a file, a command or a class is held to security/remote_settings.py.
Rule 3: a resource changes as a whole or not at all; other resources of the request go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.base.broker_changes import change_mode, change_problem
from ottla.base.broker_checks import RequirementError, check_broker_settings
from ottla.base.broker_settings import BrokerSettings, find_key
from ottla.base.errors import Error, KafkaError
from ottla.base.names import topic_name_problem
from ottla.base.resource_checks import check_client_metrics, check_group
from ottla.base.setting_types import BadValueError, ConfigType, parse_list
from ottla.base.settings import Mode
from ottla.base.topic_keys import BROKER_SYNONYMS, TopicKeys, validate_topic_overrides
from ottla.controller import tree
from ottla.controller.decisions.eligible_leaders import check_minimum
from ottla.controller.decisions.machine import Decision, check_readable, config_operations
from ottla.controller.decisions.ottla_version import why_not_setting
from ottla.controller.image import MetadataImage
from ottla.controller.stores.store import DeleteNode, StoreOperation
from ottla.security.remote_settings import remote_problem

VALUE_LENGTH_MAX: Final = 32_767
# Keys that only tools set, for as long as they move replicas. Kafka does not count them among its own.
TOOL_KEYS: Final = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)


class ConfigResourceType(IntEnum):
    """What settings can belong to."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


ENTITY_TYPES: Final = {
    ConfigResourceType.TOPIC: tree.TOPIC_CONFIG,
    ConfigResourceType.BROKER: tree.BROKER_CONFIG,
    ConfigResourceType.GROUP: tree.GROUP_CONFIG,
    ConfigResourceType.CLIENT_METRICS: tree.CLIENT_METRICS_CONFIG,
}
NAMED_BY_SETTINGS: Final = frozenset({ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS})


class OperationType(IntEnum):
    """What happens to one setting; the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigOperation(NamedTuple):
    """One setting of a change."""

    type: OperationType
    name: str
    value: str = ""


class ConfigResourceChange(NamedTuple):
    """What somebody wants of one topic, group or subscription, of one broker or ("") of all brokers.

    With `replaces_all`, what is not named goes back to its default (the older AlterConfigs).
    """

    resource_type: int
    resource_name: str
    operations: tuple[ConfigOperation, ...] = ()
    replaces_all: bool = False


class ConfigResourceResult(NamedTuple):
    """What became of one change."""

    change: ConfigResourceChange
    error: Error = Error.NONE
    message: str | None = None


def decide_config_changes(
    image: MetadataImage, changes: Sequence[ConfigResourceChange], settings: BrokerSettings
) -> Decision[list[ConfigResourceResult]]:
    """Change what can be changed; each resource is named once."""
    changed: dict[ConfigResourceType, dict[str, Mapping[str, str]]] = {kind: {} for kind in ENTITY_TYPES}
    results = []
    for change in changes:
        try:
            new = new_overrides(image, change, settings)
        except KafkaError as refusal:
            results.append(ConfigResourceResult(change, refusal.error, refusal.message))
            continue
        results.append(ConfigResourceResult(change))
        if new != current_overrides(image, change):
            changed[ConfigResourceType(change.resource_type)][change.resource_name] = new
    operations: list[StoreOperation] = []
    for kind, configs in changed.items():
        existing = configs_of(image, kind)
        for name, config in configs.items():
            operations.extend(_store_operations(kind, name, config, exists=name in existing))
    return Decision(tuple(operations), _image_after(image, changed), results)


def new_overrides(image: MetadataImage, change: ConfigResourceChange, settings: BrokerSettings) -> dict[str, str]:
    """A resource's own settings after a change, all checked. Raises KafkaError."""
    current = current_overrides(image, change)
    _check_level(image, change)
    if change.resource_type in ENTITY_TYPES:
        entity_type = ENTITY_TYPES[ConfigResourceType(change.resource_type)]
        check_readable(image, tree.config_path(entity_type, change.resource_name))
    live = settings.with_dynamic(image.broker_configs.get("", {}), image.broker_configs.get(str(settings.node_id), {}))
    if change.resource_type == ConfigResourceType.TOPIC:
        _check_topic(image, change.resource_name)
        new = apply_operations(change, current, settings)
        validate_topic_overrides(live, new)
        return new
    if change.resource_type == ConfigResourceType.BROKER:
        new = apply_operations(change, current, settings)
        named = frozenset(each.name for each in change.operations)
        check_broker_change(live, change.resource_name, new)
        check_minimum(image, change.resource_name, named, new)
        return new
    if change.resource_type == ConfigResourceType.GROUP:
        new = apply_operations(change, current, settings)
        check_group(change.resource_name, new, live)
        return new
    if change.resource_type == ConfigResourceType.CLIENT_METRICS:
        new = apply_operations(change, current, settings)
        check_client_metrics(change.resource_name, new)
        return new
    raise KafkaError(Error.INVALID_REQUEST, f"Unknown resource type {change.resource_type}")


def configs_of(image: MetadataImage, resource_type: int) -> Mapping[str, Mapping[str, str]]:
    """All settings of one type of resource, by name."""
    if resource_type == ConfigResourceType.TOPIC:
        return image.topic_configs
    if resource_type == ConfigResourceType.GROUP:
        return image.group_configs
    if resource_type == ConfigResourceType.CLIENT_METRICS:
        return image.client_metrics_configs
    return image.broker_configs


def current_overrides(image: MetadataImage, change: ConfigResourceChange) -> Mapping[str, str]:
    return configs_of(image, change.resource_type).get(change.resource_name, {})


def apply_operations(
    change: ConfigResourceChange, current: Mapping[str, str], settings: BrokerSettings
) -> dict[str, str]:
    """The operations of a change, one after the other. Raises KafkaError for a list operation on what is no list."""
    new = {} if change.replaces_all else dict(current)
    for operation in change.operations:
        if operation.type is OperationType.SET:
            new[operation.name] = operation.value
        elif operation.type is OperationType.DELETE:
            new.pop(operation.name, None)
        else:
            new[operation.name] = _changed_list(change, operation, new.get(operation.name), settings)
        if len(new.get(operation.name, "")) > VALUE_LENGTH_MAX:
            raise KafkaError(
                Error.INVALID_CONFIG,
                "The configuration value cannot be added because it exceeds the maximum value size of "
                f"{VALUE_LENGTH_MAX} bytes.",
            )
    return new


def check_broker_change(live: BrokerSettings, broker: str, new: Mapping[str, str]) -> None:
    """The whole new set of changes of one broker, or of all (""). Raises KafkaError(INVALID_REQUEST)."""
    modes = {name: change_mode(name) for name in new}
    _refuse_names(
        [name for name, mode in modes.items() if mode is Mode.READ_ONLY], "Cannot update these configs dynamically"
    )
    _refuse_names(
        [name for name, mode in modes.items() if mode is Mode.PER_LISTENER],
        "These security configs can be dynamically updated only per-listener using the listener prefix",
    )
    try:
        for name, text in new.items():
            key = find_key(name)
            assert key is not None  # or its mode would be READ_ONLY
            key.value(text)
    except BadValueError as bad:
        raise KafkaError(Error.INVALID_REQUEST, str(bad)) from None
    if not broker:
        _refuse_names(
            [name for name, mode in modes.items() if mode is Mode.PER_BROKER],
            "Cannot update these configs at default cluster level, broker id must be specified",
        )
    if broker and broker != str(live.node_id):
        return  # that broker has looked whether they go together with its other settings, and passed them on
    for name, text in new.items():
        refusal = remote_problem(live, name, text) if live.own.get(name) != text else None
        if refusal is not None:
            raise KafkaError(Error.INVALID_REQUEST, refusal)
    after = live.with_dynamic(*((live.cluster_default, new) if broker else (new, live.own)))
    try:
        check_broker_settings(after)
    except RequirementError as unmet:
        raise KafkaError(Error.INVALID_REQUEST, f"requirement failed: {unmet}") from None
    except BadValueError as bad:
        raise KafkaError(Error.INVALID_REQUEST, str(bad)) from None
    problem = change_problem(live, after)
    if problem is not None:
        raise invalid_dynamic(problem)


def invalid_dynamic(problem: str) -> KafkaError:
    """A change that a running broker cannot make, in Kafka's words."""
    return KafkaError(
        Error.INVALID_REQUEST,
        f"Invalid value org.apache.kafka.common.config.ConfigException: {problem} "
        "for configuration Invalid dynamic configuration",
    )


def _check_level(image: MetadataImage, change: ConfigResourceChange) -> None:
    """Nothing is stored that an older broker would not understand while there may be one."""
    for operation in change.operations:
        problem = why_not_setting(image, operation.name) if operation.type is not OperationType.DELETE else None
        if problem is not None:
            raise KafkaError(Error.INVALID_CONFIG, problem)


def _check_topic(image: MetadataImage, name: str) -> None:
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, "Default topic resources are not allowed.")
    problem = topic_name_problem(name)
    if problem is not None:
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, problem)
    if name not in image.topics:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _changed_list(
    change: ConfigResourceChange, operation: ConfigOperation, current: str | None, settings: BrokerSettings
) -> str:
    """A list after APPEND or SUBTRACT; one that is not set begins with what the file or the default says."""
    _check_is_list(change, operation)
    if current is None:
        current = _inherited_text(change, operation.name, settings)
    items = dict.fromkeys(parse_list(current))
    given = dict.fromkeys(parse_list(operation.value))
    if operation.type is OperationType.APPEND:
        items |= given
    else:
        items = {item: None for item in items if item not in given}
    return ",".join(items)


def _check_is_list(change: ConfigResourceChange, operation: ConfigOperation) -> None:
    tables = {ConfigResourceType.TOPIC: TopicKeys.keys, ConfigResourceType.BROKER: BrokerSettings.keys}
    key = tables.get(ConfigResourceType(change.resource_type), {}).get(operation.name)
    if key is not None and key.kind is ConfigType.LIST:
        return
    if change.resource_type != ConfigResourceType.BROKER:
        message = f"Can't {operation.type.name} to key {operation.name} because its type is not LIST."
    elif key is None or operation.name in TOOL_KEYS:
        message = f"Unknown config name: {operation.name}"
    else:
        message = f"Config value {operation.type.name.lower()} is not allowed for config key: {operation.name}"
    raise KafkaError(Error.INVALID_CONFIG, message)


def _inherited_text(change: ConfigResourceChange, name: str, settings: BrokerSettings) -> str:
    if change.resource_type == ConfigResourceType.TOPIC:
        synonyms = BROKER_SYNONYMS.get(name)
        if synonyms is None:
            return TopicKeys.keys[name].shown(None) or ""
        name = synonyms[0][0]
    return settings.keys[name].shown(settings.explicit.get(name)) or ""


def _refuse_names(names: Sequence[str], sentence: str) -> None:
    if names:
        raise KafkaError(Error.INVALID_REQUEST, f"{sentence}: [{', '.join(names)}]")


def _store_operations(
    kind: ConfigResourceType, name: str, config: Mapping[str, str], *, exists: bool
) -> tuple[StoreOperation, ...]:
    """Groups and subscriptions are there only while they have settings."""
    if not config and kind in NAMED_BY_SETTINGS:
        return (DeleteNode(tree.config_path(ENTITY_TYPES[kind], name)),)
    return config_operations(ENTITY_TYPES[kind], name, config, exists=exists)


def _image_after(
    image: MetadataImage, changed: Mapping[ConfigResourceType, Mapping[str, Mapping[str, str]]]
) -> MetadataImage:
    topics, groups = changed[ConfigResourceType.TOPIC], changed[ConfigResourceType.GROUP]
    subscriptions = changed[ConfigResourceType.CLIENT_METRICS]
    after = image.with_topics(configs=topics) if topics else image
    for broker, config in changed[ConfigResourceType.BROKER].items():
        after = after.with_broker_config(broker, config)
    after = after.with_group_configs(groups) if groups else after
    return after.with_client_metrics_configs(subscriptions) if subscriptions else after
