"""The records of `_schemas`, byte by byte."""

import pytest

from ottla.registry.records import Key, Record, UnreadableRecordError, decode_key, decode_value, encode_key
from ottla.registry.subjects.schema import Reference, Schema, digest, schema_of

KEYS = [
    (Key("NOOP"), '{"keytype":"NOOP","magic":0}'),
    (Key("SCHEMA", "orders-value", 3), '{"keytype":"SCHEMA","subject":"orders-value","version":3,"magic":1}'),
    (Key("SCHEMA", "订单/50%", 1), '{"keytype":"SCHEMA","subject":"订单/50%","version":1,"magic":1}'),
    (Key("SCHEMA", 'say "hi"\\', 1), '{"keytype":"SCHEMA","subject":"say \\"hi\\"\\\\","version":1,"magic":1}'),
    (Key("CONFIG", "orders-value"), '{"keytype":"CONFIG","subject":"orders-value","magic":0}'),
    (Key("CONFIG"), '{"keytype":"CONFIG","magic":0}'),
    (Key("MODE", ":.test:"), '{"keytype":"MODE","subject":":.test:","magic":0}'),
    (Key("MODE"), '{"keytype":"MODE","magic":0}'),
    (Key("DELETE_SUBJECT", "a"), '{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}'),
    (Key("CLEAR_SUBJECT", "a"), '{"keytype":"CLEAR_SUBJECT","subject":"a","magic":0}'),
    (Key("CLEAR_SUBJECT"), '{"keytype":"CLEAR_SUBJECT","magic":0}'),
    (Key("CONTEXT", ".test"), '{"keytype":"CONTEXT","tenant":"default","context":".test","magic":0}'),
]
FOREIGN = [
    (b'{"subject":"a","version":1,"magic":1,"keytype":"SCHEMA"}', Key("SCHEMA", "a", 1)),  # Karapace
    (b'{"keytype":"CONFIG","subject":null,"magic":0}', Key("CONFIG")),  # Confluent before 6
    (b'{"magic":0,"keytype":"NOOP"}', Key("NOOP")),
]
UNREADABLE = [
    (None, "it has no key"),
    (b"nope", "its key is not JSON"),
    (b"[1]", "its key is not an object"),
    (b'"x"', "its key is not an object"),
    (b'{"keytype":"EXPORTER","magic":0}', "the key type EXPORTER is not known"),
    (b'{"keytype":"SCHEMA","version":1,"magic":1}', "the key names no subject"),
    (b'{"keytype":"SCHEMA","subject":7,"version":1}', "the key's subject is not text"),
    (b'{"keytype":"SCHEMA","subject":"a","version":0,"magic":1}', "the key's version is not valid"),
    (b'{"keytype":"SCHEMA","subject":"a","version":2147483648}', "the key's version is not valid"),
    (b'{"keytype":"SCHEMA","subject":"a","version":"1"}', "the key's version is not valid"),
    (b"\xff\xfe", "its key is not JSON"),
    (b'{"keytype":"NOOP"' + b"[" * 5000, "its key is not JSON"),
]


@pytest.mark.parametrize(("key", "text"), KEYS)
def test_keys_have_the_bytes_of_confluents(key: Key, text: str) -> None:
    assert encode_key(key) == text.encode()
    assert decode_key(text.encode()) == key


@pytest.mark.parametrize(("data", "key"), FOREIGN)
def test_keys_of_others_mean_the_same(data: bytes, key: Key) -> None:
    assert decode_key(data) == key


@pytest.mark.parametrize(("data", "trouble"), UNREADABLE)
def test_an_invalid_key_is_reported(data: bytes | None, trouble: str) -> None:
    with pytest.raises(UnreadableRecordError) as told:
        decode_key(data)
    assert trouble in str(told.value)


def test_values_are_confluents() -> None:
    avro = Schema("a", 1, 7, '"string"')
    assert avro.record() == Record(
        Key("SCHEMA", "a", 1), {"subject": "a", "version": 1, "id": 7, "schema": '"string"', "deleted": False}
    )
    proto = Schema("p", 2, 8, 'syntax = "proto3";', "PROTOBUF", (Reference("a.proto", "a", 1),), is_deleted=True)
    assert proto.record().value == {
        "subject": "p",
        "version": 2,
        "id": 8,
        "schemaType": "PROTOBUF",
        "references": [{"name": "a.proto", "subject": "a", "version": 1}],
        "schema": 'syntax = "proto3";',
        "deleted": True,
    }


def test_what_a_newer_registry_has_written_is_kept() -> None:
    value = {"subject": "a", "version": 1, "id": 7, "guid": "g", "schema": "x", "deleted": False, "ts": 5}
    read = schema_of(Key("SCHEMA", "a", 1), value)
    assert read.deleted().record().value == {**value, "deleted": True}


@pytest.mark.parametrize(
    ("value", "trouble"),
    [
        ({"id": "7", "schema": "x"}, "its id is not valid"),
        ({"id": True, "schema": "x"}, "its id is not valid"),
        ({"id": -1, "schema": "x"}, "its id is not valid"),
        ({"id": 2**31, "schema": "x"}, "its id is not valid"),
        ({"id": 1}, "it has no schema"),
        ({"id": 1, "schema": {"type": "string"}}, "it has no schema"),
        ({"id": 1, "schema": "x", "references": [{"name": "a"}]}, "its references are not valid"),
        ({"id": 1, "schema": "x", "metadata": []}, "its metadata or rules are not an object"),
    ],
)
def test_an_invalid_value_is_reported(value: dict[str, object], trouble: str) -> None:
    with pytest.raises(UnreadableRecordError, match=trouble):
        schema_of(Key("SCHEMA", "a", 1), value)


def test_values_that_are_not_objects_are_reported() -> None:
    assert decode_value(None) is None
    with pytest.raises(UnreadableRecordError, match="its value is not an object"):
        decode_value(b"7")


def test_the_digest_is_confluents() -> None:
    """It is the MD5 of the text alone if there is nothing else."""
    assert Schema("a", 1, 1, "x").guid == "9dd4e461-268c-8034-f5c8-564e155c67a6"
    rules = {"domainRules": [{"kind": "TRANSFORM", "mode": "WRITEREAD", "disabled": False}]}
    text = '{"type":"record","name":"myrecord","fields":[{"type":"string","default":null,"name":"f"}]}'
    assert digest(text, (), None, None).hex() == "1d20cbb9e5e35e9754e7da170b6e5ddb"
    assert digest(text, (), {}, rules).hex() == "16f1eca5ebf922b3da80212f8fa7342e"
    assert digest(text, (), None, None) != digest(text, (Reference("a", "b", 1),), None, None)
    assert digest(text, (), {}, None) != digest(text, (), None, None)
