"""The model of a JSON Schema by type of value: the form in which Confluent's registry compares schemas.

A JSON object with several conditions ("a string" and "one of these") becomes a combination of all, as if written with
`allOf`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ottla.base.regular_expressions import CLIENT, PatternError, compile_pattern, is_readable
from ottla.registry.formats.schema_format import InvalidSchemaError

ALL, ANY, ONE = "allOf", "anyOf", "oneOf"


@dataclass(eq=False, slots=True)
class Node:
    """A condition. `kind`: any, nothing, string, number, boolean, null, array, object, enum, const, not, conditional,
    combined or reference. Attributes of other kinds are empty.
    """

    kind: str
    has_default: bool = False
    limits: dict[str, Any] = field(default_factory=dict)  # minLength and similar keywords
    is_integer: bool = False
    values: list[Any] = field(default_factory=list)  # of an enum; the single value of a const
    criterion: str = ""
    children: list[Node] = field(default_factory=list)  # of a combination; the single child of a not
    properties: dict[str, Node] = field(default_factory=dict)
    patterns: dict[str, Node] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    # dependentRequired: properties required by a property
    dependent_required: dict[str, frozenset[str]] = field(default_factory=dict)
    dependent_schemas: dict[str, Node] = field(
        default_factory=dict
    )  # dependentSchemas: the schema of an object with a property
    items: Node | None = None
    prefix_items: list[Node] = field(default_factory=list)  # the items of a tuple
    allows_additional: bool = True  # additionalProperties, additionalItems
    additional: Node | None = None  # the schema of additional ones
    target: Node | None = None  # of a reference
    source: Any = None  # the JSON of this node

    @property
    def is_open(self) -> bool:
        """Additional properties or items may have any value."""
        return self.allows_additional and self.additional is None and not self.patterns


ANYTHING = Node("any")


def resolved(node: Node) -> Node:
    """The target of a chain of references; a cycle accepts anything."""
    seen: set[int] = set()
    while node.kind == "reference" and node.target is not None:
        if id(node) in seen:
            return ANYTHING
        seen.add(id(node))
        node = node.target
    return node


# ---- patterns
LENGTH_MAX = 10_000
# Long schemas are parsed in a thread.
LIMITS = CLIENT._replace(depth=LENGTH_MAX, parts=2 * LENGTH_MAX, memory_bytes=1 << 18)


def check_pattern(pattern: object) -> str:
    """Validate a pattern. RE2 executes it; one that RE2 does not support (such as lookahead) is valid if Python can
    parse it.
    """
    if not isinstance(pattern, str):
        raise InvalidSchemaError(f"A pattern is a text, not {str(pattern)[:100]}")
    if len(pattern) > LENGTH_MAX:
        raise InvalidSchemaError(f"A pattern is longer than {LENGTH_MAX}")
    if compiled_pattern(pattern) is None and not is_readable(pattern):
        raise InvalidSchemaError(f"Not a pattern: {pattern[:200]}")
    return pattern


def compiled_pattern(pattern: str) -> Any:
    """None if RE2 does not support the pattern; it is never executed by a backtracking engine."""
    try:
        return compile_pattern(pattern, limits=LIMITS)
    except PatternError:
        return None
