"""Conversion between Avro's binary encoding and JSON, in both directions.

There are two styles. `confluent` is Avro's JSON encoding, which Confluent's console tools use: a union value is wrapped
in its branch name (`{"string": "x"}`), bytes are text with one character per byte, logical types are their underlying
numbers. `plain` is the output of fastavro and `plain()`: no branch names, base64, ISO 8601. As input, both accept
unwrapped union values: the first matching branch counts.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple
from uuid import UUID

from ottla.base.errors import KafkaError
from ottla.operations.schema_registry.decoders import Style
from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.formats import avro
from ottla.operations.schema_registry.schemas import Schema
from ottla.protocol.records import read_varint, write_varint

# ---- schema graph
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


class Field(NamedTuple):
    name: str
    node: Node
    has_default: bool
    default: Any


class Node:
    """A type of a schema. Mutable during construction, because types may be recursive."""

    __slots__ = ("branches", "fields", "inner", "kind", "logical", "name", "scale", "size", "symbols")

    def __init__(self, kind: str, name: str = "") -> None:
        self.kind = kind
        self.name = name or kind
        self.logical: str | None = None
        self.scale = 0
        self.size = 0
        self.symbols: list[str] = []
        self.fields: list[Field] = []
        self.branches: list[Node] = []
        self.inner: Node | None = None

    def __repr__(self) -> str:
        return f"<Node {self.name}>"


def make_node(schema: Any, space: str, named: dict[str, Node]) -> Node:
    """The node of a schema that fastavro has validated."""
    if isinstance(schema, list):
        union = Node("union")
        union.branches = [make_node(each, space, named) for each in schema]
        return union
    if isinstance(schema, str):
        return Node(schema) if schema in PRIMITIVES else named[_full(schema, space, named)]
    kind = schema["type"]
    if isinstance(kind, list | dict):
        return make_node(kind, space, named)
    if kind in ("record", "error", "enum", "fixed"):
        return _named(schema, space, named)
    if kind not in (*PRIMITIVES, "array", "map"):
        return make_node(kind, space, named)
    node = Node(kind)
    node.logical, node.scale = schema.get("logicalType"), int(schema.get("scale") or 0)
    if kind == "array":
        node.inner = make_node(schema["items"], space, named)
    elif kind == "map":
        node.inner = make_node(schema["values"], space, named)
    return node


def _named(schema: dict[str, Any], space: str, named: dict[str, Node]) -> Node:
    name = str(schema["name"])
    outer = schema.get("namespace", space)
    full = name if "." in name or not outer else f"{outer}.{name}"
    node = Node("record" if schema["type"] == "error" else schema["type"], full)
    named[full] = node
    node.logical, node.scale = schema.get("logicalType"), int(schema.get("scale") or 0)
    node.size, node.symbols = int(schema.get("size") or 0), list(schema.get("symbols") or ())
    inner = full.rpartition(".")[0]
    node.fields = [
        Field(str(each["name"]), make_node(each["type"], inner, named), "default" in each, each.get("default"))
        for each in schema.get("fields") or ()
    ]
    return node


def _full(name: str, space: str, named: dict[str, Node]) -> str:
    full = name if "." in name or not space else f"{space}.{name}"
    return full if full in named else name


DEPTH_MAX = 200
ITEMS_WITHOUT_BYTES_MAX = 1000
BOUNDS = {"int": 2**31, "long": 2**63}
FLOATS = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
NO_NUMBER_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
NOT_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
TIMES: dict[str, Callable[[str], Any]] = {
    "timestamp": datetime.fromisoformat, "local-timestamp": datetime.fromisoformat,
    "date": date.fromisoformat, "time": time.fromisoformat,
}  # fmt: skip
UNITS = {"-millis": 1000, "-micros": 1_000_000, "-nanos": 1_000_000_000, "": 1}


class AvroJson:
    """Converts documents of one schema in one style."""

    def __init__(self, schema: Schema, style: Style) -> None:
        """Raises SchemaError for an invalid schema."""
        _, references = avro.parse(schema)  # fastavro reports errors in the schema
        self.is_plain = style == "plain"
        named: dict[str, Node] = {}
        for reference in references:
            make_node(reference, "", named)
        self.root = make_node(json.loads(schema.text), "", named)

    def encode(self, document: Any) -> bytes:
        """Raises SchemaError with the path of the field."""
        out = bytearray()
        _Writer(self.is_plain).write(self.root, document, out, "", 0)
        return bytes(out)

    def decode(self, data: bytes) -> Any:
        """Raises SchemaError."""
        reader = _Reader(data)
        try:
            document = reader.read(self.root, 0)
        except (KafkaError, IndexError, struct.error):
            raise SchemaError("the bytes end before what the schema describes") from None
        except UnicodeDecodeError:
            raise SchemaError("a string is not UTF-8") from None
        if reader.place != len(data):
            raise SchemaError(f"{len(data) - reader.place} bytes follow what the schema describes")
        return document


class _Writer:
    def __init__(self, is_plain: bool) -> None:
        self.is_plain = is_plain

    def write(self, node: Node, value: Any, out: bytearray, path: str, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise SchemaError(f"{path or 'the document'} is nested deeper than {DEPTH_MAX}")
        kind = node.kind
        if kind == "record":
            self._record(node, value, out, path, depth)
        elif kind == "union":
            self._union(node, value, out, path, depth)
        elif kind == "array":
            assert node.inner is not None
            items = _typed(value, list, node, path)
            write_varint(out, len(items))
            for index, item in enumerate(items):
                self.write(node.inner, item, out, f"{path}[{index}]", depth + 1)
            if items:
                out.append(0)
        elif kind == "map":
            assert node.inner is not None
            entries = _typed(value, dict, node, path)
            write_varint(out, len(entries))
            for name, item in entries.items():
                _write_bytes(out, name.encode("utf-8", "surrogatepass"))
                self.write(node.inner, item, out, f"{path}.{name}", depth + 1)
            if entries:
                out.append(0)
        else:
            self._single(node, value, out, path)

    def _record(self, node: Node, value: Any, out: bytearray, path: str, depth: int) -> None:
        given = _typed(value, dict, node, path)
        unknown = next((name for name in given if not any(field.name == name for field in node.fields)), None)
        if unknown is not None:
            raise SchemaError(f"{_at(path, unknown)} is not a field of {node.name}")
        for field in node.fields:
            if field.name in given:
                self.write(field.node, given[field.name], out, _at(path, field.name), depth + 1)
            elif self.is_plain and field.has_default:
                # A default uses Avro's JSON encoding; for a union it belongs to the first branch.
                first = field.node
                if first.kind == "union":
                    first = first.branches[0]
                    write_varint(out, 0)
                _Writer(False).write(first, field.default, out, _at(path, field.name), depth + 1)
            else:
                raise SchemaError(f"{_at(path, field.name)} is missing")

    def _union(self, node: Node, value: Any, out: bytearray, path: str, depth: int) -> None:
        if isinstance(value, dict) and len(value) == 1:
            name = next(iter(value))
            for index, branch in enumerate(node.branches):
                if name in (branch.name, branch.name.rpartition(".")[2]) and branch.kind != "null":
                    write_varint(out, index)
                    self.write(branch, value[name], out, path, depth + 1)
                    return
        problem = ""
        for index, branch in enumerate(node.branches):
            attempt = bytearray()
            write_varint(attempt, index)
            try:
                self.write(branch, value, attempt, path, depth + 1)
            except SchemaError as wrong:
                problem = str(wrong)
                continue
            out += attempt
            return
        names = ", ".join(branch.name for branch in node.branches)
        raise SchemaError(problem if len(node.branches) <= 2 and problem else f"{_place(path)} is none of {names}")

    def _single(self, node: Node, value: Any, out: bytearray, path: str) -> None:
        if self.is_plain and node.logical is not None:
            value = _underlying_value(node, value, path)
        kind = node.kind
        if kind == "null":
            _expect(value is None, node, value, path)
        elif kind == "boolean":
            out.append(1 if _typed(value, bool, node, path) else 0)
        elif kind in BOUNDS:
            write_varint(out, _whole(node, value, path))
        elif kind in FLOATS:
            number = NOT_NUMBERS.get(value, value) if isinstance(value, str) else value
            _expect(isinstance(number, int | float | Decimal) and not isinstance(number, bool), node, value, path)
            try:
                out += FLOATS[kind].pack(number)
            except (OverflowError, struct.error):
                _expect(False, node, value, path)
        elif kind == "string":
            _write_bytes(out, _typed(value, str, node, path).encode("utf-8", "surrogatepass"))
        elif kind == "bytes":
            _write_bytes(out, self._bytes(node, value, path))
        elif kind == "fixed":
            data = self._bytes(node, value, path)
            _expect(len(data) == node.size, node, value, path)
            out += data
        else:
            assert kind == "enum"
            _expect(value in node.symbols, node, value, path)
            write_varint(out, node.symbols.index(value))

    def _bytes(self, node: Node, value: Any, path: str) -> bytes:
        if isinstance(value, bytes):
            return value
        text = _typed(value, str, node, path)
        try:
            return base64.b64decode(text, validate=True) if self.is_plain else text.encode("latin-1")
        except (binascii.Error, ValueError):
            words = "base64" if self.is_plain else "characters up to U+00FF"
            raise SchemaError(f"{_place(path)}: bytes are written as {words}") from None


class _Reader:
    """Reads Avro's JSON encoding; the plain style is decoded by fastavro."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0

    def read(self, node: Node, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise SchemaError(f"the record is nested deeper than {DEPTH_MAX}")
        kind = node.kind
        if kind == "record":
            return {field.name: self.read(field.node, depth + 1) for field in node.fields}
        if kind == "union":
            branch = node.branches[self._index(len(node.branches))]
            value = self.read(branch, depth + 1)
            return None if branch.kind == "null" else {branch.name: value}
        if kind == "array":
            return [item for count in self._blocks() for item in self._items(node, count, depth)]
        if kind == "map":
            assert node.inner is not None
            inner = node.inner
            return {
                self._take(self._length()).decode(): self.read(inner, depth + 1)
                for count in self._blocks()
                for _ in range(count)
            }
        return self._single(node)

    def _items(self, node: Node, count: int, depth: int) -> list[Any]:
        assert node.inner is not None
        items: list[Any] = []
        start = self.place
        for _ in range(count):
            items.append(self.read(node.inner, depth + 1))
            if self.place == start and len(items) > ITEMS_WITHOUT_BYTES_MAX:
                raise SchemaError("an array of empty items: a few bytes could encode any number of them")
        return items

    def _blocks(self) -> Any:
        while count := self._long():
            if count < 0:  # the block size in bytes follows, for skipping
                count = -count
                self._long()
            yield count

    def _single(self, node: Node) -> Any:
        kind = node.kind
        if kind == "null":
            return None
        if kind == "boolean":
            return self._take(1) != b"\0"
        if kind in BOUNDS:
            return self._long()
        if kind in FLOATS:
            layout = FLOATS[kind]
            number = layout.unpack(self._take(layout.size))[0]
            return number if math.isfinite(number) else NO_NUMBER_NAMES[str(number)]
        if kind == "string":
            return self._take(self._length()).decode()
        if kind == "enum":
            return node.symbols[self._index(len(node.symbols))]
        return self._take(node.size if kind == "fixed" else self._length()).decode("latin-1")

    def _long(self) -> int:
        number, self.place = read_varint(self.data, self.place, 64)
        return number

    def _length(self) -> int:
        length = self._long()
        if length < 0:
            raise IndexError(length)
        return length

    def _index(self, count: int) -> int:
        index = self._long()
        if not 0 <= index < count:
            raise SchemaError(f"index {index} is out of range: there are {count}")
        return index

    def _take(self, length: int) -> bytes:
        end = self.place + length
        if end > len(self.data):
            raise IndexError(end)
        found = self.data[self.place : end]
        self.place = end
        return found


def _underlying_value(node: Node, value: Any, path: str) -> Any:
    """The underlying value of a logical type; values of other types are left to the type check."""
    logical = str(node.logical)
    if logical == "decimal" and node.kind in ("bytes", "fixed") and not isinstance(value, bool | None):
        return _decimal(node, value, path)
    if logical == "uuid" and node.kind == "fixed" and isinstance(value, str):
        try:
            return UUID(value).bytes
        except ValueError:
            raise SchemaError(f"{_place(path)}: {value!r:.80} is not a UUID") from None
    unit = next(unit for unit in UNITS if logical.endswith(unit))
    read = TIMES.get(logical.removesuffix(unit))
    if read is None or not isinstance(value, str):
        return value
    try:
        return _ticks(read(value), UNITS[unit], logical.startswith("local"))
    except ValueError:
        raise SchemaError(f"{_place(path)}: {value!r:.80} is not a {logical}: write it as ISO 8601") from None


def _ticks(value: date | datetime | time, per_second: int, is_local: bool) -> int:
    if isinstance(value, datetime):
        moment = value.replace(tzinfo=UTC) if is_local or value.tzinfo is None else value
        past = moment - datetime(1970, 1, 1, tzinfo=UTC)
        return (past.days * 86_400 + past.seconds) * per_second + past.microseconds * per_second // 1_000_000
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    seconds = value.hour * 3600 + value.minute * 60 + value.second
    return seconds * per_second + value.microsecond * per_second // 1_000_000


def _decimal(node: Node, value: Any, path: str) -> bytes:
    try:
        scaled = Decimal(str(value)).scaleb(node.scale)
        if scaled != scaled.to_integral_value():
            raise SchemaError(f"{_place(path)}: {value} has more than {node.scale} decimal places")
    except InvalidOperation:
        raise SchemaError(f"{_place(path)}: {value!r:.80} is not a decimal number") from None
    number = int(scaled)
    size = node.size if node.kind == "fixed" else (number + (number < 0)).bit_length() // 8 + 1
    try:
        return number.to_bytes(size, "big", signed=True)
    except OverflowError:
        raise SchemaError(f"{_place(path)}: {value} is too large for {node.name}") from None


def _whole(node: Node, value: Any, path: str) -> int:
    number = int(value) if isinstance(value, Decimal) and value == value.to_integral_value() else value
    is_whole = isinstance(number, int) and not isinstance(number, bool)
    _expect(is_whole and -BOUNDS[node.kind] <= number < BOUNDS[node.kind], node, value, path)
    return int(number)


def _write_bytes(out: bytearray, data: bytes) -> None:
    write_varint(out, len(data))
    out += data


def _typed(value: Any, wanted: type, node: Node, path: str) -> Any:
    _expect(isinstance(value, wanted), node, value, path)
    return value


def _expect(is_right: bool, node: Node, value: Any, path: str) -> None:
    if not is_right:
        raise SchemaError(f"{_place(path)}: {json.dumps(value, default=str)[:80]} is not of type {node.name}")


def _place(path: str) -> str:
    return path or "the document"


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
