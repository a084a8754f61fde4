"""AlterConfigs and IncrementalAlterConfigs for topics, brokers, groups and client metrics.

Rule 1: pure. A change is decided on an image and the broker's settings; error codes and messages are Kafka's.
Rule 2: known keys of brokers are accepted only if they can change at run time. Unknown keys are stored for plugins and
        tools, as in Kafka, and have no effect. Keys that name a file, a command or a class are restricted by
        security/remote_settings.py.
Rule 3: the settings of a resource change completely or not at all; other resources of the request are processed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.base.broker_checks import RequirementError, check_broker_settings
from ottla.base.broker_settings import BrokerSettings, find_key
from ottla.base.dynamic_config_rules import change_mode, change_problem
from ottla.base.errors import Error, KafkaError
from ottla.base.names import topic_name_problem
from ottla.base.resource_keys import check_client_metrics, check_group
from ottla.base.setting_types import BadValueError, ConfigType, parse_list
from ottla.base.settings import Mode
from ottla.base.topic_keys import BROKER_SYNONYMS, TopicKeys, validate_topic_overrides
from ottla.controller import tree
from ottla.controller.decisions.decision import Decision, check_readable, config_operations
from ottla.controller.decisions.leader_eligibility import check_min_isr_change
from ottla.controller.decisions.ottla_version import setting_level_problem
from ottla.controller.image import MetadataImage
from ottla.controller.stores.store import DeleteNode, StoreOperation
from ottla.security.remote_settings import dynamic_config_problem

VALUE_LENGTH_MAX: Final = 32_767
# Keys that tools set during reassignments. Kafka's own table of keys does not have them.
TOOL_KEYS: Final = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)


class ConfigResourceType(IntEnum):
    """The types of resources with settings."""

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
EXISTING_BY_SETTINGS: Final = frozenset({ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS})


class OperationType(IntEnum):
    """The change of one setting; the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigOperation(NamedTuple):
    """One setting of a change."""

    type: OperationType
    name: str
    value: str = ""

    def __repr__(self) -> str:
        return f"<{self.type.name} {self.name}>"  # the value may be a password


class ConfigResourceChange(NamedTuple):
    """The changes of one topic, group or subscription, of one broker or, with name "", of all brokers.

    With `replaces_all`, all other settings return to their defaults (the older AlterConfigs).
    """

    resource_type: int
    resource_name: str
    operations: tuple[ConfigOperation, ...] = ()
    replaces_all: bool = False


class ConfigResourceResult(NamedTuple):
    """The result of one change."""

    change: ConfigResourceChange
    error: Error = Error.NONE
    message: str | None = None


def decide_config_changes(
    image: MetadataImage, changes: Sequence[ConfigResourceChange], settings: BrokerSettings
) -> Decision[list[ConfigResourceResult]]:
    """Decide the changes; each resource occurs once."""
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
    return Decision(tuple(operations), _apply_to_image(image, changed), results)


def new_overrides(image: MetadataImage, change: ConfigResourceChange, settings: BrokerSettings) -> dict[str, str]:
    """Return the resource's own settings after a change, all validated. Raises KafkaError."""
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
        check_min_isr_change(image, change.resource_name, named, new)
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
    """Return all settings of one type of resource, by name."""
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
    """Apply the operations of a change in order. Raises KafkaError for a list operation on a key that is not a list."""
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


def check_broker_change(current: BrokerSettings, broker: str, new: Mapping[str, str]) -> None:
    """Check the new dynamic settings of one broker, or of all (""). Raises KafkaError(INVALID_REQUEST)."""
    if "" in new:
        raise KafkaError(Error.INVALID_REQUEST, "Config name must not be empty")
    modes = {name: change_mode(name) for name in new}
    _reject_names(
        [name for name, mode in modes.items() if mode is Mode.READ_ONLY], "Cannot update these configs dynamically"
    )
    _reject_names(
        [name for name, mode in modes.items() if mode is Mode.PER_LISTENER],
        "These security configs can be dynamically updated only per-listener using the listener prefix",
    )
    try:
        for name, text in new.items():
            key = find_key(name)
            if key is not None:
                key.value(text)
    except BadValueError as bad:
        raise KafkaError(Error.INVALID_REQUEST, str(bad)) from None
    if not broker:
        _reject_names(
            [name for name, mode in modes.items() if mode is Mode.PER_BROKER],
            "Cannot update these configs at default cluster level, broker id must be specified",
        )
    if broker and broker != str(current.node_id):
        return  # that broker has validated them with its other settings before it forwarded the request
    new = current.decoded(new)
    for name, text in new.items():
        refusal = dynamic_config_problem(current, name, text) if current.broker_overrides.get(name) != text else None
        if refusal is not None:
            raise KafkaError(Error.INVALID_REQUEST, refusal)
    after = current.with_dynamic(*((current.cluster_default, new) if broker else (new, current.broker_overrides)))
    try:
        check_broker_settings(after)
    except RequirementError as unmet:
        raise KafkaError(Error.INVALID_REQUEST, f"requirement failed: {unmet}") from None
    except BadValueError as bad:
        raise KafkaError(Error.INVALID_REQUEST, str(bad)) from None
    problem = change_problem(current, after)
    if problem is not None:
        raise invalid_dynamic_config(problem)


def invalid_dynamic_config(problem: str) -> KafkaError:
    """Return the error for a change that a running broker cannot apply, with Kafka's message."""
    return KafkaError(
        Error.INVALID_REQUEST,
        f"Invalid value org.apache.kafka.common.config.ConfigException: {problem} "
        "for configuration Invalid dynamic configuration",
    )


def _check_level(image: MetadataImage, change: ConfigResourceChange) -> None:
    """Reject settings that brokers at the current level do not know."""
    for operation in change.operations:
        problem = setting_level_problem(image, operation.name) if operation.type is not OperationType.DELETE else None
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
    """Return a list after APPEND or SUBTRACT; an unset list starts with the value of the file or the default."""
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
            return TopicKeys.keys[name].display_value(None) or ""
        name = synonyms[0][0]
    return settings.keys[name].display_value(settings.explicit.get(name)) or ""


def _reject_names(names: Sequence[str], sentence: str) -> None:
    if names:
        raise KafkaError(Error.INVALID_REQUEST, f"{sentence}: [{', '.join(names)}]")


def _store_operations(
    kind: ConfigResourceType, name: str, config: Mapping[str, str], *, exists: bool
) -> tuple[StoreOperation, ...]:
    """Return the operations for changed settings.

    Nodes of groups and subscriptions exist only while they have settings.
    """
    if not config and kind in EXISTING_BY_SETTINGS:
        return (DeleteNode(tree.config_path(ENTITY_TYPES[kind], name)),)
    return config_operations(ENTITY_TYPES[kind], name, config, exists=exists)


def _apply_to_image(
    image: MetadataImage, changed: Mapping[ConfigResourceType, Mapping[str, Mapping[str, str]]]
) -> MetadataImage:
    topics, groups = changed[ConfigResourceType.TOPIC], changed[ConfigResourceType.GROUP]
    subscriptions = changed[ConfigResourceType.CLIENT_METRICS]
    after = image.with_topics(configs=topics) if topics else image
    for broker, config in changed[ConfigResourceType.BROKER].items():
        after = after.with_broker_config(broker, config)
    after = after.with_group_configs(groups) if groups else after
    return after.with_client_metrics_configs(subscriptions) if subscriptions else after
