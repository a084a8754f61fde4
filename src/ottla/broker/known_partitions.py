"""Partitions in a request that do not exist, or that the client may not touch."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.base.errors import Error
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.slices import Turn, in_slices

Refused = dict[tuple[str, int], Error]


async def refused_partitions(
    places: Iterable[tuple[str, int]], operation: Operation | None, context: Context, turn: Turn
) -> Refused:
    """Of these (topic, index) the ones that must not pass, with the error to tell; None: rights do not matter."""
    refused: Refused = {}
    async for topic, index in in_slices(places, turn):
        if operation is not None and not context.may(operation, ResourceType.TOPIC, topic):
            refused[topic, index] = Error.TOPIC_AUTHORIZATION_FAILED
        elif context.broker.image.partition(topic, index) is None:
            refused[topic, index] = Error.UNKNOWN_TOPIC_OR_PARTITION
    return refused
