"""JSON Schema compatibility, by Confluent's rules and content models.

Backward compatible: the new schema accepts every document that the old one accepts.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.registry.formats.verdicts import Pair, judge

STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}


def opened(*required: str, **properties: Any) -> dict[str, Any]:
    """Additional properties may have any value."""
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def closed(*required: str, **properties: Any) -> dict[str, Any]:
    """No additional properties."""
    return {**opened(*required, **properties), "additionalProperties": False}


def partly(more: Any, *required: str, **properties: Any) -> dict[str, Any]:
    """Additional properties must match `more`."""
    return {**opened(*required, **properties), "additionalProperties": more}


def with_pattern(pattern: str, schema: Any, **properties: Any) -> dict[str, Any]:
    return {**closed(**properties), "patternProperties": {pattern: schema}}


def string(**limits: Any) -> dict[str, Any]:
    return {"type": "string", **limits}


def number(**limits: Any) -> dict[str, Any]:
    return {"type": "number", **limits}


def array(items: Any = None, **limits: Any) -> dict[str, Any]:
    return {"type": "array", **({} if items is None else {"items": items}), **limits}


CHANGED = "TYPE_CHANGED"
TYPES = [
    Pair("nothing changes", STRING, STRING),
    Pair("a string becomes a number", STRING, NUMBER, CHANGED, CHANGED),
    Pair("a string becomes an integer", STRING, INTEGER, CHANGED, CHANGED),
    Pair("an integer becomes a number", INTEGER, NUMBER, "", "TYPE_NARROWED"),
    Pair(
        "keywords of other types are conditions, too", INTEGER, {"type": "integer", "properties": {}}, CHANGED, CHANGED
    ),
    Pair(
        "a format counts as one of texts",
        {"type": "integer", "format": "int32"},
        {"type": "integer", "format": "int64"},
    ),
    Pair(
        "an integer with a format becomes a number",
        {"type": "integer", "format": "int32"},
        {"type": "number", "format": "double"},
        "",
        "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
    ),
    Pair("a number becomes an integer", NUMBER, INTEGER, "TYPE_NARROWED", ""),
    Pair("a boolean becomes a string", {"type": "boolean"}, STRING, CHANGED, CHANGED),
    Pair("a boolean stays", {"type": "boolean"}, {"type": "boolean"}),
    Pair("null stays", {"type": "null"}, {"type": "null"}),
    Pair("null becomes an object", {"type": "null"}, opened(), CHANGED, CHANGED),
    Pair("an object becomes an array", opened(), array(), CHANGED, CHANGED),
    Pair("anything is taken from now on", STRING, {}, "", CHANGED),
    Pair("anything, told as true", STRING, True, "", CHANGED),
    Pair("true and the empty schema are one", True, {}),
    Pair("nothing was taken before", False, STRING, "", CHANGED),
    Pair("nothing is taken from now on", STRING, False, CHANGED, ""),
    Pair("a title and words come", STRING, string(title="Name", description="of a person")),
    Pair("a default comes", STRING, string(default="x")),
    Pair("an unknown keyword comes", STRING, string(owner="me")),
    Pair("a format comes", STRING, string(format="date")),
    Pair("a draft is told", STRING, {"$schema": "http://json-schema.org/draft-07/schema#", **STRING}),
    Pair("a newer draft is told", STRING, {"$schema": "https://json-schema.org/draft/2020-12/schema", **STRING}),
    Pair("an id is told", STRING, {"$id": "http://example.com/name.json", **STRING}),
]
LIMITS = [
    Pair("maxLength comes", STRING, string(maxLength=5), "MAX_LENGTH_ADDED", ""),
    Pair("maxLength grows", string(maxLength=5), string(maxLength=6), "", "MAX_LENGTH_DECREASED"),
    Pair("minLength comes", STRING, string(minLength=5), "MIN_LENGTH_ADDED", ""),
    Pair("minLength grows", string(minLength=5), string(minLength=6), "MIN_LENGTH_INCREASED", ""),
    Pair(
        "both lengths change",
        string(minLength=2, maxLength=9),
        string(minLength=3, maxLength=8),
        "MIN_LENGTH_INCREASED MAX_LENGTH_DECREASED",
        "",
    ),
    Pair("a pattern comes", STRING, string(pattern="^a"), "PATTERN_ADDED", ""),
    Pair("a pattern changes", string(pattern="^a"), string(pattern="^b"), "PATTERN_CHANGED", "PATTERN_CHANGED"),
    Pair("a pattern stays", string(pattern="^a"), string(pattern="^a")),
    Pair("maximum comes", NUMBER, number(maximum=5), "MAXIMUM_ADDED", ""),
    Pair("maximum grows", number(maximum=5), number(maximum=5.5), "", "MAXIMUM_DECREASED"),
    Pair("minimum comes", NUMBER, number(minimum=5), "MINIMUM_ADDED", ""),
    Pair("minimum grows", number(minimum=5), number(minimum=6), "MINIMUM_INCREASED", ""),
    Pair("5 and 5.0 are one", number(minimum=5), number(minimum=5.0)),
    Pair("exclusiveMaximum comes", NUMBER, number(exclusiveMaximum=5), "EXCLUSIVE_MAXIMUM_ADDED", ""),
    Pair(
        "exclusiveMaximum grows",
        number(exclusiveMaximum=5),
        number(exclusiveMaximum=6),
        "",
        "EXCLUSIVE_MAXIMUM_DECREASED",
    ),
    Pair("exclusiveMinimum comes", NUMBER, number(exclusiveMinimum=5), "EXCLUSIVE_MINIMUM_ADDED", ""),
    Pair(
        "exclusiveMinimum grows",
        number(exclusiveMinimum=5),
        number(exclusiveMinimum=6),
        "EXCLUSIVE_MINIMUM_INCREASED",
        "",
    ),
    Pair("multipleOf comes", NUMBER, number(multipleOf=5), "MULTIPLE_OF_ADDED", ""),
    Pair("a multiple of the multiple", number(multipleOf=5), number(multipleOf=10), "MULTIPLE_OF_EXPANDED", ""),
    Pair("another multiple", number(multipleOf=5), number(multipleOf=7), "MULTIPLE_OF_CHANGED", "MULTIPLE_OF_CHANGED"),
    Pair("a fraction of the multiple", number(multipleOf=1), number(multipleOf=0.5), "", "MULTIPLE_OF_EXPANDED"),
    Pair("limits without a type", {"minimum": 1}, {"minimum": 2}, "MINIMUM_INCREASED", ""),
    Pair("lengths without a type", {"maxLength": 1}, {"maxLength": 2}, "", "MAX_LENGTH_DECREASED"),
    Pair("maxItems comes", array(), array(maxItems=5), "MAX_ITEMS_ADDED", ""),
    Pair("maxItems grows", array(maxItems=5), array(maxItems=6), "", "MAX_ITEMS_DECREASED"),
    Pair("minItems comes", array(), array(minItems=5), "MIN_ITEMS_ADDED", ""),
    Pair("minItems grows", array(minItems=5), array(minItems=6), "MIN_ITEMS_INCREASED", ""),
    Pair("items have to differ", array(), array(uniqueItems=True), "UNIQUE_ITEMS_ADDED", ""),
    Pair("uniqueItems was false", array(uniqueItems=False), array()),
    Pair("maxProperties comes", opened(), {**opened(), "maxProperties": 3}, "MAX_PROPERTIES_ADDED", ""),
    Pair(
        "maxProperties grows",
        {**opened(), "maxProperties": 3},
        {**opened(), "maxProperties": 4},
        "",
        "MAX_PROPERTIES_DECREASED",
    ),
    Pair("minProperties comes", opened(), {**opened(), "minProperties": 3}, "MIN_PROPERTIES_ADDED", ""),
    Pair(
        "minProperties grows",
        {**opened(), "minProperties": 3},
        {**opened(), "minProperties": 4},
        "MIN_PROPERTIES_INCREASED",
        "",
    ),
]
ENUMS = [
    Pair("a value comes", {"enum": ["a"]}, {"enum": ["a", "b"]}, "", "ENUM_ARRAY_NARROWED"),
    Pair("values change their order", {"enum": ["a", "b"]}, {"enum": ["b", "a"]}),
    Pair(
        "a value becomes another one",
        {"enum": ["a", "b"]},
        {"enum": ["a", "c"]},
        "ENUM_ARRAY_CHANGED",
        "ENUM_ARRAY_CHANGED",
    ),
    Pair("all values become others", {"enum": ["a"]}, {"enum": ["b"]}, "ENUM_ARRAY_CHANGED", "ENUM_ARRAY_CHANGED"),
    Pair("values of several types", {"enum": [1, None]}, {"enum": [1, None, {"a": 1}]}, "", "ENUM_ARRAY_NARROWED"),
    Pair(
        "a typed enum gets a value", string(enum=["a"]), string(enum=["a", "b"]), "", "COMBINED_TYPE_SUBSCHEMAS_CHANGED"
    ),
    Pair("a typed enum stays", string(enum=["a"]), string(enum=["a"])),
    Pair("an enum becomes anything", {"enum": ["a"]}, {}, "", CHANGED),
    Pair("a string becomes an enum", STRING, {"enum": ["a"]}, CHANGED, CHANGED),
    Pair("a constant stays", {"const": 1}, {"const": 1}),
    Pair("a constant changes", {"const": 1}, {"const": 2}, "ENUM_ARRAY_CHANGED", "ENUM_ARRAY_CHANGED"),
]
OPEN = [
    Pair(
        "an open object gets a property",
        opened(a=STRING),
        opened(a=STRING, b=STRING),
        "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
        "",
    ),
    Pair("an open object gets one that takes anything", opened(a=STRING), opened(a=STRING, b={})),
    Pair("an open object gets one that is true", opened(a=STRING), opened(a=STRING, b=True)),
    Pair(
        "an open object loses a property",
        opened(a=STRING, b=STRING),
        opened(a=STRING),
        "",
        "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
    ),
    Pair("an open object loses all", opened(a=STRING), opened(), "", "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
    Pair(
        "a property of an open one is renamed",
        opened(a=STRING),
        opened(b=STRING),
        "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
        "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
    ),
    Pair("additionalProperties: true is open", opened(a=STRING), partly(True, a=STRING)),
    Pair("a property changes its type", opened(a=STRING), opened(a=INTEGER), CHANGED, CHANGED),
    Pair("a property takes less", opened(a=NUMBER), opened(a=INTEGER), "TYPE_NARROWED", ""),
    Pair(
        "two properties take less",
        opened(a=NUMBER, b=NUMBER),
        opened(a=INTEGER, b=INTEGER),
        "TYPE_NARROWED TYPE_NARROWED",
        "",
    ),
    Pair("a property inside an object", opened(a=opened(b=NUMBER)), opened(a=opened(b=INTEGER)), "TYPE_NARROWED", ""),
    Pair(
        "an object inside gets a property",
        opened(a=opened()),
        opened(a=opened(b=STRING)),
        "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
        "",
    ),
    Pair("no type, but properties", {"properties": {"a": STRING}}, {"properties": {"a": INTEGER}}, CHANGED, CHANGED),
    Pair("a property becomes required", opened(a=STRING), opened("a", a=STRING), "REQUIRED_ATTRIBUTE_ADDED", ""),
    Pair(
        "a property with a default becomes required", opened(a=string(default="x")), opened("a", a=string(default="x"))
    ),
    Pair(
        "a default beside a reference is none",
        opened(a={"$ref": "#/properties/b", "default": "x"}, b=STRING),
        opened("a", a={"$ref": "#/properties/b", "default": "x"}, b=STRING),
        "REQUIRED_ATTRIBUTE_ADDED",
        "",
    ),
    Pair(
        "two become required",
        opened(a=STRING, b=STRING),
        opened("a", "b", a=STRING, b=STRING),
        "REQUIRED_ATTRIBUTE_ADDED REQUIRED_ATTRIBUTE_ADDED",
        "",
    ),
    Pair("required, but not named", opened(), opened("a")),
    Pair("the order of required ones", opened("a", "b", a=STRING, b=STRING), opened("b", "a", a=STRING, b=STRING)),
    Pair("the order of properties", opened(a=STRING, b=STRING), opened(b=STRING, a=STRING)),
    Pair("an open one gets closed", opened(a=STRING), closed(a=STRING), "ADDITIONAL_PROPERTIES_REMOVED", ""),
    Pair(
        "an open one gets partly open", opened(a=STRING), partly(STRING, a=STRING), "ADDITIONAL_PROPERTIES_NARROWED", ""
    ),
]
CLOSED = [
    Pair(
        "a closed object gets a property",
        closed(a=STRING),
        closed(a=STRING, b=STRING),
        "",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    Pair(
        "a closed object gets a required one",
        closed(a=STRING),
        closed("b", a=STRING, b=STRING),
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    Pair(
        "a closed object gets a required one with a default",
        closed(a=STRING),
        closed("b", a=STRING, b=string(default="x")),
        "",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    Pair(
        "a closed object loses a property",
        closed(a=STRING, b=STRING),
        closed(a=STRING),
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "",
    ),
    Pair("a closed object loses one that took nothing", closed(a=STRING, b=False), closed(a=STRING)),
    Pair("a closed object gets one that takes nothing", closed(a=STRING), closed(a=STRING, b=False)),
    Pair(
        "a property of a closed one is renamed",
        closed(a=STRING),
        closed(b=STRING),
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    Pair(
        "a property of a closed one becomes required",
        closed(a=STRING),
        closed("a", a=STRING),
        "REQUIRED_ATTRIBUTE_ADDED",
        "",
    ),
    Pair("a closed one gets open", closed(a=STRING), opened(a=STRING), "", "ADDITIONAL_PROPERTIES_REMOVED"),
    Pair(
        "a closed one gets open and a property",
        closed(a=STRING),
        opened(a=STRING, b=STRING),
        "",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL ADDITIONAL_PROPERTIES_REMOVED",
    ),
    Pair(
        "a closed one inside an open one",
        opened(a=closed(b=STRING)),
        opened(a=closed(b=STRING, c=STRING)),
        "",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    Pair(
        "a closed one gets partly open", closed(a=STRING), partly(STRING, a=STRING), "", "ADDITIONAL_PROPERTIES_REMOVED"
    ),
]
NOT_COVERED_ADDED = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
NOT_COVERED_REMOVED = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
PARTLY = [
    Pair("a property that was covered", partly(STRING, a=INTEGER), partly(STRING, a=INTEGER, b=STRING)),
    Pair(
        "a property that was not covered",
        partly(STRING, a=INTEGER),
        partly(STRING, a=INTEGER, b=INTEGER),
        f"{CHANGED} {NOT_COVERED_ADDED}",
        f"{CHANGED} {NOT_COVERED_REMOVED}",
    ),
    Pair(
        "one that takes more than was covered",
        partly(INTEGER),
        partly(INTEGER, a=NUMBER),
        "",
        f"TYPE_NARROWED {NOT_COVERED_REMOVED}",
    ),
    Pair(
        "one that takes less than was covered",
        partly(NUMBER),
        partly(NUMBER, a=INTEGER),
        f"TYPE_NARROWED {NOT_COVERED_ADDED}",
        "",
    ),
    Pair(
        "a covered one that is required",
        partly(STRING),
        partly(STRING, "a", a=STRING),
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "",
    ),
    Pair("a covered one that is required, with a default", partly(STRING), partly(STRING, "a", a=string(default="x"))),
    Pair("additional ones take more", partly(INTEGER), partly(NUMBER), "", "TYPE_NARROWED"),
    Pair("additional ones take others", partly(INTEGER), partly(STRING), CHANGED, CHANGED),
    Pair("partly open gets open", partly(STRING, a=STRING), opened(a=STRING), "", "ADDITIONAL_PROPERTIES_NARROWED"),
    Pair("a property that fits the pattern", with_pattern("^x_", STRING), with_pattern("^x_", STRING, x_a=STRING)),
    Pair(
        "a property that fits the pattern, but not its schema",
        with_pattern("^x_", STRING),
        with_pattern("^x_", STRING, x_a=INTEGER),
        f"{CHANGED} {NOT_COVERED_ADDED}",
        f"{CHANGED} {NOT_COVERED_REMOVED}",
    ),
    Pair(
        "a property that does not fit the pattern",
        with_pattern("^x_", STRING),
        with_pattern("^x_", STRING, a=STRING),
        "",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    Pair(
        "a property goes that the pattern covers", with_pattern("^x_", STRING, x_a=STRING), with_pattern("^x_", STRING)
    ),
]
ITEM_OPEN = "ITEM_ADDED_TO_OPEN_CONTENT_MODEL"
ARRAYS = [
    Pair("items are told", array(), array(STRING), "SCHEMA_ADDED", ""),
    Pair("items take more", array(INTEGER), array(NUMBER), "", "TYPE_NARROWED"),
    Pair("items take others", array(STRING), array(NUMBER), CHANGED, CHANGED),
    Pair("items of items", array(array(INTEGER)), array(array(NUMBER)), "", "TYPE_NARROWED"),
    Pair(
        "items are objects",
        array(closed(a=STRING)),
        array(closed(a=STRING, b=STRING)),
        "",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    Pair("where all items are told, none is additional", array(STRING), array(STRING, additionalItems=False)),
    Pair("an open tuple gets an item", array([STRING]), array([STRING, STRING]), ITEM_OPEN, ""),
    Pair("an open tuple gets one that takes anything", array([STRING]), array([STRING, {}])),
    Pair(
        "a closed tuple gets an item",
        array([STRING], additionalItems=False),
        array([STRING, STRING], additionalItems=False),
        "",
        "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    Pair(
        "a closed tuple loses one that took nothing",
        array([STRING, False], additionalItems=False),
        array([STRING], additionalItems=False),
    ),
    Pair("an item of a tuple takes more", array([INTEGER]), array([NUMBER]), "", "TYPE_NARROWED"),
    Pair(
        "a partly open tuple gets a covered item",
        array([STRING], additionalItems=STRING),
        array([STRING, STRING], additionalItems=STRING),
    ),
    Pair(
        "a partly open tuple gets another item",
        array([STRING], additionalItems=STRING),
        array([STRING, INTEGER], additionalItems=STRING),
        f"{CHANGED} ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        f"{CHANGED} ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    ),
    Pair(
        "an open tuple gets closed",
        array([STRING]),
        array([STRING], additionalItems=False),
        "ADDITIONAL_ITEMS_REMOVED",
        "",
    ),
    Pair(
        "an open tuple gets partly open",
        array([STRING]),
        array([STRING], additionalItems=STRING),
        "ADDITIONAL_ITEMS_NARROWED",
        "",
    ),
    Pair(
        "additional items take more",
        array([STRING], additionalItems=INTEGER),
        array([STRING], additionalItems=NUMBER),
        "",
        "TYPE_NARROWED",
    ),
]
ANY, ALL, ONE = "anyOf", "allOf", "oneOf"
SUBSCHEMAS, COMBINED = "COMBINED_TYPE_SUBSCHEMAS_CHANGED", "COMBINED_TYPE_CHANGED"
COMBINATIONS = [
    Pair("a choice comes", {ONE: [STRING]}, {ONE: [STRING, NUMBER]}, "", "SUM_TYPE_NARROWED"),
    Pair(
        "a choice comes to anyOf", {ANY: [STRING, NUMBER]}, {ANY: [STRING, NUMBER, opened()]}, "", "SUM_TYPE_NARROWED"
    ),
    Pair("choices change their order", {ONE: [STRING, NUMBER]}, {ONE: [NUMBER, STRING]}),
    Pair("a choice becomes another one", {ONE: [STRING, NUMBER]}, {ONE: [STRING, opened()]}, SUBSCHEMAS, SUBSCHEMAS),
    Pair("a choice takes more", {ONE: [STRING, INTEGER]}, {ONE: [STRING, NUMBER]}, "", SUBSCHEMAS),
    Pair("a choice twice is one", {ANY: [STRING, STRING]}, {ANY: [STRING]}),
    Pair("a condition comes", {ALL: [NUMBER]}, {ALL: [NUMBER, {"minimum": 1}]}, "PRODUCT_TYPE_EXTENDED", ""),
    Pair(
        "a condition takes less",
        {ALL: [number(minimum=1), opened()]},
        {ALL: [number(minimum=2), opened()]},
        SUBSCHEMAS,
        "",
    ),
    Pair("oneOf becomes anyOf", {ONE: [STRING, NUMBER]}, {ANY: [STRING, NUMBER]}, "", COMBINED),
    Pair("allOf becomes anyOf", {ALL: [STRING, NUMBER]}, {ANY: [STRING, NUMBER]}, "", COMBINED),
    Pair("allOf becomes oneOf", {ALL: [STRING, NUMBER]}, {ONE: [STRING, NUMBER]}, COMBINED, COMBINED),
    Pair("one part is the same in all: oneOf and allOf", {ONE: [STRING]}, {ALL: [STRING]}),
    Pair("one part is the same in all: anyOf and oneOf", {ANY: [STRING]}, {ONE: [STRING]}),
    Pair("a schema becomes a choice", STRING, {ONE: [STRING, NUMBER]}, "", CHANGED),
    Pair("a schema becomes a choice without it", STRING, {ONE: [opened(), NUMBER]}, CHANGED, CHANGED),
    Pair("a schema becomes a choice that takes more", INTEGER, {ANY: [NUMBER, STRING]}, "", CHANGED),
    Pair("a schema becomes its only choice", STRING, {ONE: [STRING]}),
    Pair("a schema becomes one of two conditions", STRING, {ALL: [STRING, {"maxLength": 3}]}, CHANGED, CHANGED),
    Pair("several types", {"type": ["string", "null"]}, {"type": ["null", "string"]}),
    Pair("a type comes", STRING, {"type": ["string", "null"]}, "", CHANGED),
    Pair(
        "a third type comes",
        {"type": ["string", "null"]},
        {"type": ["string", "null", "integer"]},
        "",
        "SUM_TYPE_NARROWED",
    ),
    Pair(
        "one of several types takes less",
        {"type": ["string", "number"]},
        {"type": ["string", "integer"]},
        SUBSCHEMAS,
        "",
    ),
    Pair("several types are a choice", {"type": ["string", "null"]}, {ANY: [STRING, {"type": "null"}]}),
    Pair("a property gets a choice", opened(a=STRING), opened(a={ONE: [STRING, NUMBER]}), "", CHANGED),
    Pair("not: less is excluded", {"not": NUMBER}, {"not": INTEGER}, "", "NOT_TYPE_EXTENDED"),
    Pair("not: something else is excluded", {"not": NUMBER}, {"not": STRING}, "NOT_TYPE_EXTENDED", "NOT_TYPE_EXTENDED"),
    Pair("not: the same is excluded", {"not": NUMBER}, {"not": NUMBER}),
    Pair("conditions are not compared", {"if": STRING, "then": {"maxLength": 2}}, {"if": STRING, "then": False}),
]
DEPENDENCIES = [
    Pair(
        "a dependency comes",
        opened(a=STRING),
        {**opened(a=STRING), "dependencies": {"a": ["b"]}},
        "DEPENDENCY_ARRAY_ADDED",
        "",
    ),
    Pair(
        "a dependency grows",
        {"dependencies": {"a": ["b"]}},
        {"dependencies": {"a": ["b", "c"]}},
        "DEPENDENCY_ARRAY_EXTENDED",
        "",
    ),
    Pair(
        "a dependency changes",
        {"dependencies": {"a": ["b"]}},
        {"dependencies": {"a": ["c"]}},
        "DEPENDENCY_ARRAY_CHANGED",
        "DEPENDENCY_ARRAY_CHANGED",
    ),
    Pair(
        "a dependent schema comes",
        opened(a=STRING),
        {**opened(a=STRING), "dependencies": {"a": opened()}},
        "DEPENDENCY_SCHEMA_ADDED",
        "",
    ),
    Pair(
        "a dependent schema takes less",
        {"dependencies": {"a": number()}},
        {"dependencies": {"a": INTEGER}},
        "TYPE_NARROWED",
        "",
    ),
]
NEWEST = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
NEXT = {"$schema": "https://json-schema.org/draft/2019-09/schema"}
FOURTH = {"$schema": "http://json-schema.org/draft-04/schema#"}
SIXTH = {"$schema": "http://json-schema.org/draft-06/schema#"}
LIST = {"type": "object", "properties": {"value": INTEGER, "next": {"$ref": "#"}}, "additionalProperties": False}
REFERENCES_AND_DRAFTS = [
    Pair(
        "what is referred to takes more",
        {"$ref": "#/definitions/a", "definitions": {"a": INTEGER}},
        {"$ref": "#/definitions/a", "definitions": {"a": NUMBER}},
        "",
        "TYPE_NARROWED",
    ),
    Pair(
        "a reference instead of the schema",
        opened(a=STRING),
        {**opened(a={"$ref": "#/definitions/name"}), "definitions": {"name": STRING}},
    ),
    Pair(
        "another name for what is referred to",
        {"$ref": "#/definitions/a", "definitions": {"a": STRING}},
        {"$ref": "#/definitions/b", "definitions": {"b": STRING}},
    ),
    Pair("an unused definition", STRING, {**STRING, "definitions": {"a": NUMBER}}),
    Pair("a list of itself stays", LIST, LIST),
    Pair(
        "a list of itself takes more",
        LIST,
        {**LIST, "properties": {**LIST["properties"], "value": NUMBER}},
        "",
        "TYPE_NARROWED",
    ),
    Pair(
        "an anchor",
        {**NEWEST, "$ref": "#a", "$defs": {"a": {"$anchor": "a", **INTEGER}}},
        {**NEWEST, **NUMBER},
        "",
        "TYPE_NARROWED",
    ),
    Pair(
        "2020-12: a tuple gets an item",
        {**NEWEST, "type": "array", "prefixItems": [STRING]},
        {**NEWEST, "type": "array", "prefixItems": [STRING, STRING]},
        ITEM_OPEN,
        "",
    ),
    Pair(
        "2020-12: a closed tuple gets an item",
        {**NEWEST, "type": "array", "prefixItems": [STRING], "items": False},
        {**NEWEST, "type": "array", "prefixItems": [STRING, STRING], "items": False},
        "",
        "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    Pair(
        "2019-09: a dependency comes",
        {**NEXT, **opened(a=STRING)},
        {**NEXT, **opened(a=STRING), "dependentRequired": {"a": ["b"]}},
        "DEPENDENCY_ARRAY_ADDED",
        "",
    ),
    Pair(
        "2019-09: a dependent schema comes",
        {**NEXT, **opened(a=STRING)},
        {**NEXT, **opened(a=STRING), "dependentSchemas": {"a": opened()}},
        "DEPENDENCY_SCHEMA_ADDED",
        "",
    ),
    Pair(
        "from draft 7 to 2020-12",
        {**closed(a=STRING)},
        {**NEWEST, **closed(a=STRING, b=STRING)},
        "",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    Pair(
        "draft 4: true is a limit outside",
        {**FOURTH, **number(minimum=1)},
        {**FOURTH, **number(minimum=1, exclusiveMinimum=True)},
    ),
    Pair("draft 4 knows no constant", {**FOURTH, "const": 1}, {**FOURTH, "const": 2}),
    Pair(
        "draft 6 knows constants",
        {**SIXTH, "const": 1},
        {**SIXTH, "const": 2},
        "ENUM_ARRAY_CHANGED",
        "ENUM_ARRAY_CHANGED",
    ),
    Pair("draft 6 knows no conditions", {**SIXTH, "if": STRING}, {**SIXTH, **STRING}, CHANGED, ""),
]
PAIRS = [
    *(*TYPES, *LIMITS, *ENUMS, *OPEN, *CLOSED, *PARTLY),
    *(*ARRAYS, *COMBINATIONS, *DEPENDENCIES, *REFERENCES_AND_DRAFTS),
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.what)
def test_verdicts(pair: Pair) -> None:
    judge("JSON", json.dumps(pair.old), json.dumps(pair.new), pair.backward, pair.forward)


def test_there_are_enough() -> None:
    assert len({pair.what for pair in PAIRS}) == len(PAIRS) > 150
