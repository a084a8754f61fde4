"""ACL entries from command-line words: principals, hosts, operations and resources. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.base.security import (
    CLUSTER_NAME,
    OPERATIONS_BY_NAME,
    SEPARATOR,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    pascal_name,
)
from ottla.security.acls import AccessControlEntry, AclFilter, ResourcePattern

# Names of resource types on command lines and in files. The cluster has a single, unnamed resource.
RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "delegation-token": ResourceType.DELEGATION_TOKEN,
    "user-principal": ResourceType.USER,
}
CLUSTER: Final = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)

# Operations that a producer and a consumer need.
PRODUCER_OPERATIONS: Final = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
CONSUMER_OPERATIONS: Final = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}
IDEMPOTENT_OPERATIONS: Final = (Operation.IDEMPOTENT_WRITE,)

AclsByResource = dict[ResourcePattern, set[AccessControlEntry]]


def parse_operation(text: str) -> Operation:
    """Parse an operation in any spelling: READ, read, DescribeConfigs, describe-configs. ValueError lists the
    operations.
    """
    plain = text.strip().lower().replace("_", "").replace("-", "")
    for word, operation in OPERATIONS_BY_NAME.items():
        if word.lower() == plain and operation > Operation.ANY:
            return operation
    known = ", ".join(word for word, operation in OPERATIONS_BY_NAME.items() if operation > Operation.ANY)
    raise ValueError(f"there is no operation {text.strip()!r}: {known}")


def operation_word(operation: Operation) -> str:
    return operation.name.lower().replace("_", "-")


def operation_problem(resource_type: ResourceType, operation: Operation) -> str | None:
    """Why the resource type does not support the operation; None if it does."""
    valid = SUPPORTED_OPERATIONS[resource_type]
    if operation in (*valid, Operation.ALL):
        return None
    names = ", ".join(map(operation_word, valid))
    return (
        f"operation {operation_word(operation)} does not apply to a {pascal_name(resource_type)}: use one of "
        f"{names}, or all"
    )


def parse_principal(text: str) -> str:
    """Parse a principal such as `User:alice`. The ValueError has Kafka's wording."""
    principal = text.strip()
    if SEPARATOR not in principal:
        raise ValueError(f"expected a string in format principalType:principalName but got {principal}")
    return principal


def acl_entries(
    principals: Iterable[str], hosts: Iterable[str], operations: Iterable[Operation], permission: Permission
) -> set[AccessControlEntry]:
    hosts, operations = list(hosts) or [WILDCARD], list(operations)
    return {
        AccessControlEntry(principal, host, operation, permission)
        for principal in principals
        for host in hosts
        for operation in operations
    }


def operations_for_role(
    patterns: Iterable[ResourcePattern], needed: Mapping[ResourceType, Iterable[Operation]]
) -> dict[ResourcePattern, list[Operation]]:
    """The operations that a role needs on each resource, without the resources that the role does not use."""
    return {pattern: list(needed[pattern.resource_type]) for pattern in patterns if pattern.resource_type in needed}


def acl_filter(pattern: ResourcePattern, entry: AccessControlEntry | None = None) -> AclFilter:
    """A filter that matches exactly one ACL entry, or all entries of one resource."""
    meant = AclFilter(pattern.resource_type, pattern.name, pattern.pattern_type)
    if entry is None:
        return meant
    return meant._replace(
        principal=entry.principal, host=entry.host, operation=entry.operation, permission=entry.permission
    )


def is_specific(pattern_type: PatternType) -> bool:
    return pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
