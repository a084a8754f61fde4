"""The words of Confluent's registry for differences of JSON Schemas; %s is the new schema, then the old one."""

from __future__ import annotations

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
    """Empty for what Confluent's has no words for."""
    return DESCRIPTIONS.get(kind, "").replace("{path}", path)
