"""What AlterConfigs and IncrementalAlterConfigs have in common: refusals first, then one change by the controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.base.setting_types import BadValueError, parse_int, trim
from ottla.broker.config_loggers import check_logger, set_logger
from ottla.controller.config_changes import (
    ConfigOperation,
    ConfigResourceChange,
    ConfigResourceType,
    OperationType,
    decide_config_changes,
)
from ottla.protocol.messages.configs import AlterConfigsResourceResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context

KNOWN_TYPES = frozenset(
    {
        ConfigResourceType.TOPIC,
        ConfigResourceType.BROKER,
        ConfigResourceType.CLIENT_METRICS,
        ConfigResourceType.GROUP,
    }
)


class Asked:
    """One resource of a request, as it was asked for: names may come twice and values may be missing."""

    def __init__(
        self, resource_type: int, name: str, settings: Sequence[tuple[int, str, str | None]], *, replaces_all: bool
    ) -> None:
        self.resource_type = resource_type
        self.name = name
        self.settings = settings  # operation, name, value
        self.replaces_all = replaces_all

    def __repr__(self) -> str:
        return f"<Asked {self.resource_type}:{self.name!r} {len(self.settings)} settings>"


async def alter(asked: Sequence[Asked], *, validate_only: bool, context: Context) -> list[AlterConfigsResourceResponse]:
    """Change what can be changed; the answers stand in the order of the questions."""
    counts = Counter((item.resource_type, item.name) for item in asked)
    responses = [
        AlterConfigsResourceResponse(resource_type=item.resource_type, resource_name=item.name) for item in asked
    ]
    changes: list[ConfigResourceChange] = []
    waiting: list[AlterConfigsResourceResponse] = []
    for item, response in zip(asked, responses, strict=True):
        try:
            if counts[item.resource_type, item.name] > 1:
                raise KafkaError(Error.INVALID_REQUEST, "Each resource must appear at most once.")
            change = checked_change(item, context)
            if change.resource_type == ConfigResourceType.BROKER_LOGGER:
                change_loggers(change, validate_only=validate_only)
            else:
                changes.append(change)
                waiting.append(response)
        except KafkaError as refusal:
            response.error_code, response.error_message = refusal.error, refusal.message
    await run_changes(changes, waiting, validate_only=validate_only, context=context)
    return responses


async def run_changes(
    changes: list[ConfigResourceChange],
    waiting: list[AlterConfigsResourceResponse],
    *,
    validate_only: bool,
    context: Context,
) -> None:
    if not changes:
        return
    settings = context.broker.settings
    try:
        results = await context.broker.controller.change(
            lambda image: decide_config_changes(image, changes, settings), validate_only=validate_only
        )
    except KafkaError as error:
        for response in waiting:
            response.error_code, response.error_message = error.error, error.message
        return
    for response, result in zip(waiting, results, strict=True):
        response.error_code, response.error_message = result.error, result.message


def checked_change(item: Asked, context: Context) -> ConfigResourceChange:
    """What can be seen to be wrong without the metadata. The order of the checks is Kafka's."""
    check_authorization(item, context)
    names = [name for _, name, _ in item.settings]
    if len(set(names)) < len(names):
        raise KafkaError(Error.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [name for operation, name, value in item.settings if operation != OperationType.DELETE and value is None]
    if nulls:
        raise KafkaError(Error.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
    check_resource(item, context.broker.node_id)
    return ConfigResourceChange(
        item.resource_type,
        item.name,
        tuple(config_operation(operation, name, value) for operation, name, value in item.settings),
        item.replaces_all,
    )


def config_operation(operation: int, name: str, value: str | None) -> ConfigOperation:
    try:
        return ConfigOperation(OperationType(operation), name, value or "")
    except ValueError:
        raise KafkaError(Error.INVALID_REQUEST, f"Unknown operation type {operation} for config key: {name}") from None


def check_authorization(item: Asked, context: Context) -> None:
    if item.resource_type == ConfigResourceType.TOPIC:
        if not context.may(Operation.ALTER_CONFIGS, ResourceType.TOPIC, item.name):
            raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    elif item.resource_type == ConfigResourceType.GROUP:
        if not context.may(Operation.ALTER_CONFIGS, ResourceType.GROUP, item.name):
            raise KafkaError(Error.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    elif not context.may(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(Error.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")


def check_resource(item: Asked, node_id: int) -> None:
    """A broker changes only itself, or all brokers at once; its loggers only by the newer request."""
    if item.resource_type == ConfigResourceType.BROKER_LOGGER and not item.replaces_all:
        if broker_id_of(item.name) != node_id:
            raise KafkaError(Error.INVALID_REQUEST, f"Unexpected node id. Expected {node_id}, but received {item.name}")
    elif item.resource_type == ConfigResourceType.BROKER:
        if item.name and broker_id_of(item.name) != node_id:
            raise KafkaError(
                Error.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {item.name}"
            )
    elif item.resource_type not in KNOWN_TYPES:
        raise KafkaError(Error.INVALID_REQUEST, f"Unknown resource type {item.resource_type}")


def broker_id_of(name: str) -> int:
    try:
        if name == trim(name):
            return parse_int(name)
    except BadValueError:
        pass
    raise KafkaError(Error.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")


def change_loggers(change: ConfigResourceChange, *, validate_only: bool) -> None:
    """Set levels, all or none of them. They last until the broker stops."""
    levels = {}
    for operation in change.operations:
        if operation.type not in (OperationType.SET, OperationType.DELETE):
            raise KafkaError(
                Error.INVALID_REQUEST,
                f"{operation.type.name} operation is not allowed for the BROKER_LOGGER resource",
            )
        levels[operation.name] = operation.value if operation.type is OperationType.SET else None
    for name, level in levels.items():
        check_logger(name, level)
    if not validate_only:
        for name, level in levels.items():
            set_logger(name, level)
