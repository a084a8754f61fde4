"""What a JSON Schema says, by kinds of values: the form in which Confluent's registry compares two of them.

One object of JSON may say several things at once ("a string" and "one of these"): then it is a combination that all of
them have to agree to, as if it had been written with `allOf`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ALL, ANY, ONE = "allOf", "anyOf", "oneOf"


@dataclass(eq=False, slots=True)
class Node:
    """`kind`: any, nothing, string, number, boolean, null, array, object, enum, const, not, conditional, combined or
    reference. What a kind does not have stays empty."""

    kind: str
    has_default: bool = False
    limits: dict[str, Any] = field(default_factory=dict)  # minLength and the like, as they are written
    is_integer: bool = False
    values: list[Any] = field(default_factory=list)  # of an enum; the one of a const
    criterion: str = ""
    children: list[Node] = field(default_factory=list)  # of a combination; the one of a not
    properties: dict[str, Node] = field(default_factory=dict)
    patterns: dict[str, Node] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    needed: dict[str, frozenset[str]] = field(default_factory=dict)  # properties that a property needs beside it
    implied: dict[str, Node] = field(default_factory=dict)  # what an object has to be once it has a property
    items: Node | None = None
    places: list[Node] = field(default_factory=list)  # the items of a tuple
    allows_more: bool = True  # additionalProperties, additionalItems
    more: Node | None = None  # what additional ones have to be
    target: Node | None = None  # of a reference
    source: Any = None  # the JSON that says it

    @property
    def is_open(self) -> bool:
        """Anything may stand beside what is named."""
        return self.allows_more and self.more is None and not self.patterns


ANYTHING = Node("any")


def resolved(node: Node) -> Node:
    """What a reference refers to, over any number of others; a circle of references says nothing."""
    seen: set[int] = set()
    while node.kind == "reference" and node.target is not None:
        if id(node) in seen:
            return ANYTHING
        seen.add(id(node))
        node = node.target
    return node
