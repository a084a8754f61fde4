"""The broker's authorizer, the authorized operations of responses (KIP-430), and the authorization of partitions."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable
from typing import Final

from ottla.base import tasks
from ottla.base.broker_keys.security import parse_principals
from ottla.base.errors import Error
from ottla.base.security import CLUSTER_NAME, SUPPORTED_OPERATIONS, Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.node import Node
from ottla.broker.offload import TimeSlice, in_slices
from ottla.controller.image import MetadataCache, MetadataImage
from ottla.security.authorizer import Authorizer
from ottla.security.denial_log import DenialLog

FREEZE_PATTERNS_MIN: Final = 20_000  # patterns: a garbage collection over their rules takes a tenth of a second
FREEZE_GROWTH: Final = 2  # times as many patterns

PartitionErrors = dict[tuple[str, int], Error]


def start_authorizer(node: Node) -> Authorizer | None:
    """Return the authorizer, kept in line with the metadata; None if `authorizer.class.name` is not set (everything is
    allowed).
    """
    settings = node.settings
    if not settings.authorizer_class_name.strip():
        return None
    is_permissive = settings.ottla_authorizer_mode == "permissive"
    authorizer = Authorizer(
        node.image.acls,
        parse_principals(settings.super_users),
        allows_without_rules=settings.allow_everyone_if_no_acl_found,
        is_permissive=is_permissive,
        denials=DenialLog(node.clock.monotonic_ms, is_permissive=is_permissive),
    )
    follow_acls(node.images, authorizer)
    return authorizer


def follow_acls(images: MetadataCache, authorizer: Authorizer) -> None:
    """Pass on every change of ACLs; indexing thousands of rules runs in slices."""

    patience = AclFreezer()

    def on_image(old: MetadataImage, new: MetadataImage) -> None:
        if new.acls is old.acls:
            return
        is_settling = not authorizer.is_fully_indexed
        authorizer.update(new.acls, new.changed_acls_since(old))
        if not authorizer.is_fully_indexed and not is_settling:
            tasks.spawn(finish_indexing(authorizer, patience), "indexing access rules")

    images.add_listener(on_image)


class AclFreezer:
    """Excludes very many rules from garbage collection: they live long, are in no cycle, and a collection stops all
    threads.

    Every object alive at that moment is excluded and would never be collected if it joined a cycle. Therefore this
    happens a few times per process, and never for only hundreds of rules.
    """

    def __init__(self) -> None:
        self._frozen = FREEZE_PATTERNS_MIN // FREEZE_GROWTH

    def freeze_if_grown(self, patterns: int) -> None:
        if patterns >= self._frozen * FREEZE_GROWTH:
            self._frozen = patterns
            gc.freeze()

    def __repr__(self) -> str:
        return f"<AclFreezer from {self._frozen * FREEZE_GROWTH} patterns on>"


async def finish_indexing(authorizer: Authorizer, freezer: AclFreezer) -> None:
    while not authorizer.is_fully_indexed:
        authorizer.index_pending()
        await asyncio.sleep(0)
    freezer.freeze_if_grown(len(authorizer.acls))


def topic_operations(context: Context, topic: str) -> int:
    return authorized_operations(context, ResourceType.TOPIC, topic)


def cluster_operations(context: Context) -> int:
    return authorized_operations(context, ResourceType.CLUSTER, CLUSTER_NAME)


def group_operations(context: Context, group: str) -> int:
    return authorized_operations(context, ResourceType.GROUP, group)


def authorized_operations(context: Context, kind: ResourceType, name: str) -> int:
    return sum(1 << operation for operation in SUPPORTED_OPERATIONS[kind] if context.is_granted(operation, kind, name))


async def find_unauthorized_or_unknown(
    partitions: Iterable[tuple[str, int]], operation: Operation | None, context: Context, time_slice: TimeSlice
) -> PartitionErrors:
    """Return the errors of unauthorized and unknown partitions; operation None: no authorization is needed."""
    refused: PartitionErrors = {}
    async for topic, index in in_slices(partitions, time_slice):
        if operation is not None and not context.is_authorized(operation, ResourceType.TOPIC, topic):
            refused[topic, index] = Error.TOPIC_AUTHORIZATION_FAILED
        elif context.broker.image.partition(topic, index) is None:
            refused[topic, index] = Error.UNKNOWN_TOPIC_OR_PARTITION
    return refused
