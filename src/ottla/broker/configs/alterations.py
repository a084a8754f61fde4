"""What AlterConfigs and IncrementalAlterConfigs have in common: refusals first, then one change by the controller.

In a cluster the broker that is asked checks what it can, with its own settings, and changes the levels of its own
loggers; the rest goes to the controller. What comes from another broker may be about that broker.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.base.setting_types import BadValueError, parse_int, trim
from ottla.broker.cluster.forwarding import is_here, opened
from ottla.broker.configs.loggers import check_logger, set_logger
from ottla.broker.security.changes import SecurityChangeError, is_security_key
from ottla.broker.slices import in_slices
from ottla.controller.decisions.config_changes import (
    ConfigOperation,
    ConfigResourceChange,
    ConfigResourceResult,
    ConfigResourceType,
    OperationType,
    decide_config_changes,
    invalid_dynamic,
    new_overrides,
)
from ottla.controller.decisions.maintenance import UNTIL
from ottla.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
)

if TYPE_CHECKING:
    from ottla.broker.context import Context

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


async def alter(asked: Sequence[Asked], request: Request, context: Context) -> list[AlterConfigsResourceResponse]:
    """Change what can be changed; the answers stand in the order of the questions."""
    validate_only = request.validate_only
    counts = Counter((item.resource_type, item.name) for item in asked)
    responses = [
        AlterConfigsResourceResponse(resource_type=item.resource_type, resource_name=item.name) for item in asked
    ]
    changes: dict[int, ConfigResourceChange] = {}  # by place in the request
    async for place, (item, response) in in_slices(enumerate(zip(asked, responses, strict=True))):
        try:
            if counts[item.resource_type, item.name] > 1:
                raise KafkaError(Error.INVALID_REQUEST, "Each resource must appear at most once.")
            change = checked_change(item, context)
            if change.resource_type == ConfigResourceType.BROKER_LOGGER:
                change_loggers(change, validate_only=validate_only)
            else:
                await check_security(change, context)
                changes[place] = change
        except KafkaError as refusal:
            response.error_code, response.error_message = refusal.error, refusal.message
    if changes and is_here(context):
        await run_changes(changes, responses, request, context)
    elif changes:
        await pass_on(changes, responses, request, context)
    return responses


async def check_security(change: ConfigResourceChange, context: Context) -> None:
    """Certificates and logins of this broker are tried before they are changed. Raises KafkaError."""
    broker = context.broker
    is_ours = change.resource_type == ConfigResourceType.BROKER and change.resource_name == str(broker.node_id)
    if broker.security_changes is None or not is_ours:
        return
    if any(is_security_key(operation.name) for operation in change.operations):
        own = new_overrides(broker.image, change, broker.settings)
        try:
            await broker.security_changes.check(broker.settings.with_dynamic(broker.settings.cluster_default, own))
        except SecurityChangeError as problem:
            raise invalid_dynamic(str(problem)) from None


async def run_changes(
    changes: Changes, responses: list[AlterConfigsResourceResponse], request: Request, context: Context
) -> None:
    """This broker is the controller."""
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


async def pass_on(
    changes: Changes, responses: list[AlterConfigsResourceResponse], request: Request, context: Context
) -> None:
    """Another broker is the controller: what it could not know to be wrong is refused here, the rest is asked there."""
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
    resources: list[Any] = [request.resources[place] for place in left]
    rest = type(request)(resources=resources, validate_only=request.validate_only)
    answer = await forwarding.forward(rest, context, context.broker.apis[context.api_key])
    try:
        rows = opened(answer, context).responses
    except KafkaError as problem:
        rows = refused_rows(rest, problem.error, problem.message)
    for place, row in zip(left, rows, strict=True):
        responses[place].error_code, responses[place].error_message = row.error_code, row.error_message


def refused_rows(request: Request, error: Error, message: str | None) -> list[AlterConfigsResourceResponse]:
    return [
        AlterConfigsResourceResponse(
            error_code=error,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in request.resources
    ]


def checked_change(item: Asked, context: Context) -> ConfigResourceChange:
    """What can be seen to be wrong without the metadata. The order of the checks is Kafka's."""
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


def check_authorization(item: Asked, context: Context) -> None:
    if item.resource_type == ConfigResourceType.TOPIC:
        if not context.may(Operation.ALTER_CONFIGS, ResourceType.TOPIC, item.name):
            raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    elif item.resource_type == ConfigResourceType.GROUP:
        if not context.may(Operation.ALTER_CONFIGS, ResourceType.GROUP, item.name):
            raise KafkaError(Error.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    elif not context.may(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        raise KafkaError(Error.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")


def check_resource(item: Asked, node_id: int | None) -> None:
    """A broker changes only itself, or all brokers at once; its loggers only by the newer request. Maintenance alone is
    everybody's.

    None: another broker has asked, and has looked at the ids already. It changes its loggers itself.
    """
    if item.resource_type == ConfigResourceType.BROKER_LOGGER and not item.replaces_all:
        if broker_id_of(item.name) != node_id:
            raise KafkaError(Error.INVALID_REQUEST, f"Unexpected node id. Expected {node_id}, but received {item.name}")
    elif item.resource_type == ConfigResourceType.BROKER:
        if item.name and broker_id_of(item.name) != node_id and node_id is not None and not is_of_maintenance(item):
            raise KafkaError(
                Error.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {item.name}"
            )
    elif item.resource_type not in KNOWN_TYPES:
        raise KafkaError(Error.INVALID_REQUEST, f"Unknown resource type {item.resource_type}")


def is_of_maintenance(item: Asked) -> bool:
    """Any broker takes this for any other, which may be off because somebody works at it."""
    return not item.replaces_all and {name for _, name, _ in item.settings} == {UNTIL}


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
