"""Protobuf: texts in Confluent's form, compiled files, rejected schemas, and verbose messages."""

from __future__ import annotations

import base64

import pytest
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from ottla.registry.formats import InvalidSchemaError, parse
from ottla.registry.formats.compatibility import check

WRITTEN = r"""
// Orders of a shop.
syntax = "proto3";
package shop.orders;
import public "b.proto";  import "google/protobuf/timestamp.proto";
option java_package = 'org.shop' ".orders";
option (owner).team = "them";
/* What a customer bought. */
message Order {
  enum State { NEW = 0; PAID = 1 [deprecated = true]; }
  string id = 1;   // its number
  repeated Line lines = 3 [(a) = { x: 1 y: ["p", "q"] z { w: true } }, deprecated = true];
  map < string ,Line> by_name=4;
  oneof payment { option (o) = MANY; string card = 0x05; Line other = 6; }
  optional State state = 7 [json_name = "st"];
  google.protobuf.Timestamp at = 2;
  message Line { int32 count = 1; string text = 2; }
  reserved 10, 20 to 30, 100 to max; reserved "old";
}
enum Top { ZERO = 0; }
message Empty {}
service Shop { rpc Buy (Order) returns (stream Empty) { option deprecated = true; } rpc Look (Empty) returns (Order); }
"""
STORED = r"""syntax = "proto3";
package shop.orders;

import "google/protobuf/timestamp.proto";
import public "b.proto";

option java_package = "org.shop.orders";
option (owner).team = "them";

message Order {
  reserved 10, 20 to 30, 100 to 536870911;
  reserved "old";

  string id = 1;
  repeated Line lines = 3 [
    (a) = {
      x: 1,
      y: [
        "p",
        "q"
      ],
      z: {
        w: true
      }
    },
    deprecated = true
  ];
  map<string, Line> by_name = 4;
  optional State state = 7 [json_name = "st"];
  google.protobuf.Timestamp at = 2;

  oneof payment {
    option (o) = MANY;
  .
    string card = 5;
    Line other = 6;
  }

  message Line {
    int32 count = 1;
    string text = 2;
  }
  enum State {
    NEW = 0;
    PAID = 1 [deprecated = true];
  }
}
message Empty {}
enum Top {
  ZERO = 0;
}

service Shop {
  rpc Buy (Order) returns (stream Empty) {
    option deprecated = true;
  };
  rpc Look (Empty) returns (Order);
}
""".replace("  .\n", "  \n")


def test_the_text_is_in_one_order_without_comments() -> None:
    assert parse("PROTOBUF", WRITTEN, {}).text == STORED
    assert parse("PROTOBUF", STORED, {}).text == STORED


def test_the_normalized_form_sorts_by_numbers_and_has_full_type_names() -> None:
    normal = parse("PROTOBUF", WRITTEN, {}).normalized()
    assert (
        "  string id = 1;\n  .google.protobuf.Timestamp at = 2;\n  repeated .shop.orders.Order.Line lines = 3" in normal
    )
    assert (
        "  map<string, .shop.orders.Order.Line> by_name = 4;\n  optional .shop.orders.Order.State state = 7" in normal
    )
    assert '  reserved 10;\n  reserved 20 to 30;\n  reserved 100 to 536870911;\n  reserved "old";\n' in normal
    assert "rpc Buy (.shop.orders.Order) returns (stream .shop.orders.Empty)" in normal
    assert parse("PROTOBUF", normal, {}).normalized() == normal


@pytest.mark.parametrize(
    "text",
    [
        'syntax = "proto2"; message A { optional bytes b = 1 [default = "\\001\\377a\\"\'"]; }',
        'syntax = "proto2"; message A { optional float f = 2 [default = -inf]; }',
        'syntax = "proto2"; message A { optional group G = 1 { required int32 q = 1; } extensions 100 to max; }',
        'syntax = "proto2"; message A { extensions 5; } message B { extend A { optional int32 x = 5; } }',
        'syntax = "proto2"; message A { extensions 5; } extend A { repeated A y = 5; }',
        'syntax = "proto3"; enum E { option allow_alias = true; A = 0; B = 0; C = -1; reserved 5 to 7; reserved "D"; }',
        'syntax = "proto3"; message message { string message = 1; string enum = 2; string option = 3; reserved 4; }',
        'syntax = "proto3"; message A { string x = 1 [(a.b).c.d = 1e3, (.e) = -inf, (f) = { [g.h]: <i: 1> j: [] }]; }',
    ],
)
def test_what_was_printed_is_read_as_the_same(text: str) -> None:
    schema = parse("PROTOBUF", text, {})
    again = parse("PROTOBUF", schema.text, {})
    assert (again.text, again.normalized()) == (schema.text, schema.normalized())
    assert not check("FULL", again, [schema])


def compiled(descriptor: FileDescriptorProto) -> str:
    return base64.b64encode(descriptor.SerializeToString()).decode()


def test_a_compiled_file_is_printed_as_text() -> None:
    descriptor = FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for field in descriptor.message_type[0].field:
        field.ClearField("json_name")  # some compilers set it, some do not
    schema = parse("PROTOBUF", compiled(descriptor), {})
    assert schema.text == (
        'syntax = "proto3";\npackage google.protobuf;\n\n'
        'option java_package = "com.google.protobuf";\noption java_outer_classname = "TimestampProto";\n'
        "option java_multiple_files = true;\n"
        'option go_package = "google.golang.org/protobuf/types/known/timestamppb";\noption cc_enable_arenas = true;\n'
        'option objc_class_prefix = "GPB";\noption csharp_namespace = "Google.Protobuf.WellKnownTypes";\n\n'
        "message Timestamp {\n  int64 seconds = 1;\n  int32 nanos = 2;\n}\n"
    )
    assert parse("PROTOBUF", schema.text, {}).text == schema.text


def test_a_map_of_a_compiled_file_is_the_map_that_was_written() -> None:
    descriptor = FileDescriptorProto(name="m.proto", syntax="proto3", package="p")
    message = descriptor.message_type.add(name="M")
    message.field.add(name="a", number=1, label=3, type=11, type_name=".p.M.AEntry")
    entry = message.nested_type.add(name="AEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, type=9)
    entry.field.add(name="value", number=2, label=1, type=11, type_name=".p.M")
    from_compiler = parse("PROTOBUF", compiled(descriptor), {})
    written = parse("PROTOBUF", 'syntax = "proto3"; package p; message M { map<string, M> a = 1; }', {})
    assert from_compiler.normalized() == written.normalized()
    assert not check("FULL", from_compiler, [written])


def test_types_come_from_references_and_from_what_is_known() -> None:
    here = 'syntax = "proto3"; import "a.proto"; message M { there.A a = 1; there.sub.B b = 2; }'
    a = 'syntax = "proto3"; package there; import public "b.proto"; message A {}'
    b = 'syntax = "proto3"; package there.sub; message B {}'
    parse("PROTOBUF", here, {"b.proto": b, "a.proto": a})
    with pytest.raises(InvalidSchemaError, match=r'M: "there\.sub\.B" is not defined'):
        parse("PROTOBUF", here, {"a.proto": a})
    known = ("google/protobuf/wrappers", "google/protobuf/struct", "confluent/type/decimal", "confluent/meta")
    for name, kind in zip(
        known,
        ("google.protobuf.StringValue", "google.protobuf.Value", "confluent.type.Decimal", "confluent.Meta"),
        strict=True,
    ):
        parse("PROTOBUF", f'syntax = "proto3"; import "{name}.proto"; message M {{ {kind} a = 1; }}', {})


def test_imports_that_nothing_comes_from_are_kept_and_never_opened() -> None:
    text = 'syntax = "proto3"; import "/etc/passwd"; import "../../x.proto"; message A {}'
    assert 'import "/etc/passwd";\nimport "../../x.proto";\n' in parse("PROTOBUF", text, {}).text


def test_files_that_import_each_other_end() -> None:
    a = 'syntax = "proto3"; package a; import "b.proto"; message A { b.B x = 1; }'
    b = 'syntax = "proto3"; package b; import "a.proto"; message B { a.A x = 1; }'
    parse("PROTOBUF", a, {"b.proto": b, "a.proto": a})


REFUSED = [
    ("foo", "Could not parse Protobuf - Syntax error in :1:4: unexpected label: foo"),
    ('syntax = "proto4"; message A {}', "unexpected syntax: proto4"),
    ('edition = "2023"; message A {}', "unexpected label: edition"),
    ('message A {} syntax = "proto3";', "must be the first declaration"),
    ("message A { string a = 1; }", "unexpected label: string"),
    ('syntax = "proto3"; package a; package b; message A {}', "too many package names"),
    ('syntax = "proto3";', "contains no type definitions"),
    ('syntax = "proto3"; message A {} message A {}', '"A" is already defined in the file'),
    ('syntax = "proto3"; enum E { X = 0; } enum F { X = 0; }', '"X" is already defined'),
    ('syntax = "proto3"; message A { /* }', "expected a name but was '/'"),
    ('syntax = "proto3"; /* unclosed', "expected a name but was '/'"),
    ('syntax = "proto3"; option a = "unclosed', "unexpected character"),
]
REFUSED_FIELDS = [
    ("string a = 1", "expected ';'"),
    ("string a 1;", "expected '='"),
    ("string a = ;", "expected a number"),
    ("string = 1;", "expected a name"),
    ("string 1a = 1;", "expected a name"),
    ("string a = 1.5;", "expected an integer"),
    ("string a = 99999999999999999999999;", "expected an integer"),
    ("string a = 0;", "is not in 1 to 536870911"),
    ("string a = -1;", "is not in 1 to 536870911"),
    ("string a = 536870912;", "is not in 1 to 536870911"),
    ("string a = 19500;", "19000 to 19999 are reserved"),
    ("string a = 1; string b = 1;", "field number 1 is used by a and b"),
    ("string a = 1; string a = 2;", '"a" is already defined in M'),
    ("reserved 1; string a = 1;", "field a uses the reserved number 1"),
    ("reserved 1 to 5, 7; string a = 7;", "field a uses the reserved number 7"),
    ("reserved 3 to max; string a = 5;", "field a uses the reserved number 5"),
    ('reserved "a"; string a = 1;', "the name a is reserved"),
    ("reserved 5 to 3;", "is not a range of field numbers"),
    ("reserved 1, 1;", "overlap at 1"),
    ("reserved a;", "expected '='"),
    ("required string a = 1;", "'required' label forbidden in proto3"),
    ("string a = 1 [default = 'x'];", "defaults are not allowed in proto3"),
    ("group G = 1 { string a = 1; }", "groups are not allowed in proto3"),
    ("extensions 4 to 5;", "not allowed in proto3"),
    ("N a = 1;", '"N" is not defined'),
    ("map<float, string> a = 1;", "float cannot be the key of a map"),
    ("map<M, string> a = 1;", "M cannot be the key of a map"),
    ("map<string, N> a = 1;", '"N" is not defined'),
    ("repeated map<string, string> a = 1;", "neither have a label"),
    ("oneof o {}", "must have at least one field"),
    ("oneof o { repeated string a = 1; }", "label forbidden in a oneof"),
    ("oneof o { map<string, string> a = 1; }", "nor stand in a oneof"),
    ("oneof o { string a = 1; } string o = 2;", '"o" is already defined in M'),
    ("enum E {}", "at least one value"),
    ("enum E { X = 1; }", "first enum value must be zero"),
    ("enum E { X = 0; Y = 0; }", "Y uses the number 0 again"),
    ("enum E { X = 0; Y = 2147483648; }", "not a number of 32 bits"),
    ("enum E { X = 0; reserved 5 to 7; Y = 6; }", "Y = 6 is reserved"),
    ("string a = 1; ", "unexpected end of file"),
]
REFUSED_OTHERS = [
    ('syntax = "proto2"; message A { optional int32 a = 1 [default = "x"]; }', "default of a is not a int32"),
    ('syntax = "proto2"; message A { optional bool a = 1 [default = 1]; }', "default of a is not a bool"),
    ('syntax = "proto2"; message A { repeated int32 a = 1 [default = 1]; }', "what is repeated has no default"),
    ('syntax = "proto2"; message A { optional A a = 1 [default = 1]; }', "a message has no default"),
    ('syntax = "proto2"; message A { extensions 5; } extend A { optional int32 x = 6; }', "does not declare 6"),
    ('syntax = "proto2"; message A { extensions 5; optional int32 x = 5; }', "uses the reserved number 5"),
    ('syntax = "proto3"; extend B { string x = 1; } message A {}', '"B" is not defined'),
    ('syntax = "proto3"; message A {} service S { rpc C (B) returns (A); }', '"B" is not a message'),
    ('syntax = "proto3"; message A {} service S { rpc C (A) returns (A); rpc C (A) returns (A); }', "already defined"),
]


def in_message(text: str) -> str:
    return f'syntax = "proto3"; message M {{ {text} ' + ("" if text.endswith("; ") else "}")


@pytest.mark.parametrize(
    ("text", "problem"), [*REFUSED, *((in_message(text), problem) for text, problem in REFUSED_FIELDS), *REFUSED_OTHERS]
)
def test_what_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidSchemaError) as refused:
        parse("PROTOBUF", text, {})
    assert problem in str(refused.value)


def test_the_words_of_verbose_answers() -> None:
    old = parse("PROTOBUF", 'syntax = "proto3"; message A { string a = 1; message B { int32 b = 1; } }', {})
    new = parse("PROTOBUF", 'syntax = "proto3"; message A { int32 a = 1; oneof o { string c = 2; } }', {})
    assert check("BACKWARD", new, [old], [3]) == [
        (
            '{errorType:"FIELD_SCALAR_KIND_CHANGED", description:"The kind of a SCALAR field at path \'#/A/1\' in the '
            'new schema does not match its kind in the old schema"}'
        ),
        (
            '{errorType:"MESSAGE_REMOVED", description:"The new schema is missing a MESSAGE type at path \'#/A/B\' in '
            'the old schema"}'
        ),
        "{oldSchemaVersion: 3}",
        "{oldSchema: '" + old.text + "'}",
    ]
