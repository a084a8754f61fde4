"""Our bytes against those of two independent codecs, kio and kafka-python, for every message and every version.

Values are drawn as plain dicts (`{field: value}`) and built into our message and theirs.  Both must encode to the same
bytes, and each must read back from the other's bytes what went in.
"""

from __future__ import annotations

import dataclasses
import io
import typing
import warnings
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from ottla.protocol.apis import APIS, Api
from ottla.protocol.codec import decode_whole, encode
from ottla.protocol.schema import NO_VERSION, OWN_TAG, ZERO_UUID, Field, Type, fields_in, layout_of

with warnings.catch_warnings():  # kafka-python reads its files in a deprecated way, once per file
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer
    import kafka.protocol.sasl

BOTH = ("Request", "Response")
CASES = [
    pytest.param(api, which, version, id=f"{api.name}{which}-v{version}")
    for api in APIS.values()
    for which in BOTH
    for version in range(layout_of(api.request).min_version, api.max_version + 1)
]
# kafka-python gives authorized operations a type of its own, a set, and lacks some messages
NOT_COMPARED_FROM = {"MetadataResponse": 8, "DescribeGroupsResponse": 3, "DescribeClusterResponse": 0}
NOT_COMPARED_FROM |= {
    f"{name}{which}": 0
    for name in ("UnregisterBroker", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe")
    for which in ("Request", "Response")
}
NOT_COMPARED_FROM |= {"GetTelemetrySubscriptionsRequest": 0, "GetTelemetrySubscriptionsResponse": 0}
NOT_COMPARED_FROM |= {"PushTelemetryRequest": 0, "PushTelemetryResponse": 0}
NOT_COMPARED_FROM |= {
    f"{verb}DelegationToken{which}": 0 for verb in ("Create", "Renew", "Expire", "Describe") for which in BOTH
}
KAFKA_PYTHON_CASES = [
    case
    for case in CASES
    if case.values[2] < NOT_COMPARED_FROM.get(f"{case.values[0].name}{case.values[1]}", NO_VERSION)
]
KAFKA_PYTHON = [
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
]
# kio has no word for "never" here
NEVER_IN_NO_WORD = {"transaction_start_time_ms", "issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FEW = settings(
    max_examples=5,
    derandomize=True,
    phases=(Phase.generate, Phase.shrink),
    database=None,
    suppress_health_check=[HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@pytest.mark.parametrize(("api", "which", "version"), CASES)
def test_kio_reads_what_we_write_and_we_read_what_kio_writes(api: Api, which: str, version: int) -> None:
    cls, entity = message_class(api, which), kio_entity(api, which, version)
    read, write = entity_reader(entity), entity_writer(entity)

    @FEW
    @given(plain_messages(cls, version))
    def check(plain: dict[str, Any]) -> None:
        encoded = bytes(encode(ours(cls, version, plain), version))
        theirs = io.BytesIO()
        write(theirs, kios(entity, plain))
        assert encoded == theirs.getvalue()
        assert to_plain(decode_whole(cls, version, memoryview(encoded)), version) == plain
        assert read(encoded, 0) == (kios(entity, plain), len(encoded))

    check()


@pytest.mark.parametrize(("api", "which", "version"), KAFKA_PYTHON_CASES)
def test_kafka_python_reads_what_we_write_and_we_read_what_it_writes(api: Api, which: str, version: int) -> None:
    cls, other = message_class(api, which), kafka_python_class(api, which)

    @FEW
    @given(plain_messages(cls, version))
    def check(plain: dict[str, Any]) -> None:
        encoded = bytes(encode(ours(cls, version, plain), version))
        assert encoded == bytes(kafka_pythons(other, plain, version).encode(version=version))
        if other is kafka.protocol.metadata.ApiVersionsResponse and plain["error_code"]:
            return  # kafka-python reads every failed answer as v0, whatever it is told
        again = other.decode(encoded, version=version)
        again._header = None
        assert encoded == bytes(again.encode())

    check()


def message_class(api: Api, which: str) -> Any:
    return api.request if which == "Request" else api.response


def shared_fields(cls: type, version: int) -> list[Field]:
    """Without those that only we have."""
    return [field for field in fields_in(cls, version) if field.tag is None or field.tag < OWN_TAG]


# Drawing values


def plain_messages(cls: type, version: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({field.name: values(field, version) for field in shared_fields(cls, version)})


def values(field: Field, version: int) -> st.SearchStrategy[Any]:
    strategy = named_values(field.name, field.type)
    if strategy is None:
        strategy = typed_values(field.type, version)
    return st.none() | strategy if field.nullable else strategy


def named_values(name: str, type_: Type) -> st.SearchStrategy[Any] | None:
    """kio does not read error codes that do not exist, nor times that a datetime cannot hold."""
    if type_.kind == "int16" and name.endswith("error_code"):
        return st.sampled_from([code.value for code in ErrorCode])
    if type_.kind == "int64" and name in NEVER_IN_NO_WORD:
        return st.sampled_from([0, 1, 1_700_000_000_123])
    if type_.kind == "int64" and ("time" in name or "period" in name):
        return st.sampled_from([-1, 0, 1, 1_700_000_000_123])
    return None


def typed_values(type_: Type, version: int) -> st.SearchStrategy[Any]:
    if type_.kind == "struct":
        return plain_messages(type_.struct_class, version)
    if type_.kind == "array":
        return st.lists(typed_values(type_.array_item, version), max_size=2)
    return SIMPLE[type_.kind]


def integers(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.sampled_from([low, high, 0, 1, max(low, -1)]) | st.integers(low, high)


SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    "int8": integers(8),
    "int16": integers(16),
    "uint16": integers(16, signed=False),
    "int32": integers(32),
    "int64": integers(64),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.sampled_from([ZERO_UUID, UUID(int=1), UUID(int=2**128 - 1)]),
    "string": st.sampled_from(["", "a", "ottla-Ωç", "x" * 126, "x" * 127, "x" * 300, "ü" * 16_383]),
    "bytes": st.sampled_from([b"", b"\x00", b"b" * 126, b"b" * 127, b"b" * 20_000]),
    "records": st.sampled_from([b"", b"\x00" * 61, b"r" * 126, b"r" * 127, b"r" * 20_000]),
}


# Plain values to messages and back


def ours(cls: type, version: int, plain: dict[str, Any]) -> Any:
    made = {field.name: our_value(field.type, version, plain[field.name]) for field in shared_fields(cls, version)}
    for name, wire in cls.__wire__.items():  # type: ignore[attr-defined]
        if name not in made and wire.is_required:
            raise AssertionError(f"{cls.__name__}.{name} is not in v{version} and has no default")
    return cls(**made)


def our_value(type_: Type, version: int, value: Any) -> Any:
    if value is None or type_.kind not in ("array", "struct"):
        return value
    if type_.kind == "struct":
        return ours(type_.struct_class, version, value)
    return [our_value(type_.array_item, version, item) for item in value]


def to_plain(message: Any, version: int) -> dict[str, Any]:
    return {
        field.name: plain_value(field.type, version, getattr(message, field.name), field)
        for field in shared_fields(type(message), version)
    }


def plain_value(type_: Type, version: int, value: Any, field: Field | None = None) -> Any:
    if type_.kind == "struct" and value is None and field is not None and not field.nullable:
        value = type_.struct_class()  # a tagged struct that was left out stands for its defaults
    if value is None:
        return None
    if type_.kind == "struct":
        return to_plain(value, version)
    if type_.kind == "array":
        return [plain_value(type_.array_item, version, item) for item in value]
    return bytes(value) if type_.kind == "records" else value


def kios(entity: Any, plain: dict[str, Any]) -> Any:
    made = {}
    for field in dataclasses.fields(entity):
        value = plain[field.name] if field.name in plain else plain[field.name + "_ms"]
        made[field.name] = kio_value(field.type, field.metadata.get("kafka_type"), value)
    return entity(**made)


def kio_value(hint: Any, kafka_type: str | None, value: Any) -> Any:
    if value is None:
        return None
    arguments = [argument for argument in typing.get_args(hint) if argument not in (type(None), Ellipsis)]
    if typing.get_origin(hint) is tuple:
        return tuple(kio_value(arguments[0], kafka_type, item) for item in value)
    if arguments:
        return kio_value(arguments[0], kafka_type, value)
    if dataclasses.is_dataclass(hint):
        return kios(hint, value)
    if kafka_type == "error_code":
        return ErrorCode(value)
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return timedelta(milliseconds=value)
    if kafka_type == "datetime_i64":
        return None if value == -1 else EPOCH + timedelta(milliseconds=value)
    return None if value == ZERO_UUID else value


def kio_entity(api: Api, which: str, version: int) -> Any:
    module = load_payload_module(api.key, version, EntityType[which.lower()])
    return getattr(module, f"{api.name}{which}")


def kafka_python_class(api: Api, which: str) -> Any:
    name = f"{api.name}{which}"
    return next(getattr(module, name) for module in KAFKA_PYTHON if hasattr(module, name))


def kafka_pythons(cls: Any, plain: dict[str, Any], version: int) -> Any:
    made = {}
    for name, value in plain.items():
        field = cls._struct.fields[name]
        if field._tag is not None and (value == ZERO_UUID or (isinstance(value, dict) and set(value.values()) == {-1})):
            continue  # kafka-python does not know these for the defaults that they are, and would send them
        if isinstance(value, list) and field.is_struct_array():
            made[name] = [kafka_pythons(field.data_class, item, version) for item in value]
        elif isinstance(value, dict):
            made[name] = kafka_pythons(field.data_class, value, version)
        else:
            made[name] = value
    return cls(version=version, **made)
