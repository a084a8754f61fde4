"""Compatibility of JSON Schemas by Confluent's rules, per type of value.

A difference is reported only if it may break: a document that the old schema accepts and the new one may reject.
Content models of objects and arrays:
* open (additional properties are allowed): properties may be removed; added ones must accept any value;
* closed: properties may be added, required ones only with a default; removed ones must accept no value;
* partially open (`patternProperties`, a schema for additional ones): changes must agree with these schemas.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from ottla.registry.formats.java_json import java_json, sorted_keys
from ottla.registry.formats.json_schema.model import ALL, ANY, ONE, Node, compiled_pattern, resolved
from ottla.registry.formats.schema_format import StepLimit

# Confluent's messages; the first %s is the new schema, the second the old one.
GROUPS = (
    (
        "The keyword at path '{path}' in the %s schema is not present in the %s schema",
        (
            *("MAXIMUM_ADDED", "MINIMUM_ADDED", "EXCLUSIVE_MAXIMUM_ADDED", "EXCLUSIVE_MINIMUM_ADDED"),
            *("MULTIPLE_OF_ADDED", "MAX_LENGTH_ADDED", "MIN_LENGTH_ADDED", "PATTERN_ADDED"),
            *("REQUIRED_ATTRIBUTE_ADDED", "MAX_PROPERTIES_ADDED", "MIN_PROPERTIES_ADDED", "DEPENDENCY_ARRAY_ADDED"),
            *("DEPENDENCY_SCHEMA_ADDED", "MAX_ITEMS_ADDED", "MIN_ITEMS_ADDED", "UNIQUE_ITEMS_ADDED"),
            *("ADDITIONAL_ITEMS_REMOVED", "ADDITIONAL_PROPERTIES_REMOVED"),
        ),
    ),
    (
        "The value at path '{path}' in the %s schema is more than its value in the %s schema",
        (
            *("MIN_LENGTH_INCREASED", "MINIMUM_INCREASED", "EXCLUSIVE_MINIMUM_INCREASED", "MIN_PROPERTIES_INCREASED"),
            *("MULTIPLE_OF_EXPANDED", "MIN_ITEMS_INCREASED"),
        ),
    ),
    (
        "The value at path '{path}' in the %s schema is less than its value in the %s schema",
        (
            *("MAX_LENGTH_DECREASED", "MAXIMUM_DECREASED", "MAX_ITEMS_DECREASED", "EXCLUSIVE_MAXIMUM_DECREASED"),
            "MAX_PROPERTIES_DECREASED",
        ),
    ),
    (
        "The value at path '{path}' is different between the %s and %s schema",
        ("PATTERN_CHANGED", "MULTIPLE_OF_CHANGED", "DEPENDENCY_ARRAY_CHANGED"),
    ),
    (
        "An array or combined type at path '{path}' has fewer elements in the %s schema than the %s schema",
        (
            *("ADDITIONAL_ITEMS_NARROWED", "ENUM_ARRAY_NARROWED", "SUM_TYPE_NARROWED"),
            "ADDITIONAL_PROPERTIES_NARROWED",
        ),
    ),
    (
        "An array or combined type at path '{path}' has more elements in the %s schema than the %s schema",
        ("DEPENDENCY_ARRAY_EXTENDED", "PRODUCT_TYPE_EXTENDED", "NOT_TYPE_EXTENDED"),
    ),
    (
        "A type at path '{path}' is different between the %s schema and the %s schema",
        (
            *("TYPE_CHANGED", "TYPE_NARROWED", "COMBINED_TYPE_CHANGED", "COMBINED_TYPE_SUBSCHEMAS_CHANGED"),
            "ENUM_ARRAY_CHANGED",
        ),
    ),
    (
        (
            "The %s schema has an open content model and has a property or item at path '{path}' "
            "which is missing in the %s schema"
        ),
        ("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", "ITEM_ADDED_TO_OPEN_CONTENT_MODEL"),
    ),
    (
        (
            "The %s schema has an unopen content model and has a required property at path '{path}' "
            "which is missing in the %s schema"
        ),
        ("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",),
    ),
    (
        (
            "The %s schema has a closed content model and is missing a property or item present at path '{path}' "
            "in the %s schema"
        ),
        ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
    ),
    (
        (
            "A property or item is missing in the %s schema but present at path '{path}' in the %s schema "
            "and is not covered by its partially open content model"
        ),
        (
            "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
            "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        ),
    ),
    (
        (
            "The %s schema has a property or item at path '{path}' which is missing in the %s schema "
            "and is not covered by its partially open content model"
        ),
        (
            "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
            "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        ),
    ),
)
DESCRIPTIONS = {kind: words for words, kinds in GROUPS for kind in kinds}


def description(kind: str, path: str) -> str:
    """Confluent's message; "" if there is none."""
    return DESCRIPTIONS.get(kind, "").replace("{path}", path)


STEPS_MAX = 200_000
# Limits where a greater value is stricter; for the others a smaller value is.
LOWER_LIMITS = ("minLength", "minimum", "exclusiveMinimum", "minItems", "minProperties")
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
    path: str  # relative to the start of the comparison

    def message(self) -> str:
        return f'{{errorType:"{self.kind}", description:"{description(self.kind, "#/" + self.path)}"}}'

    def below(self, path: str) -> Difference:
        return Difference(self.kind, f"{path}/{self.path}" if self.path else path)


def problems(update: Node, original: Node) -> list[str]:
    return [each.message() for each in Comparison().compare(original, update)]


class Comparison:
    """Each pair is compared once; a recursive pair counts as compatible."""

    def __init__(self) -> None:
        self.budget = StepLimit(STEPS_MAX, "The schemas are too large to be compared")
        self.known: dict[tuple[int, int], list[Difference]] = {}
        self.texts: dict[int, str] = {}
        self.patterns: dict[str, Any] = {}

    def compare(self, original: Node, update: Node) -> list[Difference]:
        original, update = resolved(original), resolved(update)
        pair = (id(original), id(update))
        if (found := self.known.get(pair)) is None:
            self.budget.consume()
            self.known[pair] = []
            found = self.known[pair] = list(self.compare_nodes(original, update))
        return found

    def below(self, path: str, original: Node, update: Node) -> Iterator[Difference]:
        for each in self.compare(original, update):
            yield each.below(path)

    def compare_nodes(self, original: Node, update: Node) -> Iterator[Difference]:
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
                self.budget.consume((len(original.values) + len(update.values)) // 10)
                yield from values(original, update)
            case "not":
                # A negated schema is compared in the opposite direction.
                if self.compare(update.children[0], original.children[0]):
                    yield Difference("NOT_TYPE_EXTENDED", "not")
            case "object":
                yield from self.objects(original, update)
            case "array":
                yield from self.arrays(original, update)
            case "combined":
                yield from self.combined(original, update)

    def is_one_of(self, original: Node, update: Node) -> bool:
        """A schema is compatible with a combination that has it as its only part, or as one of several alternatives."""
        if update.kind == "combined" != original.kind:
            children = update.children if len(update.children) == 1 or update.criterion in (ANY, ONE) else []
            return any(not self.compare(original, child) for child in children)
        if original.kind == "combined" != update.kind and len(original.children) == 1:
            return not self.compare(original.children[0], update)
        return False

    def objects(self, original: Node, update: Node) -> Iterator[Difference]:
        for key in original.properties:
            is_new = key in update.required and key not in original.required
            if is_new and key in update.properties and not update.properties[key].has_default:
                yield Difference("REQUIRED_ATTRIBUTE_ADDED", f"required/{key}")
        for key in dict.fromkeys((*original.properties, *update.properties)):
            path = f"properties/{key}"
            self.budget.consume()
            old, new = original.properties.get(key), update.properties.get(key)
            if old is not None and new is not None:
                yield from self.below(path, old, new)
            elif old is not None:
                more = None if update.is_open else self.additional_schema(update, key)
                yield from self.removed("PROPERTY", path, old, more, is_open=update.is_open)
            elif new is not None:
                more = None if original.is_open else self.additional_schema(original, key)
                yield from self.added("PROPERTY", path, new, more, is_open=original.is_open)
                if not original.is_open and key in update.required and not new.has_default:
                    yield Difference("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", path)
        yield from self.dependencies(original, update)
        yield from self.additional("ADDITIONAL_PROPERTIES", "additionalProperties", original, update)
        yield from limits(original, update)

    def additional_schema(self, node: Node, key: str) -> Node | None:
        """The schema of a partially open object for a property that it does not name."""
        for each, schema in node.patterns.items():
            self.budget.consume(1 + len(key) // 100)
            if each not in self.patterns:
                self.budget.consume(10 + len(each) // 10)
                self.patterns[each] = compiled_pattern(each)
            # A pattern that RE2 does not support matches nothing.
            if self.patterns[each] is not None and self.patterns[each].search(key) is not None:
                return schema
        return node.additional

    def removed(self, what: str, path: str, old: Node, more: Node | None, *, is_open: bool) -> Iterator[Difference]:
        if is_open:
            return
        if more is None:
            if old.kind != "nothing":
                yield Difference(f"{what}_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)
        elif found := list(self.below(path, old, more)):
            yield from found
            yield Difference(f"{what}_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)

    def added(self, what: str, path: str, new: Node, more: Node | None, *, is_open: bool) -> Iterator[Difference]:
        if is_open:
            if new.kind != "any":
                yield Difference(f"{what}_ADDED_TO_OPEN_CONTENT_MODEL", path)
        elif more is not None and (found := list(self.below(path, more, new))):
            yield from found
            yield Difference(f"{what}_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)

    def dependencies(self, original: Node, update: Node) -> Iterator[Difference]:
        self.budget.consume(len(update.dependent_required) + len(update.dependent_schemas))
        for key, needed in update.dependent_required.items():
            path, before = f"dependencies/{key}", original.dependent_required.get(key)
            if before is None:
                yield Difference("DEPENDENCY_ARRAY_ADDED", path)
            elif not needed <= before:
                yield Difference(f"DEPENDENCY_ARRAY_{'EXTENDED' if before < needed else 'CHANGED'}", path)
        for key, implied in update.dependent_schemas.items():
            path = f"dependencies/{key}"
            if key not in original.dependent_schemas:
                yield Difference("DEPENDENCY_SCHEMA_ADDED", path)
            else:
                yield from self.below(path, original.dependent_schemas[key], implied)

    def additional(self, what: str, path: str, original: Node, update: Node) -> Iterator[Difference]:
        if original.allows_additional != update.allows_additional:
            if original.allows_additional:
                yield Difference(f"{what}_REMOVED", path)
        elif update.additional is not None:
            if original.additional is None:
                yield Difference(f"{what}_NARROWED", path)
            else:
                yield from self.below(path, original.additional, update.additional)

    def arrays(self, original: Node, update: Node) -> Iterator[Difference]:
        if update.items is not None:
            if original.items is None:
                yield Difference("SCHEMA_ADDED", "items")
            else:
                yield from self.below("items", original.items, update.items)
        common = min(len(original.prefix_items), len(update.prefix_items))
        for place in range(common):
            yield from self.below(f"items/{place}", original.prefix_items[place], update.prefix_items[place])
        for place, old in enumerate(original.prefix_items[common:], common):
            yield from self.removed("ITEM", f"items/{place}", old, update.additional, is_open=update.is_open)
        for place, new in enumerate(update.prefix_items[common:], common):
            yield from self.added("ITEM", f"items/{place}", new, original.additional, is_open=original.is_open)
        yield from self.additional("ADDITIONAL_ITEMS", "additionalItems", original, update)
        yield from limits(original, update)
        if "uniqueItems" in update.limits and "uniqueItems" not in original.limits:
            yield Difference("UNIQUE_ITEMS_ADDED", "uniqueItems")

    def combined(self, original: Node, update: Node) -> Iterator[Difference]:
        if not is_combination_compatible(original, update):
            yield Difference("COMBINED_TYPE_CHANGED", "")
            return
        old, new = self.distinct(original.children), self.distinct(update.children)
        if len(old) < len(new) and update.criterion == ALL:
            yield Difference("PRODUCT_TYPE_EXTENDED", "")
        elif len(old) > len(new) and update.criterion != ALL:
            yield Difference("SUM_TYPE_NARROWED", "")
        edges = [[place for place, each in enumerate(new) if not self.compare(one, each)] for one in old]
        if maximum_matching_size(edges, self.budget) < min(len(old), len(new)):
            yield Difference("COMBINED_TYPE_SUBSCHEMAS_CHANGED", "")

    def distinct(self, nodes: list[Node]) -> list[Node]:
        return list({self.text(node): node for node in reversed(nodes)}.values())[::-1]

    def text(self, node: Node) -> str:
        if (found := self.texts.get(id(node))) is None:
            # A node made from a part of an object has no JSON, and equals no other.
            found = java_json(sorted_keys(node.source)) if node.source is not None else f"{id(node)}"
            self.budget.consume(len(found) // 100)
            self.texts[id(node)] = found
        return found


def is_combination_compatible(original: Node, update: Node) -> bool:
    """Whether the kind of combination may change; a single part is the same in all of them."""
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
        if key in LOWER_LIMITS and new > old:
            yield Difference(f"{name}_INCREASED", key)
        elif key not in LOWER_LIMITS and new < old:
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
    except InvalidOperation:  # exponents too far apart
        return False


def values(original: Node, update: Node) -> Iterator[Difference]:
    old, new = ({java_json(sorted_keys(each)) for each in node.values} for node in (original, update))
    if not old <= new:
        yield Difference("ENUM_ARRAY_NARROWED" if new < old else "ENUM_ARRAY_CHANGED", original.kind)


# ---- bipartite matching
def maximum_matching_size(edges: list[list[int]], budget: StepLimit) -> int:
    """The size of a maximum matching, by augmenting paths. `edges`: for each left node its right nodes."""
    partners: dict[int, int] = {}  # by right node
    count = 0
    for start in range(len(edges)):
        came_from: dict[int, int] = {}  # by right node: the left node from which it was reached
        waiting = [start]
        free: int | None = None
        while waiting and free is None:
            left = waiting.pop()
            for right in edges[left]:
                budget.consume()
                if right in came_from:
                    continue
                came_from[right] = left
                if right not in partners:
                    free = right
                    break
                waiting.append(partners[right])
        if free is None:
            continue
        count += 1
        owner = {left: right for right, left in partners.items()}
        right = free
        while True:
            left = came_from[right]
            partners[right] = left
            if left == start:
                break
            right = owner[left]
    return count
