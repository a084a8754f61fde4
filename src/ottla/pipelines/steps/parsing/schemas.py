"""Types as users write them, parsed without Spark, so that a pipeline can be checked before anything starts.

{id: long, at: timestamp, tags: array<string>}        a mapping
"id long, at timestamp, price decimal(10,2)"          Spark's DDL
schema.json                                            a file: JSON Schema, Spark's own JSON, or a mapping
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from pyspark.sql import types as T  # noqa: N812 (the usual alias)

FILE_BYTES_MAX = 4 << 20
DEPTH_MAX = 32
FIELDS_MAX = 5_000
FILE_ENDINGS = (".json", ".yaml", ".yml", ".ddl", ".txt")
SIMPLE: dict[str, T.DataType] = {
    "string": T.StringType(), "text": T.StringType(),
    "byte": T.ByteType(), "tinyint": T.ByteType(), "short": T.ShortType(), "smallint": T.ShortType(),
    "int": T.IntegerType(), "integer": T.IntegerType(), "long": T.LongType(), "bigint": T.LongType(),
    "float": T.FloatType(), "real": T.FloatType(), "double": T.DoubleType(),
    "boolean": T.BooleanType(), "bool": T.BooleanType(),
    "timestamp": T.TimestampType(), "date": T.DateType(), "binary": T.BinaryType(),
    "decimal": T.DecimalType(10, 0),
}  # fmt: skip
TOKEN = re.compile(r"\s*(`[^`]+`|[A-Za-z_][A-Za-z0-9_.\-]*|\d+|[<>(),:])")


class SchemaError(ValueError):
    """A schema that cannot be read; the text has the reason."""


def read_schema(given: object, folder: str) -> tuple[T.StructType, list[str]]:
    """The schema and its required fields. Raises SchemaError."""
    if isinstance(given, T.StructType):
        return given, []
    if isinstance(given, str) and given.strip().lower().endswith(FILE_ENDINGS):
        return _from_values(read_values(Path(folder, given)))
    return _from_values(given)


def schema_file(given: object) -> Iterator[str]:
    """The schema file, if there is one."""
    if isinstance(given, str) and given.strip().lower().endswith(FILE_ENDINGS):
        yield given


def read_values(path: Path) -> object:
    """The contents of a schema file. Raises SchemaError."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise SchemaError(f"{path} is larger than {FILE_BYTES_MAX >> 20} MiB")
        text = path.read_text(encoding="utf-8")
        if path.suffix in (".ddl", ".txt"):
            return text
        return json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except OSError as problem:
        raise SchemaError(f"cannot read {path}: {problem.strerror}") from None
    except (ValueError, RecursionError, yaml.YAMLError) as problem:
        if isinstance(problem, SchemaError):
            raise
        raise SchemaError(f"{path} cannot be understood: {str(problem).splitlines()[0]}") from None


def parse_type(text: str) -> T.DataType:
    """`array<struct<a:int>>` as Spark's type. Raises SchemaError."""
    reader = _TypeReader(text)
    found = reader.read_type(0)
    reader.expect_end()
    return found


def type_name(wanted: T.DataType) -> str:
    """The user's form: int, long, array<string>."""
    name = wanted.simpleString()
    return {"bigint": "long", "smallint": "short", "tinyint": "byte"}.get(name, name)


def _from_values(given: object) -> tuple[T.StructType, list[str]]:
    if isinstance(given, str):
        return validate_schema(_TypeReader(given).read_fields_to_end()), []
    if not isinstance(given, Mapping) or not given:
        raise SchemaError("a schema is a mapping of names to types, a DDL text, or the name of a file")
    if given.get("type") == "object" and isinstance(given.get("properties"), Mapping):
        return validate_schema(_json_schema_struct(given, 0)), [str(name) for name in given.get("required", [])]
    if given.get("type") == "struct" and isinstance(given.get("fields"), list):
        try:
            return validate_schema(T.StructType.fromJson(dict(given))), []
        except (KeyError, TypeError, ValueError) as problem:
            raise SchemaError(f"not a schema as Spark writes it: {problem}") from None
    return validate_schema(
        T.StructType([T.StructField(str(name), _value_type(entry)) for name, entry in given.items()])
    ), []


def _value_type(entry: object) -> T.DataType:
    if isinstance(entry, T.DataType):
        return entry
    if isinstance(entry, Mapping):
        return T.StructType([T.StructField(str(name), _value_type(inner)) for name, inner in entry.items()])
    if isinstance(entry, str):
        return parse_type(entry)
    raise SchemaError(f"{entry!r} is not a type")


def validate_schema(schema: T.StructType) -> T.StructType:
    """Return the schema if its names are valid columns. Raises SchemaError."""
    if not schema.fields:
        raise SchemaError("a schema needs at least one field")
    if len(schema.fields) > FIELDS_MAX:
        raise SchemaError(f"more than {FIELDS_MAX} fields")
    seen: set[str] = set()
    for name in schema.names:
        if name.lower() in seen:
            raise SchemaError(f"field {name!r} appears twice (Spark ignores case)")
        if name.startswith("_"):
            raise SchemaError(f"field {name!r}: names that start with _ are reserved")
        seen.add(name.lower())
    return schema


def _json_schema_struct(schema: Mapping[str, object], depth: int) -> T.StructType:
    properties = schema["properties"]
    assert isinstance(properties, Mapping)
    return T.StructType(
        [T.StructField(str(name), _json_schema_type(entry, depth + 1)) for name, entry in properties.items()]
    )


def _json_schema_type(schema: object, depth: int) -> T.DataType:
    if not isinstance(schema, Mapping) or depth > DEPTH_MAX:
        raise SchemaError("JSON Schema: every property needs a type")
    named = schema.get("type")
    kinds = [kind for kind in (named if isinstance(named, list) else [named]) if kind != "null"]
    kind = kinds[0] if len(kinds) == 1 else None
    if kind == "object" and isinstance(schema.get("properties"), Mapping):
        return _json_schema_struct(schema, depth)
    if kind == "object":
        return T.MapType(
            T.StringType(), _json_schema_type(schema.get("additionalProperties", {"type": "string"}), depth + 1)
        )
    if kind == "array":
        return T.ArrayType(_json_schema_type(schema.get("items"), depth + 1))
    formats = {"date-time": T.TimestampType(), "date": T.DateType()}
    plain = {"integer": T.LongType(), "number": T.DoubleType(), "boolean": T.BooleanType(), "string": T.StringType()}
    if kind == "string" or (kind is None and "enum" in schema):
        return formats.get(str(schema.get("format")), T.StringType())
    if kind not in plain:
        raise SchemaError(f"JSON Schema: type {named!r} has no counterpart")
    return plain[str(kind)]


class _TypeReader:
    """A recursive descent parser of types."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._split(text)
        self.place = 0

    def _split(self, text: str) -> list[str]:
        tokens: list[str] = []
        position = 0
        while position < len(text.rstrip()):
            match = TOKEN.match(text, position)
            if match is None:
                raise SchemaError(f"{text!r}: {text[position:].strip()[:20]!r} is not valid")
            tokens.append(match[1])
            position = match.end()
        return tokens

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self, wanted: str | None = None) -> str:
        token = self.peek()
        if not token or (wanted is not None and token != wanted):
            raise SchemaError(
                f"{self.text!r}: {f'expected {wanted!r}' if wanted else 'something is missing'} "
                f"at {token or 'the end'!r}"
            )
        self.place += 1
        return token

    def expect_end(self) -> None:
        if self.peek():
            raise SchemaError(f"{self.text!r}: {self.peek()!r} is unexpected")

    def read_fields_to_end(self) -> T.StructType:
        fields = self._read_fields(0, "")
        self.expect_end()
        return fields

    def read_type(self, depth: int) -> T.DataType:
        if depth > DEPTH_MAX:
            raise SchemaError(f"types nested deeper than {DEPTH_MAX}")
        name = self.take().lower()
        if name == "array":
            return T.ArrayType(self._read_type_arguments(depth)[0])
        if name == "map":
            inner = self._read_type_arguments(depth)
            if len(inner) != 2:
                raise SchemaError("a map is written map<string,TYPE>")
            return T.MapType(inner[0], inner[1])
        if name == "struct":
            self.take("<")
            fields = self._read_fields(depth + 1, ">")
            self.take(">")
            return fields
        if name in ("decimal", "numeric", "dec"):
            return self._read_decimal()
        if name not in SIMPLE:
            raise SchemaError(
                f"{name!r} is not a type; known: {', '.join(SIMPLE)}, decimal(p,s), array<>, map<,>, struct<>"
            )
        return SIMPLE[name]

    def _read_type_arguments(self, depth: int) -> list[T.DataType]:
        self.take("<")
        inner = [self.read_type(depth + 1)]
        while self.peek() == ",":
            self.take(",")
            inner.append(self.read_type(depth + 1))
        self.take(">")
        return inner

    def _read_fields(self, depth: int, end: str) -> T.StructType:
        fields: list[T.StructField] = []
        while self.peek() not in (end, ""):
            if fields:
                self.take(",")
            name = self.take().strip("`")
            if self.peek() == ":":
                self.take(":")
            fields.append(T.StructField(name, self.read_type(depth)))
        return T.StructType(fields)

    def _read_decimal(self) -> T.DataType:
        if self.peek() != "(":
            return SIMPLE["decimal"]
        self.take("(")
        precision, scale = self.take(), "0"
        if self.peek() == ",":
            self.take(",")
            scale = self.take()
        self.take(")")
        if not (precision.isdigit() and scale.isdigit() and 1 <= int(precision) <= 38 and int(scale) <= int(precision)):
            raise SchemaError(f"decimal({precision},{scale}): at most 38 digits, and no more after the decimal point")
        return T.DecimalType(int(precision), int(scale))
