"""CreateAcls and DeleteAcls. Pure, by the rules of decision.py; error codes and messages are Kafka's.

Each ACL of a request is a separate item: a rejected one does not affect the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, SEPARATOR, Operation, PatternType, Permission, ResourceType
from ottla.controller.acl_nodes import acl_path, encode_acls, load_entries
from ottla.controller.decisions.decision import Decision, check_readable
from ottla.controller.image import MetadataImage
from ottla.controller.image_loader import NodeReader
from ottla.controller.stores.store import CreateNode, DeleteNode, Node, SetNode, StoreOperation
from ottla.security.acls import AccessControlEntry, AclBinding, AclFilter, Acls, Entries, ResourcePattern


class NewAcl(NamedTuple):
    """An ACL to create, with the numbers of the protocol."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class AclDeletionResult(NamedTuple):
    """The result of one filter of a DeleteAcls request: the deleted ACLs, or an error."""

    removed: tuple[AclBinding, ...] = ()
    error: Error = Error.NONE
    message: str | None = None


def decide_create_acls(image: MetadataImage, wanted: Sequence[NewAcl]) -> Decision[list[KafkaError | None]]:
    """Create ACLs; the reply has the error of each. An existing ACL is not an error."""
    results: list[KafkaError | None] = []
    after: dict[ResourcePattern, set[AccessControlEntry]] = {}
    for rule in wanted:
        try:
            pattern, entry = validate_acl(rule)
            check_readable(image, acl_path(pattern))
        except KafkaError as refusal:
            results.append(refusal)
            continue
        results.append(None)
        if pattern not in after:
            after[pattern] = set(image.acls.get(pattern, ()))
        after[pattern].add(entry)
    operations, image = acl_operations(image, {pattern: frozenset(entries) for pattern, entries in after.items()})
    return Decision(operations, image, results)


def matching_patterns(acls: Acls, filters: Sequence[AclFilter]) -> list[ResourcePattern]:
    """Return the resources with ACLs that match some of these filters."""
    return list(dict.fromkeys(pattern for each in filters for pattern in each.select(acls)))


def decide_delete_acls(
    image: MetadataImage, filters: Sequence[AclFilter], patterns: Iterable[ResourcePattern] | None = None
) -> Decision[list[AclDeletionResult]]:
    """Delete the ACLs that match the filters. The result of each filter has all ACLs that match it, including those
    that match other filters of the request. With `patterns`, only the ACLs of these resources are considered.
    """
    results: list[AclDeletionResult] = []
    after: dict[ResourcePattern, set[AccessControlEntry]] = {}
    acls = image.acls
    if patterns is not None:
        acls = {pattern: image.acls[pattern] for pattern in patterns if pattern in image.acls}
    for each in filters:
        try:
            removed = matching_bindings(image, acls, each)
        except KafkaError as refusal:
            results.append(AclDeletionResult((), refusal.error, refusal.message))
            continue
        for pattern, entry in removed:
            after.setdefault(pattern, set(image.acls[pattern])).discard(entry)
        results.append(AclDeletionResult(removed))
    operations, image = acl_operations(image, {pattern: frozenset(entries) for pattern, entries in after.items()})
    return Decision(operations, image, results)


def decide_external_acls(
    image: MetadataImage, patterns: Iterable[ResourcePattern], nodes: Mapping[str, Node]
) -> Decision[int]:
    """Load the ACLs of these resources from the store; the reply is the number of changed resources."""
    reader = NodeReader(image)
    changed: dict[ResourcePattern, Entries] = {}
    versions: dict[ResourcePattern, int] = {}
    paths = set()
    for pattern in patterns:
        path = acl_path(pattern)
        paths.add(path)
        node = nodes.get(path)
        entries = load_entries(path, node, reader.read) if node is not None else frozenset()
        version = node.version if node is not None else None
        if entries != image.acls.get(pattern, frozenset()) or version != image.acl_versions.get(pattern):
            changed[pattern] = entries
            if version is not None:
                versions[pattern] = version
    after = image.with_acls(changed, versions) if changed else image
    return Decision((), reader.record_damage(after, paths), len(changed))


def matching_bindings(image: MetadataImage, acls: Acls, wanted: AclFilter) -> tuple[AclBinding, ...]:
    if wanted.resource_type not in list(ResourceType)[1:] or wanted.pattern_type not in list(PatternType)[1:]:
        raise KafkaError(Error.INVALID_REQUEST, "Unknown patternFilter.")
    if wanted.operation not in list(Operation)[1:] or wanted.permission not in list(Permission)[1:]:
        raise KafkaError(Error.INVALID_REQUEST, "Unknown entryFilter.")
    found = wanted.select(acls)
    for pattern in found:
        check_readable(image, acl_path(pattern))
    return tuple(AclBinding(pattern, entry) for pattern in found for entry in sorted(found[pattern]))


def validate_acl(rule: NewAcl) -> AclBinding:
    """Validate an ACL; raises KafkaError(INVALID_REQUEST). The order of the checks is Kafka's."""
    if rule.resource_type == ResourceType.CLUSTER and rule.name != CLUSTER_NAME:
        raise invalid_request(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not rule.name:
        raise invalid_request("Invalid empty resource name")
    if rule.resource_type not in list(ResourceType)[2:]:
        raise invalid_request(f"Invalid resourceType {enum_name(ResourceType, rule.resource_type)}")
    if rule.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise invalid_request(f"Invalid patternType {enum_name(PatternType, rule.pattern_type)}")
    if rule.operation not in list(Operation)[2:]:
        raise invalid_request(f"Invalid operation {enum_name(Operation, rule.operation)}")
    if rule.permission not in (Permission.DENY, Permission.ALLOW):
        raise invalid_request(f"Invalid permissionType {enum_name(Permission, rule.permission)}")
    if SEPARATOR not in rule.principal:
        raise invalid_request(
            f"Could not parse principal from `{rule.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    pattern = ResourcePattern(ResourceType(rule.resource_type), rule.name, PatternType(rule.pattern_type))
    return AclBinding(
        pattern,
        AccessControlEntry(rule.principal, rule.host, Operation(rule.operation), Permission(rule.permission)),
    )


def acl_operations(
    image: MetadataImage, wanted: Mapping[ResourcePattern, Entries]
) -> tuple[tuple[StoreOperation, ...], MetadataImage]:
    """Return the operations for changed ACLs; a resource without ACLs has no node.

    If another writer has changed a node since, its version differs and the decision is repeated.
    """
    none: Entries = frozenset()
    changed = {pattern: entries for pattern, entries in wanted.items() if entries != image.acls.get(pattern, none)}
    operations: list[StoreOperation] = []
    versions = {}
    for pattern, entries in changed.items():
        path, version = acl_path(pattern), image.acl_versions.get(pattern)
        if entries:
            data = encode_acls(entries)
            operations.append(CreateNode(path, data) if version is None else SetNode(path, data, version))
            versions[pattern] = 0 if version is None else version + 1
        elif version is not None:
            operations.append(DeleteNode(path, version))
    return tuple(operations), image.with_acls(changed, versions) if changed else image


def enum_name(words: type[ResourceType | PatternType | Operation | Permission], number: int) -> str:
    return words(number).name if number in list(words) else "UNKNOWN"


def invalid_request(message: str) -> KafkaError:
    return KafkaError(Error.INVALID_REQUEST, message)
