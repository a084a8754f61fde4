"""Where access rules stand in the metadata store, as Kafka 3.9 kept them in ZooKeeper: one node for each resource.

`/kafka-acl/Topic/orders` has the literal rules, `/kafka-acl-extended/prefixed/Topic/orders` the prefixed ones. Kafka's
tools that write there leave a notice below `/kafka-acl-changes` or `/kafka-acl-extended-changes`; our brokers learn of
rules from their controller and leave none. A name that ZooKeeper takes for more than one step, or not at all, stands
below `/kafka-acl-escaped`, which Kafka does not know: it could not keep such a rule itself.

Everything here is pure. A node that cannot be read denies everything to everybody (`DENY_ALL`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

from ottla.base.security import (
    OPERATIONS_BY_WORD,
    PATTERN_TYPES_BY_WORD,
    PERMISSIONS_BY_WORD,
    RESOURCE_TYPES_BY_WORD,
    SEPARATOR,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    word_of,
)
from ottla.controller import tree
from ottla.controller.stores.store import Node
from ottla.security.acls import DENY_ALL, AccessControlEntry, Entries, ResourcePattern

LITERAL: Final = "/kafka-acl"
PREFIXED: Final = "/kafka-acl-extended/prefixed"
ESCAPED: Final = "/kafka-acl-escaped"
LITERAL_CHANGES: Final = "/kafka-acl-changes"
PREFIXED_CHANGES: Final = "/kafka-acl-extended-changes"
CHANGES: Final = (LITERAL_CHANGES, PREFIXED_CHANGES)
ROOTS: Final = (LITERAL, "/kafka-acl-extended", ESCAPED)
RESOURCE_TYPES: Final = tuple(kind for kind in ResourceType if kind > ResourceType.ANY)
NODE_VERSION: Final = 1

# Nodes that exist in every cluster, parents first.
SKELETON: Final = (
    LITERAL,
    *(f"{LITERAL}/{word_of(kind)}" for kind in RESOURCE_TYPES),
    "/kafka-acl-extended",
    PREFIXED,
    *(f"{PREFIXED}/{word_of(kind)}" for kind in RESOURCE_TYPES),
    ESCAPED,
    *CHANGES,
)

# What a step of a path in ZooKeeper can be: no slash, nothing that cannot be printed, and not "." or "..".
_STEP: Final = re.compile("(?!\\.{1,2}$)[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+")


def acl_path(pattern: ResourcePattern) -> str:
    kind = word_of(pattern.resource_type)
    if not _STEP.fullmatch(pattern.name):
        from urllib.parse import quote  # noqa: PLC0415 (rarely needed, and slow to import)

        escaped = quote(pattern.name, safe="", errors="surrogatepass")
        return f"{ESCAPED}/{word_of(pattern.pattern_type)}:{kind}:{escaped}"
    return f"{PREFIXED if pattern.pattern_type == PatternType.PREFIXED else LITERAL}/{kind}/{pattern.name}"


def acl_pattern(path: str) -> ResourcePattern | None:
    """The other way of acl_path; None for a path that is not that of a resource."""
    if path.startswith(f"{ESCAPED}/"):
        from urllib.parse import unquote  # noqa: PLC0415

        word, _, rest = path[len(ESCAPED) + 1 :].partition(SEPARATOR)
        kind, _, name = rest.partition(SEPARATOR)
        name = unquote(name, errors="surrogatepass")
    else:
        root, word = (PREFIXED, "Prefixed") if path.startswith(f"{PREFIXED}/") else (LITERAL, "Literal")
        kind, _, name = path.removeprefix(f"{root}/").partition("/")
    if kind not in RESOURCE_TYPES_BY_WORD or word not in PATTERN_TYPES_BY_WORD or not name:
        return None
    return ResourcePattern(RESOURCE_TYPES_BY_WORD[kind], name, PATTERN_TYPES_BY_WORD[word])


def encode_acls(entries: Entries) -> bytes:
    rows = [
        {
            "principal": entry.principal,
            "permissionType": word_of(entry.permission),
            "operation": word_of(entry.operation),
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    return tree.to_json({"version": NODE_VERSION, "acls": rows})


def decode_acls(path: str, data: bytes) -> Entries:
    """A node without anything in it has no rules, as in Kafka; anything else that is not quite right is damaged."""
    with tree.reading(path):
        if not data:
            return frozenset()
        fields = tree.from_json(data)
        if fields["version"] != NODE_VERSION:
            raise ValueError(f"version {fields['version']!r} is not known")
        return frozenset(map(decode_entry, fields["acls"]))


def decode_entry(row: Mapping[str, object]) -> AccessControlEntry:
    principal, host = row["principal"], row["host"]
    operation, permission = OPERATIONS_BY_WORD[str(row["operation"])], PERMISSIONS_BY_WORD[str(row["permissionType"])]
    if not isinstance(principal, str) or not isinstance(host, str) or SEPARATOR not in principal:
        raise ValueError(f"{row} names no principal or no host")
    if operation <= Operation.ANY or permission <= Permission.ANY:
        raise ValueError(f"{row} is a filter and no rule")
    return AccessControlEntry(principal, host, operation, permission)


def load_acls(
    nodes: Mapping[str, Node], read: Callable[[str, Callable[[], Entries]], Entries | None]
) -> dict[ResourcePattern, Entries]:
    """The rules in a tree of nodes; `read` notes a node that is damaged and gives None for it."""
    found: dict[ResourcePattern, Entries] = {}
    shared: dict[Entries, Entries] = {}  # most resources have the rules of others
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


def changed_pattern(data: bytes) -> ResourcePattern | None:
    """What a notice of changed rules is about; None if that cannot be read."""
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
