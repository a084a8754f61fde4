"""Generates the function that encodes one message class in one version.

As in decoding, all structs are inlined and a run of fixed fields becomes one struct call, together with the length or
count that follows it. Rarely set fields (an error message, a tagged field) would split runs. So a stretch with such
fields is generated twice: once with all of them at their defaults as part of the run, once field by field, and one test
selects the branch.

Names in the generated code: out (the bytes so far), v and n (the current value and its length), m1.. (structs).

Generated source: lines, the objects they refer to, and the field of each line.

Errors are readable at no cost at run time: generated code has no field names, but after a failure the line number in
the traceback identifies the field.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from ottla.base.file_range import FileRange
from ottla.protocol import primitives
from ottla.protocol.primitives import STRING_BYTES_MAX, ProtocolError, line_of, reason_of
from ottla.protocol.schema import FIXED, INT32_MAX, TAGGED_NULL, Field, Type, fields_in


class Source:
    def __init__(self, title: str, names: dict[str, Any]) -> None:
        self.title = title
        self.names: dict[str, Any] = {**names, "explain": self.field_of_error}
        self.lines: list[str] = []
        self.fields: list[str] = []
        self.field = ""
        self._count = 0

    def put(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)
        self.fields.append(self.field)

    def fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def constant(self, value: Any, prefix: str) -> str:
        """Return a name or literal for `value` in the generated code."""
        if value is None or type(value) in (int, bool, str, bytes):
            return repr(value)
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    def build(self, function: str) -> Callable[..., Any]:
        text = "\n".join(self.lines)
        exec(compile(text, f"<{self.title}>", "exec"), self.names)  # noqa: S102 (our own text, no input in it)
        made: Callable[..., Any] = self.names[function]
        return made

    def field_of_error(self, error: BaseException) -> ProtocolError:
        """Return the error with its message and field; called by the generated code."""
        line = line_of(error.__traceback__)
        field = self.fields[line - 1] if 0 < line <= len(self.fields) else ""
        return ProtocolError(f"{self.title}{', ' + field if field else ''}: {reason_of(error)}")

    def __repr__(self) -> str:
        return f"<Source of {self.title}, {len(self.lines)} lines>"


SENTENCE: Final = "error_message"  # the suffix of fields with human-readable text
SHORT_ARRAY: Final = 8  # shorter arrays of numbers (mostly replicas) have a precompiled struct each
NAMES: Final = {
    name: getattr(primitives, name)
    for name in ("ENCODE_ERRORS", "truncate_string", "too_long", "uvarint", "write_tags")
} | {
    "FileRange": FileRange,
    "pack": struct.pack,
}


def make_encoder(cls: type, version: int, flexible: bool) -> tuple[Callable[..., Any], Source]:
    """Return a function (message, out) that appends the message to a bytearray."""
    source = EncoderSource(f"{cls.__name__} v{version}", version, flexible)
    source.put(0, "def encode(m, out):")
    source.put(1, "try:")
    source.write_struct(2, cls, "m", "")
    source.flush(2)
    source.put(2, "return out")
    source.put(1, "except ENCODE_ERRORS as error: raise explain(error) from error")
    return source.build("encode"), source


class EncoderSource(Source):
    def __init__(self, title: str, version: int, flexible: bool) -> None:
        super().__init__(title, NAMES)
        self.version = version
        self.flexible = flexible
        self.run: list[tuple[str, str]] = []  # (format letter, expression) of fixed values that are not written yet

    def flush(self, depth: int, keep: bool = False) -> None:
        """Emit one call that writes the pending run of fixed values; with `keep` another branch writes it again."""
        if len(self.run) == 1 and self.run[0][0] == "B":
            self.put(depth, f"out.append({self.run[0][1]})")
        elif self.run:
            self.put(depth, f"out += {self.packed()}")
        if not keep:
            self.run = []

    def packed(self) -> str:
        letters = "".join(letter for letter, _ in self.run)
        if set(letters) == {"x"}:
            return repr(bytes(len(letters)))
        values = ", ".join(expression for letter, expression in self.run if letter != "x")
        return f"{self.constant(struct.Struct('>' + letters).pack, 'pack')}({values})"

    def write_struct(self, depth: int, cls: type, value: str, path: str) -> None:
        fields = fields_in(cls, self.version)
        tagged = sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)
        plain = [field for field in fields if field.tag is None]
        while plain:
            count = self.fixed_run(plain, tagged)
            if count:
                with_tags = count == len(plain) and self.flexible
                self.write_fixed_run(depth, plain[:count], tagged if with_tags else None, value, path)
                plain = plain[count:]
                if with_tags:
                    return
            else:
                field = plain.pop(0)
                self.write_field(depth, field, value, path)
        if self.flexible:
            self.write_tags(depth, tagged, value, path)

    def fixed_run(self, plain: list[Field], tagged: list[Field]) -> int:
        """Return how many of the next fields are fixed or rarely set; 0 if joining them is not faster."""
        count = next((at for at, field in enumerate(plain) if not _joins(field)), len(plain))
        rare = sum(_is_rare(field) for field in plain[:count])
        rare += bool(count == len(plain) and self.flexible and tagged)
        return count if rare and (count > 1 or self.run) else 0

    def write_fixed_run(
        self, depth: int, fields: list[Field], tagged: list[Field] | None, value: str, path: str
    ) -> None:
        run_before = list(self.run)
        self.field = path + fields[0].name
        unset = [_is_unset(field, f"{value}.{field.name}") for field in fields if _is_rare(field)]
        unset += [f"not ({self.is_set(field, value)})" for field in tagged or ()]
        self.put(depth, f"if {' and '.join(unset)}:")
        for field in fields:
            self.run += self.rest_value(field) if _is_rare(field) else self.fixed(field.type, f"{value}.{field.name}")
        if tagged is not None:
            self.run.append(("x", ""))
        self.flush(depth + 1)
        self.put(depth, "else:")
        self.run = run_before
        for field in fields:
            self.write_field(depth + 1, field, value, path)
        if tagged is not None:
            self.write_tags(depth + 1, tagged, value, path)
        self.flush(depth + 1)

    def rest_value(self, field: Field) -> list[tuple[str, str]]:
        """Return the value of a rarely set field at its default: null, or an empty array."""
        is_null = field.nullable and field.wire.default is None
        if self.flexible:
            return [("x", "")] if is_null else [("B", "1")]
        return [("h" if field.type.kind == "string" else "i", "-1" if is_null else "0")]

    def fixed(self, type_: Type, value: str) -> list[tuple[str, str]]:
        return [(FIXED[type_.kind], f"{value}.int.to_bytes(16, 'big')" if type_.kind == "uuid" else value)]

    def write_field(self, depth: int, field: Field, value: str, path: str) -> None:
        self.field = path + field.name
        self.write(depth, field.type, field.nullable, f"{value}.{field.name}", path + field.name)

    def write(self, depth: int, type_: Type, nullable: bool, value: str, path: str) -> None:
        if type_.is_fixed:
            self.run += self.fixed(type_, value)
        elif type_.kind == "struct":
            self.write_nested(depth, type_, nullable, value, path)
        else:
            self.put(depth, f"v = {value}")
            depth = self.write_null(depth, nullable, "h" if type_.kind == "string" else "i")
            if type_.kind == "array":
                self.write_array(depth, type_.array_item, path)
            else:
                self.write_bytes(depth, type_.kind)

    def write_null(self, depth: int, nullable: bool, letter: str) -> int:
        """Emit code for null; returns the depth of the branch for other values."""
        if not nullable:
            return depth
        run_before = list(self.run)
        self.put(depth, "if v is None:")
        self.run.append(("x", "") if self.flexible else (letter, "-1"))
        self.flush(depth + 1)
        self.put(depth, "else:")
        self.run = run_before
        return depth + 1

    def write_length(self, depth: int, length: str, letter: str) -> None:
        if not self.flexible:
            self.run.append((letter, length))
            self.flush(depth)
            return
        self.put(depth, f"n = {length} + 1")
        self.put(depth, "if n < 128:")
        self.run.append(("B", "n"))
        self.flush(depth + 1, keep=True)
        self.put(depth, "else:")
        self.run.pop()
        if letter == "h":
            self.put(depth + 1, f"if n > {STRING_BYTES_MAX + 1}: raise too_long(n - 1)")
        self.flush(depth + 1)
        self.put(depth + 1, "out += uvarint(n)")

    def write_bytes(self, depth: int, kind: str) -> None:
        if kind == "records":
            self.put(depth, "if isinstance(v, FileRange):")
            run_before = list(self.run)
            self.write_length(depth + 1, "v.length", "i")
            self.put(depth + 1, "out.holes.append((len(out), v))")
            self.put(depth, "else:")
            self.run = run_before
            self.write_length(depth + 1, "len(v)", "i")
            self.put(depth + 1, "out += v")
            return
        if kind == "string":
            self.put(depth, "v = v.encode()")
            if self.field.endswith(SENTENCE):  # it may contain a name of the maximum string length
                self.put(depth, f"if len(v) > {STRING_BYTES_MAX}: v = truncate_string(v)")
        self.write_length(depth, "len(v)", "h" if kind == "string" else "i")
        self.put(depth, "out += v")

    def write_array(self, depth: int, item: Type, path: str) -> None:
        if item.is_fixed and item.kind != "uuid":
            self.write_numbers(depth, FIXED[item.kind])
            return
        self.write_length(depth, "len(v)", "i")
        each = self.fresh("m")
        self.put(depth, f"for {each} in v:")
        if item.kind == "struct":
            self.write_struct(depth + 1, item.struct_class, each, path + ".")
        else:
            self.write(depth + 1, item, False, each, path)
        self.flush(depth + 1)

    def write_numbers(self, depth: int, letter: str) -> None:
        """Emit code that writes an array of fixed values: pending run, count and items in one call."""
        run, self.run = self.run, []
        before = "".join(letter for letter, _ in run)
        values = "".join(f"{expression}, " for letter, expression in run if letter != "x")
        length = "B" if self.flexible else "i"
        short = tuple(struct.Struct(f">{before}{length}{n}{letter}").pack for n in range(SHORT_ARRAY))
        count = "n + 1" if self.flexible else "n"
        self.put(depth, "n = len(v)")
        self.put(depth, f"if n < {SHORT_ARRAY}: out += {self.constant(short, 'packs')}[n]({values}{count}, *v)")
        longest = 127 if self.flexible else INT32_MAX
        self.put(depth, f"elif n < {longest}: out += pack(f'>{before}{length}{{n}}{letter}', {values}{count}, *v)")
        if self.flexible:
            self.put(depth, f"else: out += pack('>{before}', {values}) + uvarint(n + 1) + pack(f'>{{n}}{letter}', *v)")

    def write_nested(self, depth: int, type_: Type, nullable: bool, value: str, path: str, null: int = -1) -> None:
        inner = self.fresh("m")
        self.put(depth, f"{inner} = {value}")
        if nullable:
            run_before = list(self.run)
            self.put(depth, f"if {inner} is None:")
            self.run.append(("b", str(null)))
            self.flush(depth + 1)
            self.put(depth, "else:")
            self.run = [*run_before, ("b", "1")]
            depth += 1
        self.write_struct(depth, type_.struct_class, inner, path + ".")
        if nullable:
            self.flush(depth)

    def write_tags(self, depth: int, tagged: list[Field], value: str, path: str) -> None:
        if not tagged:
            self.run.append(("x", ""))
            return
        run_before = list(self.run)
        self.field = path + tagged[0].name
        self.put(depth, f"if {' or '.join(self.is_set(field, value) for field in tagged)}:")
        self.flush(depth + 1)
        self.write_set_tags(depth + 1, tagged, value, path)
        self.put(depth, "else:")
        self.run = [*run_before, ("x", "")]
        self.flush(depth + 1)

    def write_set_tags(self, depth: int, tagged: list[Field], value: str, path: str) -> None:
        outer, tags = self.fresh("out"), self.fresh("tags")
        self.put(depth, f"{outer} = out; {tags} = []")
        for field in tagged:
            self.field = path + field.name
            self.put(depth, f"if {self.is_set(field, value)}:")
            self.put(depth + 1, "out = bytearray()")
            source = f"{value}.{field.name}"
            if field.type.kind == "struct" and field.nullable:
                self.write_nested(depth + 1, field.type, True, source, path + field.name, TAGGED_NULL)
            else:
                self.write(depth + 1, field.type, field.nullable, source, path + field.name)
            self.flush(depth + 1)
            self.put(depth + 1, f"{tags}.append(({field.tag}, out))")
        self.put(depth, f"out = {outer}; write_tags(out, {tags})")

    def is_set(self, field: Field, value: str) -> str:
        """Return an expression that is true if this tagged field differs from its default and must be sent."""
        value = f"{value}.{field.name}"
        if field.wire.default_factory is not None:
            return f"({value} is None or {value})" if field.nullable else value
        if field.wire.default is not None:
            return f"{value} != {self.constant(field.wire.default, 'default')}"
        if field.type.kind == "struct" and field.nullable:
            return "True"  # Kafka's default is a struct of defaults, so null must be sent
        if field.type.kind != "struct":
            return f"{value} is not None"
        return f"({value} is not None and {value} != {self.constant(field.type.struct_class(), 'default')})"


def _joins(field: Field) -> bool:
    return field.type.is_fixed or _is_rare(field)


def _is_rare(field: Field) -> bool:
    """Return whether a field is rarely set: null by default, or an array that early versions do not have."""
    if field.type.is_fixed or field.type.kind in ("struct", "records"):
        return False
    if field.nullable and field.wire.default is None:
        return True
    return field.type.kind == "array" and field.wire.default_factory is not None and field.wire.since > 0


def _is_unset(field: Field, value: str) -> str:
    return f"{value} is None" if field.nullable and field.wire.default is None else f"not {value}"
