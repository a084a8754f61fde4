"""What a new JSON Schema takes away from an old one: Confluent's rules, kind by kind of values.

A difference is named only if it breaks: a document that the old schema takes and the new one does not, or might not.
Rules of the content model of objects and arrays:
* open (anything may stand beside what is named): names may go, but not come, unless they take anything;
* closed: names may come, required ones with a default only, but not go, unless they took nothing;
* partially open (`patternProperties`, a schema for additional ones): what comes or goes has to agree with that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from ottla.registry.formats.java_json import in_order, java_json
from ottla.registry.formats.json_schema.matching import matched_count
from ottla.registry.formats.json_schema.messages import description
from ottla.registry.formats.json_schema.model import ALL, ANY, ONE, Node, resolved
from ottla.registry.formats.json_schema.patterns import compiled_pattern
from ottla.registry.formats.parsed import Budget

STEPS_MAX = 200_000
# The limits whose greater values take less; for the others it is the other way round.
LEAST = ("minLength", "minimum", "exclusiveMinimum", "minItems", "minProperties")
LIMITS = {
    "maxLength": "MAX_LENGTH",
    "minLength": "MIN_LENGTH",
    "maximum": "MAXIMUM",
    "minimum": "MINIMUM",
    "exclusiveMaximum": "EXCLUSIVE_MAXIMUM",
    "exclusiveMinimum": "EXCLUSIVE_MINIMUM",
    "maxItems": "MAX_ITEMS",
    "minItems": "MIN_ITEMS",
    "maxProperties": "MAX_PROPERTIES",
    "minProperties": "MIN_PROPERTIES",
}


@dataclass(frozen=True, slots=True)
class Difference:
    kind: str
    path: str  # behind the place where the comparison began

    def told(self) -> str:
        return f'{{errorType:"{self.kind}", description:"{description(self.kind, "#/" + self.path)}"}}'

    def below(self, path: str) -> Difference:
        return Difference(self.kind, f"{path}/{self.path}" if self.path else path)


def problems(update: Node, original: Node) -> list[str]:
    return [each.told() for each in Comparison().compared(original, update)]


class Comparison:
    """Each pair is compared once; one that is met again inside itself agrees."""

    def __init__(self) -> None:
        self.budget = Budget(STEPS_MAX, "The schemas are too large to be compared")
        self.known: dict[tuple[int, int], list[Difference]] = {}
        self.texts: dict[int, str] = {}
        self.patterns: dict[str, Any] = {}

    def compared(self, original: Node, update: Node) -> list[Difference]:
        original, update = resolved(original), resolved(update)
        pair = (id(original), id(update))
        if (found := self.known.get(pair)) is None:
            self.budget.spend()
            self.known[pair] = []
            found = self.known[pair] = list(self.decided(original, update))
        return found

    def below(self, path: str, original: Node, update: Node) -> Iterator[Difference]:
        for each in self.compared(original, update):
            yield each.below(path)

    def decided(self, original: Node, update: Node) -> Iterator[Difference]:
        if self.is_one_of(original, update):
            return
        if original.kind != update.kind:
            if original.kind != "nothing" and update.kind != "any":
                yield Difference("TYPE_CHANGED", "")
            return
        match original.kind:
            case "string":
                yield from limits(original, update)
                yield from pattern(original, update)
            case "number":
                yield from numbers(original, update)
            case "enum" | "const":
                self.budget.spend((len(original.values) + len(update.values)) // 10)
                yield from values(original, update)
            case "not":
                # What must not be is compared the other way round: less of it is more.
                if self.compared(update.children[0], original.children[0]):
                    yield Difference("NOT_TYPE_EXTENDED", "not")
            case "object":
                yield from self.objects(original, update)
            case "array":
                yield from self.arrays(original, update)
            case "combined":
                yield from self.combined(original, update)

    def is_one_of(self, original: Node, update: Node) -> bool:
        """A schema and a combination agree if the schema is its only part, or one of several that are enough."""
        if update.kind == "combined" != original.kind:
            children = update.children if len(update.children) == 1 or update.criterion in (ANY, ONE) else []
            return any(not self.compared(original, child) for child in children)
        if original.kind == "combined" != update.kind and len(original.children) == 1:
            return not self.compared(original.children[0], update)
        return False

    def objects(self, original: Node, update: Node) -> Iterator[Difference]:
        for key in original.properties:
            is_new = key in update.required and key not in original.required
            if is_new and key in update.properties and not update.properties[key].has_default:
                yield Difference("REQUIRED_ATTRIBUTE_ADDED", f"required/{key}")
        for key in dict.fromkeys((*original.properties, *update.properties)):
            path = f"properties/{key}"
            self.budget.spend()
            old, new = original.properties.get(key), update.properties.get(key)
            if old is not None and new is not None:
                yield from self.below(path, old, new)
            elif old is not None:
                more = None if update.is_open else self.more_of(update, key)
                yield from self.gone("PROPERTY", path, old, more, is_open=update.is_open)
            elif new is not None:
                more = None if original.is_open else self.more_of(original, key)
                yield from self.come("PROPERTY", path, new, more, is_open=original.is_open)
                if not original.is_open and key in update.required and not new.has_default:
                    yield Difference("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", path)
        yield from self.dependencies(original, update)
        yield from self.additional("ADDITIONAL_PROPERTIES", "additionalProperties", original, update)
        yield from limits(original, update)

    def more_of(self, node: Node, key: str) -> Node | None:
        """What a partially open object says about a property that it does not name."""
        for each, schema in node.patterns.items():
            self.budget.spend(1 + len(key) // 100)
            if each not in self.patterns:
                self.budget.spend(10 + len(each) // 10)
                self.patterns[each] = compiled_pattern(each)
            # What RE2 does not know fits nothing.
            if self.patterns[each] is not None and self.patterns[each].search(key) is not None:
                return schema
        return node.more

    def gone(self, what: str, path: str, old: Node, more: Node | None, *, is_open: bool) -> Iterator[Difference]:
        if is_open:
            return
        if more is None:
            if old.kind != "nothing":
                yield Difference(f"{what}_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)
        elif found := list(self.below(path, old, more)):
            yield from found
            yield Difference(f"{what}_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)

    def come(self, what: str, path: str, new: Node, more: Node | None, *, is_open: bool) -> Iterator[Difference]:
        if is_open:
            if new.kind != "any":
                yield Difference(f"{what}_ADDED_TO_OPEN_CONTENT_MODEL", path)
        elif more is not None and (found := list(self.below(path, more, new))):
            yield from found
            yield Difference(f"{what}_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)

    def dependencies(self, original: Node, update: Node) -> Iterator[Difference]:
        self.budget.spend(len(update.needed) + len(update.implied))
        for key, needed in update.needed.items():
            path, before = f"dependencies/{key}", original.needed.get(key)
            if before is None:
                yield Difference("DEPENDENCY_ARRAY_ADDED", path)
            elif not needed <= before:
                yield Difference(f"DEPENDENCY_ARRAY_{'EXTENDED' if before < needed else 'CHANGED'}", path)
        for key, implied in update.implied.items():
            path = f"dependencies/{key}"
            if key not in original.implied:
                yield Difference("DEPENDENCY_SCHEMA_ADDED", path)
            else:
                yield from self.below(path, original.implied[key], implied)

    def additional(self, what: str, path: str, original: Node, update: Node) -> Iterator[Difference]:
        if original.allows_more != update.allows_more:
            if original.allows_more:
                yield Difference(f"{what}_REMOVED", path)
        elif update.more is not None:
            if original.more is None:
                yield Difference(f"{what}_NARROWED", path)
            else:
                yield from self.below(path, original.more, update.more)

    def arrays(self, original: Node, update: Node) -> Iterator[Difference]:
        if update.items is not None:
            if original.items is None:
                yield Difference("SCHEMA_ADDED", "items")
            else:
                yield from self.below("items", original.items, update.items)
        common = min(len(original.places), len(update.places))
        for place in range(common):
            yield from self.below(f"items/{place}", original.places[place], update.places[place])
        for place, old in enumerate(original.places[common:], common):
            yield from self.gone("ITEM", f"items/{place}", old, update.more, is_open=update.is_open)
        for place, new in enumerate(update.places[common:], common):
            yield from self.come("ITEM", f"items/{place}", new, original.more, is_open=original.is_open)
        yield from self.additional("ADDITIONAL_ITEMS", "additionalItems", original, update)
        yield from limits(original, update)
        if "uniqueItems" in update.limits and "uniqueItems" not in original.limits:
            yield Difference("UNIQUE_ITEMS_ADDED", "uniqueItems")

    def combined(self, original: Node, update: Node) -> Iterator[Difference]:
        if not may_become(original, update):
            yield Difference("COMBINED_TYPE_CHANGED", "")
            return
        old, new = self.distinct(original.children), self.distinct(update.children)
        if len(old) < len(new) and update.criterion == ALL:
            yield Difference("PRODUCT_TYPE_EXTENDED", "")
        elif len(old) > len(new) and update.criterion != ALL:
            yield Difference("SUM_TYPE_NARROWED", "")
        edges = [[place for place, each in enumerate(new) if not self.compared(one, each)] for one in old]
        if matched_count(edges, self.budget) < min(len(old), len(new)):
            yield Difference("COMBINED_TYPE_SUBSCHEMAS_CHANGED", "")

    def distinct(self, nodes: list[Node]) -> list[Node]:
        return list({self.text(node): node for node in reversed(nodes)}.values())[::-1]

    def text(self, node: Node) -> str:
        if (found := self.texts.get(id(node))) is None:
            # What was made of a part of an object has no JSON of its own, and is like no other.
            found = java_json(in_order(node.source)) if node.source is not None else f"{id(node)}"
            self.budget.spend(len(found) // 100)
            self.texts[id(node)] = found
        return found


def may_become(original: Node, update: Node) -> bool:
    """Whether one way of combining may follow another; a single part is the same in all of them."""
    if update.criterion in (original.criterion, ANY):
        return True
    if update.criterion == ONE:
        return len(original.children) == 1
    return len(original.children) == len(update.children) == 1


def limits(original: Node, update: Node) -> Iterator[Difference]:
    for key, name in LIMITS.items():
        if key not in update.limits:
            continue
        if key not in original.limits:
            yield Difference(f"{name}_ADDED", key)
            continue
        old, new = original.limits[key], update.limits[key]
        if key in LEAST and new > old:
            yield Difference(f"{name}_INCREASED", key)
        elif key not in LEAST and new < old:
            yield Difference(f"{name}_DECREASED", key)


def pattern(original: Node, update: Node) -> Iterator[Difference]:
    old, new = original.limits.get("pattern"), update.limits.get("pattern")
    if new is not None and new != old:
        yield Difference("PATTERN_ADDED" if old is None else "PATTERN_CHANGED", "pattern")


def numbers(original: Node, update: Node) -> Iterator[Difference]:
    yield from limits(original, update)
    old, new = original.limits.get("multipleOf"), update.limits.get("multipleOf")
    if new is not None and new != old:
        if old is None:
            yield Difference("MULTIPLE_OF_ADDED", "multipleOf")
        elif is_multiple(new, old):
            yield Difference("MULTIPLE_OF_EXPANDED", "multipleOf")
        elif not is_multiple(old, new):
            yield Difference("MULTIPLE_OF_CHANGED", "multipleOf")
    if update.is_integer and not original.is_integer:
        yield Difference("TYPE_NARROWED", "")


def is_multiple(of: Any, what: Any) -> bool:
    try:
        return Decimal(of) % Decimal(what) == 0
    except InvalidOperation:  # too far apart
        return False


def values(original: Node, update: Node) -> Iterator[Difference]:
    old, new = ({java_json(in_order(each)) for each in node.values} for node in (original, update))
    if not old <= new:
        yield Difference("ENUM_ARRAY_NARROWED" if new < old else "ENUM_ARRAY_CHANGED", original.kind)
