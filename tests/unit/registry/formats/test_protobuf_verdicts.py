"""Protobuf compatibility, by Confluent's rules for the wire format."""

from __future__ import annotations

import pytest
from tests.unit.registry.formats.verdicts import Pair, judge, kinds

from ottla.registry.formats import parse
from ottla.registry.formats.compatibility import check

# The types on one line are mutually readable.
READ_EACH_OTHER = """
int32 int64 uint32 uint64 bool Color
sint32 sint64
string bytes
fixed32 sfixed32
fixed64 sfixed64
float
double
"""
GROUP = {name: line for line in READ_EACH_OTHER.split("\n") for name in line.split()}
COLORS = "enum Color { RED = 0; }"


def proto3(text: str) -> str:
    return f'syntax = "proto3"; {text}'


def proto2(text: str) -> str:
    return f'syntax = "proto2"; {text}'


def fields(text: str) -> str:
    return proto3(f"message M {{ {text} }}")


@pytest.mark.parametrize("old", GROUP)
def test_scalars_of_one_group_read_each_other(old: str) -> None:
    schemas = {name: parse("PROTOBUF", fields(f"{name} a = 1; {COLORS}"), {}) for name in GROUP}
    for new, schema in schemas.items():
        problem = [] if GROUP[old] == GROUP[new] else ["FIELD_SCALAR_KIND_CHANGED"]
        assert kinds(check("BACKWARD", schema, [schemas[old]])) == problem, new


KIND, SCALAR, NAMED = "FIELD_KIND_CHANGED", "FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"
LABEL = "FIELD_NUMERIC_LABEL_CHANGED"
REMOVED = "MESSAGE_REMOVED"
MOVED, EXISTING = "MULTIPLE_FIELDS_MOVED_TO_ONEOF", "FIELD_MOVED_TO_EXISTING_ONEOF"
GONE = "ONEOF_FIELD_REMOVED"
A = "string a = 1;"

FIELDS = [
    Pair("nothing changes", A, A),
    Pair("a field comes", A, f"{A} int32 b = 2;"),
    Pair("a field goes", f"{A} int32 b = 2;", A),
    Pair("a field goes and its number is reserved", f"{A} int32 b = 2;", f"{A} reserved 2;"),
    Pair("a field comes back to its number as another", f"{A} int32 b = 2;", f"{A} string b = 2;", SCALAR, SCALAR),
    Pair("a field is renamed", A, "string name = 1;"),
    Pair("a field gets another number", A, "string a = 2;"),
    Pair(
        "two fields change their numbers",
        "string a = 1; int32 b = 2;",
        "int32 b = 1; string a = 2;",
        f"{SCALAR} {SCALAR}",
        f"{SCALAR} {SCALAR}",
    ),
    Pair("the order of fields", "string a = 1; int32 b = 2;", "int32 b = 2; string a = 1;"),
    Pair("a comment and an option come", A, "/* name */ string a = 1 [deprecated = true];"),
    Pair("a name for JSON comes", A, 'string a = 1 [json_name = "b"];'),
    Pair("a number becomes optional", "int32 a = 1;", "optional int32 a = 1;"),
    Pair("a number becomes repeated", "int32 a = 1;", "repeated int32 a = 1;"),
    Pair("an optional number becomes repeated", "optional int32 a = 1;", "repeated int32 a = 1;", LABEL, LABEL),
    Pair(
        "an optional enum becomes repeated",
        "optional E a = 1; enum E { X = 0; }",
        "repeated E a = 1; enum E { X = 0; }",
        LABEL,
        LABEL,
    ),
    Pair("an optional text becomes repeated", "optional string a = 1;", "repeated string a = 1;"),
    Pair("an optional message becomes repeated", "optional M a = 1;", "repeated M a = 1;"),
    Pair("a scalar becomes a message", A, "M a = 1;", KIND, KIND),
    Pair("a scalar becomes a map", A, "map<string, string> a = 1;", KIND, KIND),
    Pair("a message becomes a map", "M a = 1;", "map<string, M> a = 1;", KIND, KIND),
    Pair("an enum becomes a message", "E a = 1; enum E { X = 0; }", "M a = 1; enum E { X = 0; }", KIND, KIND),
    Pair("values of a map read each other", "map<string, int32> a = 1;", "map<string, int64> a = 1;"),
    Pair("values of a map change", "map<string, int32> a = 1;", "map<string, string> a = 1;", SCALAR, SCALAR),
    Pair("keys of a map read each other", "map<int32, int32> a = 1;", "map<bool, int32> a = 1;"),
    Pair("keys of a map change", "map<string, int32> a = 1;", "map<int32, int32> a = 1;", SCALAR, SCALAR),
    Pair(
        "keys and values of a map change",
        "map<string, int32> a = 1;",
        "map<int32, string> a = 1;",
        f"{SCALAR} {SCALAR}",
        f"{SCALAR} {SCALAR}",
    ),
    Pair("values of a map become messages", "map<string, int32> a = 1;", "map<string, M> a = 1;", KIND, KIND),
    Pair(
        "a map as a compiler tells it",
        "map<string, int32> a = 1;",
        "repeated AEntry a = 1; message AEntry { option map_entry = true; string key = 1; int32 value = 2; }",
    ),
    Pair("a type told in full", "M a = 1;", ".M a = 1;"),
    Pair(
        "a field of another message",
        "N a = 1; message N {} message O {}",
        "O a = 1; message N {} message O {}",
        NAMED,
        NAMED,
    ),
    Pair("a field of a message that moves out", "N a = 1; message N {}", "M a = 1;", f"{NAMED} {REMOVED}", NAMED),
]
ONEOFS = [
    Pair("a field moves into a new oneof", A, "oneof o { string a = 1; }"),
    Pair("a field moves into a new oneof with others", A, "oneof o { string a = 1; int32 b = 2; }", "", ""),
    Pair(
        "two fields move into a new oneof",
        "string a = 1; int32 b = 2;",
        "oneof o { string a = 1; int32 b = 2; }",
        MOVED,
        "",
    ),
    Pair(
        "a field moves into a oneof that was there",
        "string a = 1; oneof o { int32 b = 2; }",
        "oneof o { string a = 1; int32 b = 2; }",
        EXISTING,
        GONE,
    ),
    Pair(
        "two fields move into two new oneofs",
        "string a = 1; int32 b = 2;",
        "oneof o { string a = 1; } oneof p { int32 b = 2; }",
    ),
    Pair("a oneof gets a field", "oneof o { string a = 1; }", "oneof o { string a = 1; int32 b = 2; }", "", GONE),
    Pair("a oneof loses a field", "oneof o { string a = 1; int32 b = 2; }", "oneof o { string a = 1; }", GONE, ""),
    Pair(
        "a field leaves a oneof",
        "oneof o { string a = 1; int32 b = 2; }",
        "oneof o { string a = 1; } int32 b = 2;",
        GONE,
        EXISTING,
    ),
    Pair(
        "a field goes to another oneof",
        "oneof o { string a = 1; int32 b = 2; } oneof p { bool c = 3; }",
        "oneof o { string a = 1; } oneof p { bool c = 3; int32 b = 2; }",
        GONE,
        GONE,
    ),
    Pair("a oneof goes with its fields", f"{A} oneof o {{ int32 b = 2; }}", A),
    Pair("a oneof comes with new fields", A, f"{A} oneof o {{ int32 b = 2; int32 c = 3; }}"),
    Pair("a oneof is renamed", "oneof o { string a = 1; int32 b = 2; }", "oneof p { string a = 1; int32 b = 2; }"),
    Pair("a field of a oneof changes", "oneof o { string a = 1; }", "oneof o { int32 a = 1; }", SCALAR, SCALAR),
    Pair("a field of a oneof reads the old one", "oneof o { int32 a = 1; }", "oneof o { int64 a = 1; }"),
    Pair("a field of a oneof is renamed", "oneof o { string a = 1; }", "oneof o { string b = 1; }"),
    Pair("a field changes as it moves into a oneof", A, "oneof o { int32 a = 1; }", SCALAR, SCALAR),
    Pair("a field of a oneof becomes a message", "oneof o { string a = 1; }", "oneof o { M a = 1; }", KIND, KIND),
    Pair("a oneof of messages", "oneof o { N a = 1; } message N {}", "oneof o { N a = 1; } message N { int32 x = 1; }"),
]
MESSAGES = [
    Pair("a message comes", "message A {}", "message A {} message B {}", "", REMOVED),
    Pair("a message goes", "message A {} message B {}", "message A {}", REMOVED, ""),
    Pair("messages change their order", "message A {} message B {}", "message B {} message A {}"),
    Pair("a message is renamed", "message A {}", "message B {}", REMOVED, REMOVED),
    Pair("a message inside goes", "message A { message B {} }", "message A {}", REMOVED, ""),
    Pair("a message inside moves out", "message A { message B {} }", "message A {} message B {}", REMOVED, REMOVED),
    Pair(
        "a message inside changes",
        "message A { message B { int32 x = 1; } }",
        "message A { message B { string x = 1; } }",
        SCALAR,
        SCALAR,
    ),
    Pair(
        "a message inside a message inside",
        "message A { message B { message C { int32 x = 1; } } }",
        "message A { message B { message C { float x = 1; } } }",
        SCALAR,
        SCALAR,
    ),
    Pair(
        "the package changes",
        "package a; message A {}",
        "package b; message A {}",
        "PACKAGE_CHANGED",
        "PACKAGE_CHANGED",
    ),
    Pair("a package comes", "message A {}", "package a; message A {}", "PACKAGE_CHANGED", "PACKAGE_CHANGED"),
    Pair(
        "the package changes, fields of its messages do not",
        "package a; message A { B b = 1; } message B {}",
        "package b; message A { B b = 1; } message B {}",
        "PACKAGE_CHANGED",
        "PACKAGE_CHANGED",
    ),
    Pair("an enum comes", "message A {}", "message A {} enum E { X = 0; }"),
    Pair("an enum inside goes", "message A { enum E { X = 0; } }", "message A {}"),
    Pair("a constant comes", "enum E { X = 0; }", "enum E { X = 0; Y = 1; }"),
    Pair("a constant goes", "enum E { X = 0; Y = 1; }", "enum E { X = 0; }"),
    Pair("a constant is renamed", "enum E { X = 0; }", "enum E { Z = 0; }"),
    Pair("a constant goes and is reserved", "enum E { X = 0; Y = 1; }", 'enum E { X = 0; reserved 1; reserved "Y"; }'),
    Pair("an option of the file", "message A {}", 'option java_package = "org.example"; message A {}'),
    Pair("a service comes", "message A {}", "message A {} service S { rpc Call (A) returns (A); }"),
    Pair("a message that contains itself", "message A { A a = 1; }", "message A { A a = 1; int32 b = 2; }"),
    Pair(
        "messages that contain each other",
        "message A { B b = 1; } message B { A a = 1; }",
        "message A { B b = 1; } message B { A a = 1; int32 c = 2; }",
    ),
    Pair("an import comes", "message A {}", 'import "google/protobuf/timestamp.proto"; message A {}'),
    Pair(
        "a field of an imported type stays",
        'import "google/protobuf/timestamp.proto"; message A { google.protobuf.Timestamp t = 1; }',
        'import "google/protobuf/timestamp.proto"; message A { .google.protobuf.Timestamp t = 1; }',
    ),
    Pair(
        "a field of another imported type",
        'import "google/protobuf/timestamp.proto"; message A { google.protobuf.Timestamp t = 1; }',
        'import "google/protobuf/duration.proto"; message A { google.protobuf.Duration t = 1; }',
        NAMED,
        NAMED,
    ),
    Pair(
        "an imported message by a scalar",
        'import "google/protobuf/wrappers.proto"; message A { google.protobuf.Int32Value t = 1; }',
        "message A { int32 t = 1; }",
        KIND,
        KIND,
    ),
]
REQUIRED = [
    Pair(
        "a required field comes",
        "message A {}",
        "message A { required int32 a = 1; }",
        "REQUIRED_FIELD_ADDED",
        "REQUIRED_FIELD_REMOVED",
    ),
    Pair("an optional field comes", "message A {}", "message A { optional int32 a = 1; }"),
    Pair("a repeated field goes", "message A { repeated int32 a = 1; }", "message A {}"),
    Pair(
        "an optional number becomes required",
        "message A { optional int32 a = 1; }",
        "message A { required int32 a = 1; }",
        LABEL,
        LABEL,
    ),
    Pair(
        "an optional text becomes required",
        "message A { optional string a = 1; }",
        "message A { required string a = 1; }",
    ),
    Pair(
        "a default changes",
        "message A { optional int32 a = 1 [default = 1]; }",
        "message A { optional int32 a = 1 [default = 2]; }",
    ),
    Pair("extensions are declared", "message A {}", "message A { extensions 100 to 200; }"),
    Pair(
        "an extension comes",
        "message A { extensions 100 to 200; }",
        "message A { extensions 100 to 200; } extend A { optional int32 x = 100; }",
    ),
    Pair(
        "a required field of a message inside",
        "message A { message B {} }",
        "message A { message B { required int32 a = 1; } }",
        "REQUIRED_FIELD_ADDED",
        "REQUIRED_FIELD_REMOVED",
    ),
]
PAIRS = [
    *(pair._replace(old=fields(pair.old), new=fields(pair.new)) for pair in FIELDS + ONEOFS),
    *(pair._replace(old=proto3(pair.old), new=proto3(pair.new)) for pair in MESSAGES),
    *(pair._replace(old=proto2(pair.old), new=proto2(pair.new)) for pair in REQUIRED),
    Pair(
        "from proto2 to proto3", proto2("message A { optional string a = 1; }"), proto3("message A { string a = 1; }")
    ),
    Pair("a syntax is told", "message A { optional string a = 1; }", proto2("message A { optional string a = 1; }")),
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.what)
def test_verdicts(pair: Pair) -> None:
    judge("PROTOBUF", pair.old, pair.new, pair.backward, pair.forward)


def test_there_are_enough() -> None:
    assert len({pair.what for pair in PAIRS}) == len(PAIRS) > 80


IMPORTING = 'syntax = "proto3"; package here; import "there.proto"; message A { there.B b = 1; }'


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("message B { int32 x = 1; }", "message B { int64 x = 1; string y = 2; }", []),
        ("message B { int32 x = 1; }", "message B { string x = 1; }", [NAMED, SCALAR]),
        ("message B { B next = 1; int32 x = 2; }", "message B { B next = 1; bool x = 2; }", []),
        (
            "message B { C c = 1; } message C { int32 x = 1; }",
            "message B { C c = 1; } message C { float x = 1; }",
            [NAMED, NAMED, SCALAR],
        ),
        ("message B { C c = 1; } enum C { X = 0; }", "message B { C c = 1; } message C {}", [KIND, NAMED]),
    ],
)
def test_a_message_that_is_imported_is_compared_where_it_is_used(before: str, after: str, expected: list[str]) -> None:
    old, new = (
        parse("PROTOBUF", IMPORTING, {"there.proto": f'syntax = "proto3"; package there; {text}'})
        for text in (before, after)
    )
    assert kinds(check("BACKWARD", new, [old])) == sorted(expected)


def test_a_message_may_move_into_an_import() -> None:
    inside = parse("PROTOBUF", proto3("package p; message A { B b = 1; } message B { int32 x = 1; }"), {})
    outside = parse(
        "PROTOBUF",
        proto3('package p; import "b.proto"; message A { B b = 1; }'),
        {"b.proto": proto3("package p; message B { int32 x = 1; }")},
    )
    # It is missing at its old position, but the field still has its type.
    assert kinds(check("BACKWARD", outside, [inside])) == [REMOVED]
