"""AlterConfigs and IncrementalAlterConfigs: validation, loggers, and the change by the controller (Kafka's
ConfigAdminManager).

In a cluster the receiving broker validates with its own settings and changes its own log levels; the controller makes
the rest of the change. A forwarded request may be about the forwarding broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.base import logs
from ottla.base.broker_settings import BrokerSettings, find_key
from ottla.base.errors import Error, KafkaError
from ottla.base.legacy_keys import nearest_key
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.base.setting_types import BadValueError, parse_int, trim
from ottla.broker.cluster.forwarding import decode_if_encoded, is_handled_here
from ottla.broker.configs.dynamic_broker_config import encode_passwords, replace_values
from ottla.broker.offload import in_slices
from ottla.broker.security.reconfiguration import SecurityChangeError, is_security_key
from ottla.controller.decisions.config_changes import (
    ConfigOperation,
    ConfigResourceChange,
    ConfigResourceResult,
    ConfigResourceType,
    OperationType,
    decide_config_changes,
    invalid_dynamic_config,
    new_overrides,
)
from ottla.controller.decisions.demoted_brokers import MAINTENANCE_UNTIL_KEY
from ottla.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
)

if TYPE_CHECKING:
    from ottla.broker.context import Context


ROOT_LOGGER: Final = "root"
LOGGER_PACKAGE: Final = "ottla"
LEVELS: Final = {name: number for name, number in logs.LEVELS.items() if name != "OFF"}

logger = logging.getLogger(__name__)

WARNINGS_MAX: Final = 10  # per change

Request = AlterConfigsRequest | IncrementalAlterConfigsRequest
Changes = dict[int, ConfigResourceChange]

KNOWN_TYPES = frozenset(
    {
        ConfigResourceType.TOPIC,
        ConfigResourceType.BROKER,
        ConfigResourceType.CLIENT_METRICS,
        ConfigResourceType.GROUP,
    }
)


def logger_levels() -> dict[str, str]:
    """Return the effective level of each logger. "root" means all loggers of the broker, a package all loggers below
    it.
    """
    return {name: _level_name(logger.getEffectiveLevel()) for name, logger in sorted(_loggers().items())}


def check_logger(name: str, level: str | None) -> None:
    """Check that the logger exists and accepts the level (None: the level of its parent). Raises KafkaError."""
    if name not in _loggers():
        raise KafkaError(Error.INVALID_CONFIG, f"Logger {name} does not exist!")
    if level is None:
        if name == ROOT_LOGGER:
            raise KafkaError(Error.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
    elif level not in LEVELS:
        raise KafkaError(
            Error.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS))}",
        )


def set_log_level(name: str, level: str | None) -> None:
    """Change a level until the broker stops."""
    _loggers()[name].setLevel(LEVELS[level] if level is not None else logging.NOTSET)


def _loggers() -> dict[str, logging.Logger]:
    """Return this broker's loggers by name.

    `loggerDict` also contains placeholders for packages; getLogger() creates them.
    """
    names = [name for name in logging.Logger.manager.loggerDict if name.startswith(f"{LOGGER_PACKAGE}.")]
    return {ROOT_LOGGER: logging.getLogger(LOGGER_PACKAGE), **{name: logging.getLogger(name) for name in names}}


def _level_name(level: int) -> str:
    at_most = [name for name, number in LEVELS.items() if number <= level]
    return max(at_most, key=LEVELS.__getitem__, default="TRACE")


class RequestedResource:
    """One resource as requested: names may repeat and values may be missing."""

    def __init__(
        self, resource_type: int, name: str, settings: Sequence[tuple[int, str, str | None]], *, replaces_all: bool
    ) -> None:
        self.resource_type = resource_type
        self.name = name
        self.settings = settings  # operation, name, value
        self.replaces_all = replaces_all

    def __repr__(self) -> str:
        return f"<RequestedResource {self.resource_type}:{self.name!r} {len(self.settings)} settings>"


async def alter_configs(
    resources: Sequence[RequestedResource], request: Request, context: Context
) -> list[AlterConfigsResourceResponse]:
    """Apply the valid changes; results are in the order of the request."""
    validate_only = request.validate_only
    counts = Counter((item.resource_type, item.name) for item in resources)
    responses = [
        AlterConfigsResourceResponse(resource_type=item.resource_type, resource_name=item.name) for item in resources
    ]
    changes: dict[int, ConfigResourceChange] = {}  # by position in the request
    async for place, (item, response) in in_slices(enumerate(zip(resources, responses, strict=True))):
        try:
            if counts[item.resource_type, item.name] > 1:
                raise KafkaError(Error.INVALID_REQUEST, "Each resource must appear at most once.")
            change = validate_change(item, context)
            if change.resource_type == ConfigResourceType.BROKER_LOGGER:
                change_log_levels(change, validate_only=validate_only)
            else:
                await check_security_change(change, context)
                changes[place] = await encode_passwords(change, context)
        except KafkaError as refusal:
            response.error_code, response.error_message = refusal.error, refusal.message
    if changes and is_handled_here(context):
        await apply_changes(changes, responses, request, context)
    elif changes:
        await forward_changes(changes, responses, request, context)
    if not validate_only and not context.is_forwarded:
        for place, change in changes.items():
            if responses[place].error_code == Error.NONE:
                warn_about_unknown_settings(change)
    return responses


def warn_about_unknown_settings(change: ConfigResourceChange) -> None:
    """Warn about unknown settings, so that typing errors are noticed."""
    if change.resource_type != ConfigResourceType.BROKER:
        return
    unknown = [
        each.name for each in change.operations if each.type is OperationType.SET and find_key(each.name) is None
    ]
    for name in unknown[:WARNINGS_MAX]:
        owner = f"broker {change.resource_name}" if change.resource_name else "all brokers"
        hint = nearest_key(name, BrokerSettings.keys)
        logger.warning("%r of %s is stored but has no effect: there is no such setting%s", name[:250], owner, hint)


async def check_security_change(change: ConfigResourceChange, context: Context) -> None:
    """Validate changed certificates and logins of this broker. Raises KafkaError."""
    broker = context.broker
    is_ours = change.resource_type == ConfigResourceType.BROKER and change.resource_name == str(broker.node_id)
    if broker.security_changes is None or not is_ours:
        return
    if any(is_security_key(operation.name) for operation in change.operations):
        own = new_overrides(broker.image, change, broker.settings)
        try:
            await broker.security_changes.validate(broker.settings.with_dynamic(broker.settings.cluster_default, own))
        except SecurityChangeError as problem:
            raise invalid_dynamic_config(str(problem)) from None


async def apply_changes(
    changes: Changes, responses: list[AlterConfigsResourceResponse], request: Request, context: Context
) -> None:
    """Apply the changes, as the controller."""
    settings = context.broker.settings
    wanted = list(changes.values())
    try:
        results = await context.broker.controller.change(
            lambda image: decide_config_changes(image, wanted, settings),
            validate_only=request.validate_only,
            size=sum(1 + len(change.operations) for change in wanted),
        )
    except KafkaError as error:
        results = [ConfigResourceResult(change, error.error, error.message) for change in wanted]
    for place, result in zip(changes, results, strict=True):
        responses[place].error_code, responses[place].error_message = result.error, result.message


async def forward_changes(
    changes: Changes, responses: list[AlterConfigsResourceResponse], request: Request, context: Context
) -> None:
    """Forward the changes to the controller, after the checks that only this broker can make."""
    image, settings, wanted = context.broker.image, context.broker.settings, list(changes.values())
    checked = (await asyncio.to_thread(decide_config_changes, image, wanted, settings)).reply
    left = []
    for place, result in zip(changes, checked, strict=True):
        if result.error is Error.NONE:
            left.append(place)
        responses[place].error_code, responses[place].error_message = result.error, result.message
    forwarding = context.broker.forwarding
    if not left or forwarding is None:
        return
    resources: list[Any] = [replace_values(changes[place], request.resources[place]) for place in left]
    rest = type(request)(resources=resources, validate_only=request.validate_only)
    answer = await forwarding.forward(rest, context, context.broker.apis[context.api_key])
    try:
        rows = decode_if_encoded(answer, context).responses
    except KafkaError as problem:
        rows = error_rows(rest, problem.error, problem.message)
    for place, row in zip(left, rows, strict=True):
        responses[place].error_code, responses[place].error_message = row.error_code, row.error_message


def error_rows(request: Request, error: Error, message: str | None) -> list[AlterConfigsResourceResponse]:
    return [
        AlterConfigsResourceResponse(
            error_code=error,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in request.resources
    ]


def validate_change(item: RequestedResource, context: Context) -> ConfigResourceChange:
    """Return the change, validated without the metadata, in Kafka's order. Raises KafkaError."""
    check_authorization(item, context)
    names = [name for _, name, _ in item.settings]
    if len(set(names)) < len(names):
        raise KafkaError(Error.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [name for operation, name, value in item.settings if operation != OperationType.DELETE and value is None]
    if nulls:
        raise KafkaError(Error.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
    check_resource(item, None if context.is_forwarded else context.broker.node_id)
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


def check_authorization(item: RequestedResource, context: Context) -> None:
    if item.resource_type == ConfigResourceType.TOPIC:
        if not context.is_authorized(Operation.ALTER_CONFIGS, ResourceType.TOPIC, item.name):
            raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    elif item.resource_type == ConfigResourceType.GROUP:
        if not context.is_authorized(Operation.ALTER_CONFIGS, ResourceType.GROUP, item.name):
            raise KafkaError(Error.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    elif not context.is_authorized(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(Error.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")


def check_resource(item: RequestedResource, node_id: int | None) -> None:
    """Check the resource: a request changes the receiving broker or all brokers; loggers need IncrementalAlterConfigs.
    Maintenance settings are accepted for any broker.

    node_id None: the forwarding broker has checked the ids and changes its loggers itself.
    """
    if item.resource_type == ConfigResourceType.BROKER_LOGGER and not item.replaces_all:
        if parse_broker_id(item.name) != node_id:
            raise KafkaError(Error.INVALID_REQUEST, f"Unexpected node id. Expected {node_id}, but received {item.name}")
    elif item.resource_type == ConfigResourceType.BROKER:
        if (
            item.name
            and parse_broker_id(item.name) != node_id
            and node_id is not None
            and not is_maintenance_setting(item)
        ):
            raise KafkaError(
                Error.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {item.name}"
            )
    elif item.resource_type not in KNOWN_TYPES:
        raise KafkaError(Error.INVALID_REQUEST, f"Unknown resource type {item.resource_type}")


def is_maintenance_setting(item: RequestedResource) -> bool:
    """Return whether every broker accepts the setting for any other broker, which may be stopped for maintenance."""
    return not item.replaces_all and {name for _, name, _ in item.settings} == {MAINTENANCE_UNTIL_KEY}


def parse_broker_id(name: str) -> int:
    try:
        if name == trim(name):
            return parse_int(name)
    except BadValueError:
        pass
    raise KafkaError(Error.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")


def change_log_levels(change: ConfigResourceChange, *, validate_only: bool) -> None:
    """Set all levels or none. They last until the broker stops."""
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
            set_log_level(name, level)
