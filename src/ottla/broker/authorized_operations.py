"""Authorized operations (KIP-430): one bit for each thing that the asking client may do to a topic or the cluster."""

from __future__ import annotations

from typing import Final

from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context

TOPIC_OPERATIONS: Final = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS: Final = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
GROUP_OPERATIONS: Final = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)


def topic_operations(context: Context, topic: str) -> int:
    return sum(1 << op for op in TOPIC_OPERATIONS if context.is_granted(op, ResourceType.TOPIC, topic))


def cluster_operations(context: Context) -> int:
    return sum(1 << op for op in CLUSTER_OPERATIONS if context.is_granted(op, ResourceType.CLUSTER, CLUSTER_NAME))


def group_operations(context: Context, group: str) -> int:
    return sum(1 << op for op in GROUP_OPERATIONS if context.is_granted(op, ResourceType.GROUP, group))
