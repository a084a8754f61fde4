"""From words to access rules: what both tools for rules make of principals, hosts, operations and resources. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.base.security import (
    CLUSTER_NAME,
    OPERATIONS_BY_WORD,
    OPERATIONS_OF,
    SEPARATOR,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    word_of,
)
from ottla.security.acls import AccessControlEntry, AclFilter, ResourcePattern

# How a resource is named on command lines and in files; the cluster has no name.
RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "delegation-token": ResourceType.DELEGATION_TOKEN,
    "user-principal": ResourceType.USER,
}
CLUSTER: Final = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)

# What a producer and a consumer need.
PRODUCER: Final = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
CONSUMER: Final = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}
IDEMPOTENT: Final = (Operation.IDEMPOTENT_WRITE,)

Wishes = dict[ResourcePattern, set[AccessControlEntry]]


def parse_operation(text: str) -> Operation:
    """READ, Read, read, DescribeConfigs, describe-configs, describe_configs; ValueError names those that there are."""
    plain = text.strip().lower().replace("_", "").replace("-", "")
    for word, operation in OPERATIONS_BY_WORD.items():
        if word.lower() == plain and operation > Operation.ANY:
            return operation
    known = ", ".join(word for word, operation in OPERATIONS_BY_WORD.items() if operation > Operation.ANY)
    raise ValueError(f"there is no operation {text.strip()!r}: {known}")


def words_of(operation: Operation) -> str:
    return operation.name.lower().replace("_", "-")


def operation_problem(resource_type: ResourceType, operation: Operation) -> str | None:
    """Why no rule about such a resource can be about this operation; None if one can."""
    valid = OPERATIONS_OF[resource_type]
    if operation in (*valid, Operation.ALL):
        return None
    names = ", ".join(map(words_of, valid))
    return f"nobody can {words_of(operation)} a {word_of(resource_type)}: use one of {names}, or all"


def parse_principal(text: str) -> str:
    """User:alice; ValueError in Kafka's words."""
    principal = text.strip()
    if SEPARATOR not in principal:
        raise ValueError(f"expected a string in format principalType:principalName but got {principal}")
    return principal


def entries_of(
    principals: Iterable[str], hosts: Iterable[str], operations: Iterable[Operation], permission: Permission
) -> set[AccessControlEntry]:
    hosts, operations = list(hosts) or [WILDCARD], list(operations)
    return {
        AccessControlEntry(principal, host, operation, permission)
        for principal in principals
        for host in hosts
        for operation in operations
    }


def for_role(
    patterns: Iterable[ResourcePattern], needed: Mapping[ResourceType, Iterable[Operation]]
) -> dict[ResourcePattern, list[Operation]]:
    """What somebody in a role needs of these resources; those that the role does not care for are left out."""
    return {pattern: list(needed[pattern.resource_type]) for pattern in patterns if pattern.resource_type in needed}


def filter_of(pattern: ResourcePattern, entry: AccessControlEntry | None = None) -> AclFilter:
    """What means exactly one rule, or all of one resource."""
    meant = AclFilter(pattern.resource_type, pattern.name, pattern.pattern_type)
    if entry is None:
        return meant
    return meant._replace(
        principal=entry.principal, host=entry.host, operation=entry.operation, permission=entry.permission
    )


def is_specific(pattern_type: PatternType) -> bool:
    return pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
