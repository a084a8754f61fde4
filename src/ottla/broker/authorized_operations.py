"""Authorized operations (KIP-430): one bit for each thing that the asking client may do to a topic or the cluster."""

from __future__ import annotations

from ottla.base.security import CLUSTER_NAME, OPERATIONS_OF, ResourceType
from ottla.broker.context import Context


def topic_operations(context: Context, topic: str) -> int:
    return operations(context, ResourceType.TOPIC, topic)


def cluster_operations(context: Context) -> int:
    return operations(context, ResourceType.CLUSTER, CLUSTER_NAME)


def group_operations(context: Context, group: str) -> int:
    return operations(context, ResourceType.GROUP, group)


def operations(context: Context, kind: ResourceType, name: str) -> int:
    return sum(1 << operation for operation in OPERATIONS_OF[kind] if context.is_granted(operation, kind, name))
