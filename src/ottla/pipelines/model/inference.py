"""The fields of a topic's records, inferred from samples. Uses no Spark: types are text, as in a schema.

    found = infer_json([b'{"id": 1, "at": "2026-01-31T12:00:00Z"}'])
    found.schema                     # {"id": "bigint", "at": "timestamp"}
    found.remarks()                  # samples that did not fit, with their count

Rules:
1. The chosen type represents every sample exactly. Mixed values (a number here, a text there) become text, and a remark
   counts both. Numbers that a double would round become decimals, or text.
2. Text is a time only if every sample is one and starts with a date. A plain number is never a time: its unit is
   unknown.
3. An unreadable sample is counted by its reason. A field that cannot become a column is omitted with a remark: names
   that start with _, contain a backtick, or differ from another name only in case.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Literal

EXACT_MAX = 1 << 53  # integers up to here are exact in a double
BIGINT_MAX = (1 << 63) - 1
DECIMAL_DIGITS = 38

Digits = tuple[int, int]  # before and after the decimal point

DEPTH_MAX = 16  # deeper values are read as text: their JSON
STRUCT_KEYS_MAX = 100  # an object with more keys, most of them absent in most samples, is a map
KEYS_PRESENT_MIN = 0.2
DELIMITERS = (",", ";", "\t", "|")
CONFLUENT_HEADER_BYTES = 5  # a zero byte and the schema id
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?")
DATE = re.compile(r"\d{4}-\d\d-\d\d")
INTEGER = re.compile(r"-?(0|[1-9]\d*)")  # 007 is an identifier, not a number
FRACTION = re.compile(r"-?(0|[1-9]\d*)\.\d+([eE][+-]?\d+)?")
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Format = Literal["json", "csv", "text", "binary"]
Values = Iterable[bytes | None]
PLAIN_TYPE = re.compile(r"[a-z][a-z0-9_<>:,()]*")
YAML_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def parse_decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # the exponent is out of range
        return Decimal("Infinity")


def integer_kind(size: int) -> str:
    if size <= EXACT_MAX:
        return "bigint"
    if size <= BIGINT_MAX:
        return "wide"
    return "huge" if size < 10**DECIMAL_DIGITS else "giant"


def fraction_kind(value: Decimal) -> str:
    rounded = float(value)
    if not math.isfinite(rounded):
        return "giant"
    return "double" if Decimal(repr(rounded)) == value else "fine"


def digits_of(value: Decimal) -> Digits:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return 0, 0
    return max(0, len(digits) + exponent), max(0, -exponent)


def max_digits(one: Digits, other: Digits) -> Digits:
    return max(one[0], other[0]), max(one[1], other[1])


@dataclass(frozen=True)
class FormatGuess:
    """The format of the values."""

    format: Format
    encoding: Literal["raw", "confluent"] = "raw"
    delimiter: str = ","


@dataclass(frozen=True)
class TypeConflict:
    """A field whose samples have incompatible types."""

    path: str
    type: str  # the chosen type
    counts: Mapping[str, int]

    def text(self) -> str:
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items(), key=lambda each: -each[1]))
        return f"{self.path}: {told}; read as {self.type}"


@dataclass(frozen=True)
class InferredSchema:
    """`schema` maps names to types. `present` counts the samples in which a field is not null."""

    schema: Mapping[str, str] = field(default_factory=dict)
    present: Mapping[str, int] = field(default_factory=dict)
    samples: int = 0  # readable samples
    null_values: int = 0  # records with a null value
    unreadable: Mapping[str, int] = field(default_factory=dict)  # reason -> samples
    conflicts: Sequence[TypeConflict] = ()
    omitted: Mapping[str, str] = field(default_factory=dict)  # path -> reason

    @property
    def ddl(self) -> str:
        return ", ".join(f"{quoted(name)} {kind}" for name, kind in self.schema.items())

    def remarks(self) -> list[str]:
        """One sentence for each problem."""
        total = self.samples + sum(self.unreadable.values())
        lines = [f"{count} of {total} samples: {reason}" for reason, count in self.unreadable.items()]
        lines += [conflict.text() for conflict in self.conflicts]
        return lines + [f"{path}: omitted, {reason}" for path, reason in self.omitted.items()]


@dataclass
class _FieldSamples:
    """The values of one field over all samples."""

    kinds: Counter[str] = field(default_factory=Counter)
    fields: dict[str, _FieldSamples] = field(default_factory=dict)
    element: _FieldSamples | None = None
    digits: Digits = (0, 0)  # of numbers, at most


def guess_format(values: Values) -> FormatGuess:
    """Guess the format from the first bytes of most samples. Values that are not text are binary."""
    found: Counter[FormatGuess] = Counter(_guess_value_format(value) for value in values if value)
    if not found:
        return FormatGuess("json")
    best = found.most_common(1)[0][0]
    return best if best.format != "csv" or found[best] > sum(found.values()) // 2 else FormatGuess("text")


def infer_schema(values: Values, guess: FormatGuess) -> InferredSchema:
    """Text becomes one column `text`, as in the step `parse`. Binary values have no schema."""
    if guess.format == "json":
        return infer_json(values, guess.encoding)
    if guess.format == "csv":
        return infer_csv(values, guess.delimiter)
    given = list(values)
    count = sum(value is not None for value in given)
    schema = {"text": "string"} if guess.format == "text" else {}
    return InferredSchema(schema, dict.fromkeys(schema, count), count, len(given) - count)


def infer_json(values: Values, encoding: str = "raw") -> InferredSchema:
    """Each sample is one object."""
    top, unread, empty = _FieldSamples(), Counter[str](), 0
    for value in values:
        if value is None:
            empty += 1
            continue
        is_marked = encoding == "confluent" and value[:1] == b"\0"
        read = _read_json(value[CONFLUENT_HEADER_BYTES:] if is_marked else value)
        if isinstance(read, str):
            unread[read] += 1
        else:
            _add_sample(top, read, 0)
    return _infer_types(top, top.kinds["object"], empty, unread)


def infer_csv(values: Values, delimiter: str = ",") -> InferredSchema:
    """Each sample is one line without a header; the columns are named c1, c2, …"""
    rows, unread, empty = list[list[str]](), Counter[str](), 0
    for value in values:
        if value is None:
            empty += 1
            continue
        row = _read_csv(value, delimiter)
        if isinstance(row, str):
            unread[row] += 1
        else:
            rows.append(row)
    widths = Counter(map(len, rows))
    width = widths.most_common(1)[0][0] if widths else 0
    top = _FieldSamples()
    for row in rows:
        if len(row) == width:
            _add_sample(top, {f"c{place}": _parse_csv_value(text) for place, text in enumerate(row, start=1)}, 0)
        else:
            unread[f"{len(row)} fields instead of {width}"] += 1
    return _infer_types(top, widths[width], empty, unread)


def quoted(name: str) -> str:
    return name if PLAIN_NAME.fullmatch(name) else f"`{name}`"


# Reading


def _guess_value_format(value: bytes) -> FormatGuess:
    start = value.lstrip()[:1]
    if start == b"{":
        return FormatGuess("json")
    if value[:1] == b"\0" and value[CONFLUENT_HEADER_BYTES : CONFLUENT_HEADER_BYTES + 1] == b"{":
        return FormatGuess("json", "confluent")
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return FormatGuess("binary")
    if any(ord(letter) < 32 and letter not in "\t\r\n" for letter in text):
        return FormatGuess("binary")
    counts = {delimiter: text.count(delimiter) for delimiter in DELIMITERS}
    best = max(counts, key=lambda delimiter: counts[delimiter])
    return FormatGuess("csv", delimiter=best) if counts[best] else FormatGuess("text")


def _read_json(value: bytes) -> dict[str, object] | str:
    """Return the object, or the reason why there is none."""
    try:
        read = json.loads(value.decode(), parse_constant=_no_constant, parse_float=parse_decimal)
    except UnicodeDecodeError:
        return "not UTF-8 text"
    except (ValueError, RecursionError):
        return "not JSON" if value.strip() else "empty value"
    return read if isinstance(read, dict) else "not a JSON object"


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")


def _read_csv(value: bytes, delimiter: str) -> list[str] | str:
    try:
        rows = list(csv.reader([value.decode().strip("\r\n")], delimiter=delimiter, strict=True))
    except UnicodeDecodeError:
        return "not UTF-8 text"
    except csv.Error:
        return "not CSV"
    return rows[0] if rows and rows[0] else "empty value"


def _parse_csv_value(text: str) -> object:
    """Convert a CSV field to the value that it represents. An empty field is null, as in the step `parse`."""
    if not text:
        return None
    if text in ("true", "false"):
        return text == "true"
    if INTEGER.fullmatch(text) and len(text) <= DECIMAL_DIGITS:
        return int(text)
    return parse_decimal(text) if FRACTION.fullmatch(text) else text


# Collecting


def _add_sample(seen: _FieldSamples, value: object, depth: int) -> None:
    kind = _kind(value, depth)
    seen.kinds[kind] += 1
    if isinstance(value, int | Decimal):
        seen.digits = max_digits(seen.digits, digits_of(Decimal(value)))
    if kind == "object" and isinstance(value, dict):
        for name, entry in value.items():
            _add_sample(seen.fields.setdefault(name, _FieldSamples()), entry, depth + 1)
    elif kind == "array" and isinstance(value, list):
        seen.element = seen.element or _FieldSamples()
        for entry in value:
            _add_sample(seen.element, entry, depth + 1)


def _kind(value: object, depth: int) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return integer_kind(abs(value))
    if isinstance(value, Decimal):
        return fraction_kind(value)
    if isinstance(value, str):
        return _text_kind(value)
    if depth > DEPTH_MAX:
        return "string"
    return "object" if isinstance(value, dict) else "array"


def _text_kind(text: str) -> str:
    try:
        if TIMESTAMP.fullmatch(text):
            datetime.fromisoformat(text)
            return "timestamp"
        if DATE.fullmatch(text):
            date.fromisoformat(text)
            return "date"
    except ValueError:  # the 31st of February
        return "string"
    return "string"


# Choosing types


def _infer_types(top: _FieldSamples, samples: int, empty: int, unread: Mapping[str, int]) -> InferredSchema:
    chooser = _TypeChooser()
    types = chooser.fields(top.fields, "")
    present = {name: sum(top.fields[name].kinds.values()) - top.fields[name].kinds["null"] for name in types}
    return InferredSchema(types, present, samples, empty, dict(unread), chooser.conflicts, chooser.left_out)


class _TypeChooser:
    """Chooses a type for each field and records what does not fit."""

    def __init__(self) -> None:
        self.conflicts: list[TypeConflict] = []
        self.left_out: dict[str, str] = {}

    def fields(self, seen: Mapping[str, _FieldSamples], above: str) -> dict[str, str]:
        """Of two names that Spark treats as equal, the more frequent one stays."""
        found: dict[str, str] = {}
        taken: dict[str, str] = {}
        by_count = sorted(seen, key=lambda name: -sum(seen[name].kinds.values()))
        for name in by_count:
            reason = _name_problem(name, not above)
            if not reason and name.lower() in taken:
                reason = f"it differs from {taken[name.lower()]} only in upper and lower case"
            if reason:
                self.left_out[above + name] = reason
            else:
                taken[name.lower()] = name
        for name, entry in seen.items():  # in the order of the samples
            if taken.get(name.lower()) == name:
                found[name] = self.type(entry, above + name)
        return found

    def type(self, seen: _FieldSamples, path: str) -> str:
        counts = _kind_names(seen.kinds)
        if not counts:
            return "string"  # always null
        if set(counts) == {"object"}:
            return self._object(seen, path)
        if set(counts) == {"array"}:
            return f"array<{self.type(seen.element or _FieldSamples(), f'{path}[]')}>"
        chosen = _scalar(seen.kinds, seen.digits)
        if chosen is None:
            self.conflicts.append(TypeConflict(path, "string", counts))
        return chosen or "string"

    def _object(self, seen: _FieldSamples, path: str) -> str:
        count = seen.kinds["object"]
        present = sum(sum(entry.kinds.values()) for entry in seen.fields.values())
        if len(seen.fields) > STRUCT_KEYS_MAX and present < KEYS_PRESENT_MIN * count * len(seen.fields):
            return f"map<string,{self.type(_merge_samples(seen.fields.values()), f'{path}.*')}>"
        inner = self.fields(seen.fields, f"{path}.")
        return f"struct<{','.join(f'{quoted(name)}:{kind}' for name, kind in inner.items())}>" if inner else "string"


def _scalar(kinds: Mapping[str, int], digits: Digits) -> str | None:
    """The one type that represents all values exactly; None if only text does."""
    found = {kind for kind, count in kinds.items() if count and kind != "null"}
    if "fine" in found:
        is_exact = found <= {"bigint", "wide", "huge", "double", "fine"} and sum(digits) <= DECIMAL_DIGITS
        return f"decimal({DECIMAL_DIGITS},{digits[1]})" if is_exact else None
    if found <= {"bigint", "wide"}:
        return "bigint"
    if found <= {"bigint", "wide", "huge"}:
        return f"decimal({DECIMAL_DIGITS},0)"
    if found <= {"bigint", "double"}:
        return "double"
    if found <= {"bigint", "wide", "huge", "giant"}:
        return "string"
    if found <= {"date", "timestamp"}:
        return "timestamp" if "timestamp" in found else "date"
    return next(iter(found)) if len(found) == 1 else None


def _kind_names(kinds: Mapping[str, int]) -> dict[str, int]:
    """The kinds with readable names, without null."""
    names = {
        "wide": "bigint above 2^53",
        "huge": "number above 2^63",
        "giant": "number too large for all types",
        "fine": "number with more digits than a double has",
    }
    return {names.get(kind, kind): count for kind, count in kinds.items() if count and kind != "null"}


def _merge_samples(many: Iterable[_FieldSamples]) -> _FieldSamples:
    whole = _FieldSamples()
    for each in many:
        whole.kinds.update(each.kinds)
        whole.digits = max_digits(whole.digits, each.digits)
        for name, entry in each.fields.items():
            whole.fields[name] = _merge_samples((whole.fields[name], entry)) if name in whole.fields else entry
        if each.element is not None:
            whole.element = _merge_samples((whole.element, each.element)) if whole.element else each.element
    return whole


def _name_problem(name: str, is_top: bool) -> str:
    """Why this cannot be a column name; empty if it can."""
    if not name.strip():
        return "it has no name"
    if "`" in name:
        return "its name contains a backtick"
    return "names that start with _ are reserved" if is_top and name.startswith("_") else ""


def format_parse_step(topic: str, guess: FormatGuess, found: InferredSchema) -> str:
    """Format the schema as a `parse` step in YAML for a pipeline; remarks come first as comments."""
    total = found.samples + sum(found.unreadable.values()) + found.null_values
    head = [f"{topic}: {total} samples, {found.samples} of them read as {guess.format}"]
    head += [f"{found.null_values} have no value; `tombstone` says how they are handled"] if found.null_values else []
    lines = [f"# {' '.join(line.split())}" for line in [*head, *found.remarks()]]
    lines += ["- parse:", f"    format: {guess.format}"]
    lines += [f"    encoding: {guess.encoding}"] if guess.encoding != "raw" else []
    lines += [f"    delimiter: {json.dumps(guess.delimiter)}"] if guess.format == "csv" else []
    if guess.format == "text":
        return "\n".join(lines) + "\n"
    lines.append("    schema:")
    for name, kind in found.schema.items():
        missing = found.samples - found.present.get(name, found.samples)
        remark = f"  # null or missing in {missing} of {found.samples}" if missing else ""
        lines.append(f"      {_yaml_key(name)}: {_yaml_type(kind)}{remark}")
    return "\n".join(lines) + "\n"


def _yaml_key(name: str) -> str:
    is_plain = PLAIN_NAME.fullmatch(name) and name.lower() not in YAML_WORDS
    return name if is_plain else json.dumps(name)


def _yaml_type(kind: str) -> str:
    return kind if PLAIN_TYPE.fullmatch(kind) and not kind.endswith(":") else json.dumps(kind)
