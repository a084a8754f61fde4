"""Our message classes against two independent descriptions of the same protocol.

kafka-python ships Kafka's own JSON files, kio the dataclasses that it generated from them.  For every message and
every version: the same fields in the same order, of the same types, null-able and tagged alike, with the same
defaults.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from functools import cache
from importlib import resources
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_payload_module
from kio.static.constants import EntityType

from ottla.protocol.apis import ALL_APIS, Api
from ottla.protocol.schema import NO_VERSION, OWN_TAG, ZERO_UUID, Type, fields_in, fields_of, layout_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # kafka-python, when it is imported
BOTH = ("Request", "Response")
NOWHERE_ELSE = ("ClusterPoll", "WriteAudit", "ControlledShutdown")  # our own, and what Kafka 4 has no more
MESSAGES = [
    pytest.param(api, which, id=f"{api.name}{which}")
    for api in ALL_APIS.values()
    if api.name not in NOWHERE_ELSE
    for which in BOTH
]
# kafka-python has no description of these
WITHOUT_JSON = (
    "UnregisterBroker",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
    "GetTelemetrySubscriptions",
    "PushTelemetry",
    "AlterPartition",
    "Envelope",
    "AllocateProducerIds",
    *(f"{verb}DelegationToken" for verb in ("Create", "Renew", "Expire", "Describe")),
)
JSON_MESSAGES = [
    case for case in MESSAGES if str(case.id).removesuffix("Request").removesuffix("Response") not in WITHOUT_JSON
]
KIO_KINDS = {"error_code": "int16", "timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}
EMPTY = {"string": "", "bytes": b"", "bool": False, "uuid": ZERO_UUID}


@pytest.mark.parametrize(("api", "which"), JSON_MESSAGES)
def test_every_version_has_the_fields_that_kafkas_json_says(api: Api, which: str) -> None:
    cls = message_class(api, which)
    schema = json_schema(cls.__name__)
    for version in versions_of(cls):
        assert our_shape(cls, version) == json_shape(schema["fields"], structs_of(schema), version), f"v{version}"


@pytest.mark.parametrize(("api", "which"), MESSAGES)
def test_every_version_has_the_fields_that_kio_says(api: Api, which: str) -> None:
    cls = message_class(api, which)
    for version in versions_of(cls):
        assert without_units(our_shape(cls, version)) == kio_shape(kio_entity(api, which, version)), f"v{version}"


@pytest.mark.parametrize(("api", "which"), JSON_MESSAGES)
def test_api_key_and_flexible_versions_are_kafkas(api: Api, which: str) -> None:
    layout, schema = layout_of(message_class(api, which)), json_schema(api.name + which)
    first = schema["flexibleVersions"].removesuffix("+")
    flexible_since = NO_VERSION if first == "none" else int(first)
    assert (layout.api_key, layout.flexible_since) == (schema["apiKey"], flexible_since)
    assert (api.key, api.flexible_since) == (schema["apiKey"], flexible_since)
    for version in versions_of(message_class(api, which)):
        assert kio_entity(api, which, version).__flexible__ == (version >= flexible_since)


@pytest.mark.parametrize(("api", "which"), JSON_MESSAGES)
def test_defaults_are_kafkas(api: Api, which: str) -> None:
    cls = message_class(api, which)
    schema = json_schema(cls.__name__)
    check_defaults(cls, schema["fields"], structs_of(schema), layout_of(cls).min_version, layout_of(cls).max_version)


def message_class(api: Api, which: str) -> type:
    made: type = api.request if which == "Request" else api.response
    return made


def versions_of(cls: type) -> range:
    return range(layout_of(cls).min_version, layout_of(cls).max_version + 1)


# A shape is a list of (name, type, nullable, tag); a type is a kind, ["array", type] or ["struct", shape].


def our_shape(cls: type, version: int) -> list[Any]:
    shared = [f for f in fields_in(cls, version) if f.tag is None or f.tag < OWN_TAG]
    return [(f.name, our_type(f.type, version), f.nullable, f.tag) for f in shared]


def without_units(shape: Any) -> Any:
    """kio has timedelta and datetime objects, and so no `_ms` in their names."""
    if isinstance(shape, tuple):
        return (shape[0].removesuffix("_ms"), without_units(shape[1]), *shape[2:])
    return [without_units(part) for part in shape] if isinstance(shape, list) else shape


def our_type(type_: Type, version: int) -> Any:
    if type_.kind == "array":
        return ["array", our_type(type_.array_item, version)]
    return ["struct", our_shape(type_.struct_class, version)] if type_.kind == "struct" else type_.kind


def json_shape(fields: list[Any], structs: dict[str, Any], version: int) -> list[Any]:
    return [
        (
            snake_case(field["name"]),
            json_type(field["type"], field, structs, version),
            within(field.get("nullableVersions"), version),
            field.get("tag"),
        )
        for field in fields
        if within(field["versions"], version)
    ]


def json_type(name: str, field: Any, structs: dict[str, Any], version: int) -> Any:
    if name.startswith("[]"):
        return ["array", json_type(name[2:], field, structs, version)]
    nested = field.get("fields") or structs.get(name)
    return ["struct", json_shape(nested, structs, version)] if nested else name


def kio_shape(entity: type) -> list[Any]:
    shape = []
    for field in dataclasses.fields(entity):  # type: ignore[arg-type]
        kind, nullable = kio_type(field.type, field.metadata.get("kafka_type"))
        tag = field.metadata.get("tag")
        # kio has no null for "no uuid" and "no time", it has None for the values that mean it
        is_value = field.metadata.get("kafka_type") in ("uuid", "datetime_i64")
        shape.append((field.name, kind, nullable and not is_value, tag))
    return shape


def kio_type(hint: Any, kafka_type: str | None) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (inner,) = [argument for argument in typing.get_args(hint) if argument is not type(None)]
        return kio_type(inner, kafka_type)[0], True
    if typing.get_origin(hint) is tuple:
        return ["array", kio_type(typing.get_args(hint)[0], kafka_type)[0]], False
    if dataclasses.is_dataclass(hint):
        return ["struct", kio_shape(hint)], False  # type: ignore[arg-type]
    assert kafka_type is not None
    return KIO_KINDS.get(kafka_type, kafka_type), False


def check_defaults(cls: type, fields: list[Any], structs: dict[str, Any], low: int, high: int) -> None:
    """Ours equal Kafka's, or are null where Kafka's schema leaves the default of a null-able field open."""
    for schema in fields:
        first, last = max(bounds(schema["versions"])[0], low), min(bounds(schema["versions"])[1], high)
        if first > last:
            continue
        name = snake_case(schema["name"])
        ours = fields_of(cls)[name]
        type_ = fields_in(cls, first)[[f.name for f in fields_in(cls, first)].index(name)].type
        nested = schema.get("fields") or structs.get(schema["type"].removeprefix("[]"))
        where = f"{cls.__name__}.{name}"
        if nested:
            struct = type_.array_item.struct_class if type_.kind == "array" else type_.struct_class
            check_defaults(struct, nested, structs, first, last)
        if ours.is_required:
            assert "default" not in schema, where
            assert (first, last) == (low, high), f"{where} is not in all versions and needs a default"
        elif type_.kind == "struct":
            assert ours.default_value() is None, where
        elif "default" in schema:
            assert ours.default_value() == parse_default(type_.kind, str(schema["default"])), where
        else:
            empty: Any = [] if type_.kind == "array" else EMPTY.get(type_.kind, 0)
            may_be_null = ours.nullable <= first
            assert ours.default_value() == empty or (may_be_null and ours.default_value() is None), where


def parse_default(kind: str, text: str) -> Any:
    if text == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    return text if kind == "string" else UUID(text) if kind == "uuid" else int(text, 0)


def within(text: str | None, version: int) -> bool:
    low, high = bounds(text)
    return low <= version <= high


def bounds(text: str | None) -> tuple[int, int]:
    if text is None or text == "none":
        return (1, 0)
    if text.endswith("+"):
        return int(text[:-1]), NO_VERSION
    low, _, high = text.partition("-")
    return int(low), int(high or low)


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


@cache
def json_schema(name: str) -> Any:
    text = (resources.files("kafka.protocol.schemas.resources") / f"{name}.json").read_text()
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def structs_of(schema: Any) -> dict[str, Any]:
    return {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", ())}


def kio_entity(api: Api, which: str, version: int) -> Any:
    module = load_payload_module(api.key, version, EntityType[which.lower()])
    return getattr(module, f"{api.name}{which}")
