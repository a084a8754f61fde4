"""What is to be remembered of a broker before a request changes it, where the metadata do not tell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ottla.base.errors import KafkaError
from ottla.broker.configs.loggers import logger_levels
from ottla.broker.slices import Turn, in_slices
from ottla.controller.decisions.config_changes import ConfigResourceType
from ottla.groups.offsets import committed

if TYPE_CHECKING:
    from ottla.broker.context import Context

Look = Callable[[Any, "Context"], Awaitable[Any]]


async def start_offsets(request: Any, context: Context) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    turn = Turn()
    for topic in request.topics:
        async for row in in_slices(topic.partitions, turn):
            partition = context.broker.replicas.get(topic.name, row.partition_index)
            if partition is not None:
                found.setdefault(topic.name, {})[row.partition_index] = partition.log.log_start_offset
    return found


async def folders(request: Any, context: Context) -> dict[tuple[str, int], str]:
    replicas = context.broker.replicas
    turn = Turn()
    return {
        (topic.name, index): replicas.log_dirs.folder_of(partition.log).path
        for folder in request.dirs
        for topic in folder.topics
        async for index in in_slices(topic.partitions, turn)
        if (partition := replicas.get(topic.name, index)) is not None
    }


async def levels(request: Any, _: Context) -> dict[str, str]:
    is_asked = any(resource.resource_type == ConfigResourceType.BROKER_LOGGER for resource in request.resources)
    return logger_levels() if is_asked else {}


async def offsets_of_groups(request: Any, context: Context) -> dict[str, dict[str, dict[str, int]]]:
    return {group: offsets_of(group, context) async for group in in_slices(request.groups_names)}


async def offsets_of_group(request: Any, context: Context) -> dict[str, dict[str, int]]:
    return offsets_of(request.group_id, context)


def offsets_of(group: str, context: Context) -> dict[str, dict[str, int]]:
    """What a group has committed, by topic and partition."""
    try:
        topics = context.broker.coordinators.groups.shard(group).machine.offsets.topics(group)
    except KafkaError:  # its coordinator is elsewhere, or not ready: so the request will be told, too
        return {}
    return {
        topic: {str(index): committed(kept).offset for index, kept in partitions.items()}
        for topic, partitions in topics.items()
    }


async def token(request: Any, context: Context) -> dict[str, str | None]:
    """Which token a password belongs to; the password itself goes nowhere."""
    tokens = context.broker.tokens
    return {"token_id": await tokens.id_of(bytes(request.hmac))} if tokens.is_enabled else {}
