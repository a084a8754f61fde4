"""The nodes of ACLs in the metadata store, as Kafka 3.9 stores them in ZooKeeper: one node for each resource.

`/kafka-acl/Topic/orders` has the literal rules, `/kafka-acl-extended/prefixed/Topic/orders` the prefixed ones. Kafka's
tools that write there create a notification below `/kafka-acl-changes` or `/kafka-acl-extended-changes`; brokers of
ottla get the rules from their controller and need none. Names that are not valid path segments in ZooKeeper are stored
below `/kafka-acl-escaped`. Kafka does not know that path, and cannot store such a rule at all.

All functions are pure. A node that cannot be read denies all access (`DENY_ALL`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

from ottla.base.security import (
    OPERATIONS_BY_NAME,
    PATTERN_TYPES_BY_NAME,
    PERMISSIONS_BY_NAME,
    RESOURCE_TYPES_BY_NAME,
    SEPARATOR,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    pascal_name,
)
from ottla.controller import tree
from ottla.controller.stores.store import Node
from ottla.security.acls import DENY_ALL, AccessControlEntry, Entries, ResourcePattern

LITERAL_ROOT: Final = "/kafka-acl"
PREFIXED_ROOT: Final = "/kafka-acl-extended/prefixed"
ESCAPED_ROOT: Final = "/kafka-acl-escaped"
LITERAL_CHANGE_NOTIFICATIONS: Final = "/kafka-acl-changes"
PREFIXED_CHANGE_NOTIFICATIONS: Final = "/kafka-acl-extended-changes"
CHANGE_NOTIFICATIONS: Final = (LITERAL_CHANGE_NOTIFICATIONS, PREFIXED_CHANGE_NOTIFICATIONS)
ROOTS: Final = (LITERAL_ROOT, "/kafka-acl-extended", ESCAPED_ROOT)
RESOURCE_TYPES: Final = tuple(kind for kind in ResourceType if kind > ResourceType.ANY)
NODE_VERSION: Final = 1

# Nodes that exist in every cluster, parents first.
PERSISTENT_PATHS: Final = (
    LITERAL_ROOT,
    *(f"{LITERAL_ROOT}/{pascal_name(kind)}" for kind in RESOURCE_TYPES),
    "/kafka-acl-extended",
    PREFIXED_ROOT,
    *(f"{PREFIXED_ROOT}/{pascal_name(kind)}" for kind in RESOURCE_TYPES),
    ESCAPED_ROOT,
    *CHANGE_NOTIFICATIONS,
)

# A valid path segment in ZooKeeper: no slash, only printable characters, and not "." or "..".
_PATH_SEGMENT: Final = re.compile("(?!\\.{1,2}$)[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+")


def acl_path(pattern: ResourcePattern) -> str:
    kind = pascal_name(pattern.resource_type)
    if not _PATH_SEGMENT.fullmatch(pattern.name):
        from urllib.parse import quote  # noqa: PLC0415 (rarely needed, and slow to import)

        escaped = quote(pattern.name, safe="", errors="surrogatepass")
        return f"{ESCAPED_ROOT}/{pascal_name(pattern.pattern_type)}:{kind}:{escaped}"
    return f"{PREFIXED_ROOT if pattern.pattern_type == PatternType.PREFIXED else LITERAL_ROOT}/{kind}/{pattern.name}"


def acl_pattern(path: str) -> ResourcePattern | None:
    """Return the inverse of acl_path(); None for any other path."""
    if path.startswith(f"{ESCAPED_ROOT}/"):
        from urllib.parse import unquote  # noqa: PLC0415

        word, _, rest = path[len(ESCAPED_ROOT) + 1 :].partition(SEPARATOR)
        kind, _, name = rest.partition(SEPARATOR)
        name = unquote(name, errors="surrogatepass")
    else:
        root, word = (PREFIXED_ROOT, "Prefixed") if path.startswith(f"{PREFIXED_ROOT}/") else (LITERAL_ROOT, "Literal")
        kind, _, name = path.removeprefix(f"{root}/").partition("/")
    if kind not in RESOURCE_TYPES_BY_NAME or word not in PATTERN_TYPES_BY_NAME or not name:
        return None
    return ResourcePattern(RESOURCE_TYPES_BY_NAME[kind], name, PATTERN_TYPES_BY_NAME[word])


def encode_acls(entries: Entries) -> bytes:
    rows = [
        {
            "principal": entry.principal,
            "permissionType": pascal_name(entry.permission),
            "operation": pascal_name(entry.operation),
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    return tree.to_json({"version": NODE_VERSION, "acls": rows})


def decode_acls(path: str, data: bytes) -> Entries:
    """Decode the rules of a node. An empty node has none, as in Kafka; any other invalid content is damage."""
    with tree.reading(path):
        if not data:
            return frozenset()
        fields = tree.from_json(data)
        if fields["version"] != NODE_VERSION:
            raise ValueError(f"version {fields['version']!r} is not known")
        return frozenset(map(decode_entry, fields["acls"]))


def decode_entry(row: Mapping[str, object]) -> AccessControlEntry:
    principal, host = row["principal"], row["host"]
    operation, permission = OPERATIONS_BY_NAME[str(row["operation"])], PERMISSIONS_BY_NAME[str(row["permissionType"])]
    if not isinstance(principal, str) or not isinstance(host, str) or SEPARATOR not in principal:
        raise ValueError(f"{row} has no principal or no host")
    if operation <= Operation.ANY or permission <= Permission.ANY:
        raise ValueError(f"{row} is a filter, not a rule")
    return AccessControlEntry(principal, host, operation, permission)


def load_acls(
    nodes: Mapping[str, Node], read: Callable[[str, Callable[[], Entries]], Entries | None]
) -> dict[ResourcePattern, Entries]:
    """Return the rules in a tree of nodes; `read` records a damaged node and returns None for it."""
    found: dict[ResourcePattern, Entries] = {}
    shared: dict[Entries, Entries] = {}  # many resources have equal rules
    for path, node in nodes.items():
        pattern = acl_pattern(path) if path.startswith(ROOTS) else None
        if pattern is None:
            continue
        entries = load_entries(path, node, read)
        if entries:
            found[pattern] = shared.setdefault(entries, entries)
    return found


def load_acl_versions(nodes: Mapping[str, Node]) -> dict[ResourcePattern, int]:
    patterns = {path: acl_pattern(path) for path in nodes if path.startswith(ROOTS)}
    return {pattern: nodes[path].version for path, pattern in patterns.items() if pattern is not None}


def load_entries(path: str, node: Node, read: Callable[[str, Callable[[], Entries]], Entries | None]) -> Entries:
    entries = read(path, lambda: decode_acls(path, node.data))
    return DENY_ALL if entries is None else entries


def decode_changed_pattern(data: bytes) -> ResourcePattern | None:
    """Decode a notification of changed rules; None if it cannot be read."""
    try:
        text = data.decode()
        if text.startswith("{"):
            fields = tree.from_json(data)
            kind, name, pattern_type = str(fields["resourceType"]), str(fields["name"]), str(fields["patternType"])
        else:
            (kind, name), pattern_type = text.split(SEPARATOR, 1), PatternType.LITERAL.name
        return ResourcePattern(ResourceType[kind.upper()], name, PatternType[pattern_type.upper()])
    except (ValueError, KeyError, TypeError, json.JSONDecodeError):
        return None
