"""Generates the function that decodes one message class in one version.

All structs are inlined into one function with loops: no calls per field, no recursion. A run of fields of fixed size
becomes one struct call, together with the length, count or first varint byte that follows it, and assigns the
attributes directly. Every length and count is checked against the remaining bytes before it is used.

Names in the generated code: buf, pos, end (of the readable bytes), room (how many more items the message may have), n
(the last length or count), stop (the end of the bytes of that length), m1.. (structs), items1.. (arrays).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from ottla.protocol import primitives
from ottla.protocol.encoding import Source
from ottla.protocol.primitives import ITEMS_MAX, STRING_BYTES_MAX
from ottla.protocol.schema import FIXED, SIZES, TAGGED_NULL, Field, Type, Wire, absent_in, fields_in, least_bytes

NAMES: Final = {
    name: getattr(primitives, name)
    for name in (
        "DECODE_ERRORS", "cache_uuid", "cached_uuid", "long_uvarint", "invalid_length", "read_tag", "read_tag_count",
        "skip_tags", "too_long", "too_many", "too_many_items", "too_short", "wrong_tag_size",
    )
}  # fmt: skip


def make_decoder(cls: type, version: int, flexible: bool) -> tuple[Callable[..., Any], Source]:
    """Return a function (buffer, position) -> (message, position after it); a third argument limits the number of
    items.
    """
    source = DecoderSource(f"{cls.__name__} v{version}", version, flexible)
    source.put(0, f"def decode(buf, pos, room={ITEMS_MAX}):")
    source.put(1, "try:")
    source.put(2, "end = len(buf)")
    made = source.read_struct(2, cls, "")
    source.flush(2)
    source.put(2, f"return {made}, pos")
    source.put(1, "except DECODE_ERRORS as error: raise explain(error) from None")
    return source.build("decode"), source


class DecoderSource(Source):
    def __init__(self, title: str, version: int, flexible: bool) -> None:
        super().__init__(title, {**NAMES, "new": object.__new__, "unpack_from": struct.unpack_from})
        self.version = version
        self.flexible = flexible
        self.run: list[tuple[str, str]] = []  # (format letter, target) of fixed fields that are not read yet
        self.pending_lines: list[str] = []  # statements to emit after the run is read

    def flush(self, depth: int) -> None:
        """Read the pending run of fixed fields with one call."""
        run, self.run = self.run, []
        if len(run) == 1 and run[0][0] == "B":
            self.put(depth, f"{run[0][1]} = buf[pos]; pos += 1")
        elif run:
            call = self.constant(struct.Struct(">" + "".join(letter for letter, _ in run)).unpack_from, "unpack")
            targets = ", ".join(target for _, target in run)
            size = sum(SIZES[letter] for letter, _ in run)
            self.put(depth, f"{targets}, = {call}(buf, pos); pos += {size}")
        for line in self.pending_lines:
            self.put(depth, line)
        self.pending_lines.clear()

    def read_struct(self, depth: int, cls: type, path: str) -> str:
        """Emit code that reads a struct; returns its name in the generated code."""
        made = self.fresh("m")
        self.put(depth, f"{made} = new({self.constant(cls, 'cls')})")
        fields = fields_in(cls, self.version)
        tagged = [field for field in fields if field.tag is not None]
        for name, wire in [*absent_in(cls, self.version), *((field.name, field.wire) for field in tagged)]:
            self.put(depth, f"{made}.{name} = {self.default(wire)}")
        for field in fields:
            if field.tag is None:
                self.field = path + field.name
                self.read(depth, field.type, field.nullable, f"{made}.{field.name}", path + field.name)
        if self.flexible:
            self.field = path + "tagged fields"
            self.read_tags(depth, tagged, made, path)
        return made

    def default(self, wire: Wire) -> str:
        if wire.default_factory is None:
            return self.constant(wire.default, "default")
        return "[]" if wire.default_factory is list else self.constant(wire.default_factory, "factory") + "()"

    def read(self, depth: int, type_: Type, nullable: bool, target: str, path: str) -> None:
        if type_.kind == "uuid":
            raw = self.fresh("raw")
            self.run.append(("16s", raw))
            self.pending_lines.append(f"{target} = cached_uuid({raw}) or cache_uuid({raw})")
        elif type_.is_fixed:
            self.run.append((FIXED[type_.kind], target))
        elif type_.kind == "struct":
            self.read_nested(depth, type_, nullable, target, path)
        elif type_.kind == "array":
            self.read_array(depth, type_.array_item, nullable, target, path)
        else:
            self.read_bytes(depth, type_.kind, nullable, target)

    def read_length(self, depth: int, nullable: bool, target: str, wide: bool) -> int:
        """Emit code that reads a length into n and handles null; returns the depth of the branch for other values."""
        if self.flexible:
            self.run.append(("B", "n"))
            self.flush(depth)
            self.put(depth, "if n > 127:")
            self.put(depth + 1, "n, pos = long_uvarint(buf, pos, n)")
            if not wide:
                self.put(depth + 1, f"if n > {STRING_BYTES_MAX + 1}: raise too_long(n - 1)")
            self.put(depth, "n -= 1")
        else:
            self.run.append(("i" if wide else "h", "n"))
            self.flush(depth)
        if not nullable:
            self.put(depth, "if n < 0: raise invalid_length(n)")
            return depth
        self.put(depth, f"if n == -1: {target} = None")
        self.put(depth, "else:")
        if not self.flexible:
            self.put(depth + 1, "if n < 0: raise invalid_length(n)")
        return depth + 1

    def read_bytes(self, depth: int, kind: str, nullable: bool, target: str) -> None:
        depth = self.read_length(depth, nullable, target, wide=kind != "string")
        self.put(depth, "stop = pos + n")
        self.put(depth, "if stop > end: raise too_short(n, end - pos)")
        value = {"string": "buf[pos:stop].tobytes().decode()", "bytes": "buf[pos:stop].tobytes()"}
        self.put(depth, f"{target} = {value.get(kind, 'buf[pos:stop]')}; pos = stop")

    def read_array(self, depth: int, item: Type, nullable: bool, target: str, path: str) -> None:
        least = least_bytes(item, self.version, self.flexible)
        assert least > 0, f"{self.title}, {path}: an item without bytes would make any count possible"
        depth = self.read_length(depth, nullable, target, wide=True)
        self.put(depth, f"if n * {least} > end - pos: raise too_many(n, {least}, end - pos)")
        self.put(depth, "room -= n")
        self.put(depth, "if room < 0: raise too_many_items()")
        if item.is_fixed and item.kind != "uuid":
            self.put(depth, f"{target} = list(unpack_from(f'>{{n}}{FIXED[item.kind]}', buf, pos)); pos += n * {least}")
            return
        items = self.fresh("items")
        self.put(depth, f"{items} = {target} = []")
        self.put(depth, "for _ in range(n):")
        if item.kind == "struct":
            value = self.read_struct(depth + 1, item.struct_class, path + ".")
        else:
            value = self.fresh("value")
            self.read(depth + 1, item, False, value, path)
        self.flush(depth + 1)
        self.put(depth + 1, f"{items}.append({value})")

    def read_nested(self, depth: int, type_: Type, nullable: bool, target: str, path: str, null: int = -1) -> None:
        if nullable:
            self.run.append(("b", "n"))
            self.flush(depth)
            self.put(depth, f"if n < {null}: raise invalid_length(n)")
            self.put(depth, f"if n == {null}: {target} = None")
            self.put(depth, "else:")
            depth += 1
        made = self.read_struct(depth, type_.struct_class, path + ".")
        if nullable:
            self.flush(depth)
        self.put(depth, f"{target} = {made}")

    def read_tags(self, depth: int, tagged: list[Field], made: str, path: str) -> None:
        self.run.append(("B", "n"))
        self.flush(depth)
        if not tagged:
            self.put(depth, "if n: pos, room = skip_tags(buf, pos, end, n, room)")
            return
        seen, tag, outer_end = self.fresh("seen"), self.fresh("tag"), self.fresh("end")
        self.put(depth, "if n:")
        self.put(depth + 1, "n, pos, room = read_tag_count(buf, pos, n, room)")
        self.put(depth + 1, f"{seen} = set()")
        self.put(depth + 1, "for _ in range(n):")
        self.put(depth + 2, f"{tag}, n, pos = read_tag(buf, pos, end, {seen})")
        for field in tagged:
            self.field = path + field.name
            self.put(depth + 2, f"if {tag} == {field.tag}:")
            self.put(depth + 3, f"{outer_end} = end; end = pos + n")
            target = f"{made}.{field.name}"
            if field.type.kind == "struct" and field.nullable:
                self.read_nested(depth + 3, field.type, True, target, path + field.name, TAGGED_NULL)
            else:
                self.read(depth + 3, field.type, field.nullable, target, path + field.name)
            self.flush(depth + 3)
            self.put(depth + 3, "if pos != end: raise wrong_tag_size()")
            self.put(depth + 3, f"end = {outer_end}")
            self.put(depth + 3, "continue")
        self.field = path + "tagged fields"
        self.put(depth + 2, "pos += n")
