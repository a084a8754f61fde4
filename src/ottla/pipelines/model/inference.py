"""What the fields of a topic's records are, guessed from samples. Knows no Spark: types are text, as a schema has them.

    found = infer_json([b'{"id": 1, "at": "2026-01-31T12:00:00Z"}'])
    found.schema                     # {"id": "bigint", "at": "timestamp"}
    found.remarks()                  # what did not fit, and how often

Rules:
1. A type is chosen that reads every sample as it was written: what differs (a number here, a text there) is text, and
   the remark counts both. Numbers that a double would round are kept exact, or are text.
2. Text is a time only where all of it is, with a date in front; a plain number is never one: of what, nobody can tell.
3. A sample that cannot be read at all is counted by its reason. A field that no column can be made of is left out and
   told: names that begin with _, that hold a backtick, or that differ from another only in upper and lower case.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Literal

from ottla.pipelines.model.inferred_numbers import (
    DECIMAL_DIGITS,
    Digits,
    broken_kind,
    digits_of,
    exact,
    whole_kind,
    widest,
)

DEPTH_MAX = 16  # what is nested deeper is read as text: its JSON
KEYS_MAX = 100  # an object with more keys than that, of which most are missing in most samples, is a map
KEYS_PRESENT_MIN = 0.2
DELIMITERS = (",", ";", "\t", "|")
CONFLUENT_BYTES = 5  # a zero and the number of the schema

TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?")
DATE = re.compile(r"\d{4}-\d\d-\d\d")
WHOLE = re.compile(r"-?(0|[1-9]\d*)")  # 007 is a name, no number
BROKEN = re.compile(r"-?(0|[1-9]\d*)\.\d+([eE][+-]?\d+)?")
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Format = Literal["json", "csv", "text", "binary"]
Values = Iterable[bytes | None]


@dataclass(frozen=True)
class Guess:
    """How the values are written."""

    format: Format
    encoding: Literal["raw", "confluent"] = "raw"
    delimiter: str = ","


@dataclass(frozen=True)
class Conflict:
    """A field whose samples contradict one another."""

    path: str
    type: str  # as which it is read
    counts: Mapping[str, int]

    def text(self) -> str:
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items(), key=lambda each: -each[1]))
        return f"{self.path}: {told}; read as {self.type}"


@dataclass(frozen=True)
class Inference:
    """`schema`: name -> type. `present`: in how many samples a field has a value that is not null."""

    schema: Mapping[str, str] = field(default_factory=dict)
    present: Mapping[str, int] = field(default_factory=dict)
    samples: int = 0  # that were read
    empty: int = 0  # records without value
    unread: Mapping[str, int] = field(default_factory=dict)  # reason -> samples
    conflicts: Sequence[Conflict] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)  # path -> reason

    @property
    def ddl(self) -> str:
        return ", ".join(f"{quoted(name)} {kind}" for name, kind in self.schema.items())

    def remarks(self) -> list[str]:
        """A sentence for everything that did not fit."""
        total = self.samples + sum(self.unread.values())
        lines = [f"{count} of {total} samples: {reason}" for reason, count in self.unread.items()]
        lines += [conflict.text() for conflict in self.conflicts]
        return lines + [f"{path}: left out, {reason}" for path, reason in self.left_out.items()]


@dataclass
class _Seen:
    """What stood at one place of the samples."""

    kinds: Counter[str] = field(default_factory=Counter)
    fields: dict[str, _Seen] = field(default_factory=dict)
    element: _Seen | None = None
    digits: Digits = (0, 0)  # of numbers, at most


def guess_format(values: Values) -> Guess:
    """From the first bytes of most samples; what is no text is binary."""
    found: Counter[Guess] = Counter(_guess_one(value) for value in values if value)
    if not found:
        return Guess("json")
    best = found.most_common(1)[0][0]
    return best if best.format != "csv" or found[best] > sum(found.values()) // 2 else Guess("text")


def infer(values: Values, guess: Guess) -> Inference:
    """Text is one column, `text`, as the step `parse` has it; binary has none that could be told."""
    if guess.format == "json":
        return infer_json(values, guess.encoding)
    if guess.format == "csv":
        return infer_csv(values, guess.delimiter)
    given = list(values)
    count = sum(value is not None for value in given)
    schema = {"text": "string"} if guess.format == "text" else {}
    return Inference(schema, dict.fromkeys(schema, count), count, len(given) - count)


def infer_json(values: Values, encoding: str = "raw") -> Inference:
    """Each sample is one object."""
    top, unread, empty = _Seen(), Counter[str](), 0
    for value in values:
        if value is None:
            empty += 1
            continue
        is_marked = encoding == "confluent" and value[:1] == b"\0"
        read = _read_json(value[CONFLUENT_BYTES:] if is_marked else value)
        if isinstance(read, str):
            unread[read] += 1
        else:
            _note(top, read, 0)
    return _resolved(top, top.kinds["object"], empty, unread)


def infer_csv(values: Values, delimiter: str = ",") -> Inference:
    """Each sample is one line without heading: the columns are called c1, c2, …"""
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
    top = _Seen()
    for row in rows:
        if len(row) == width:
            _note(top, {f"c{place}": _plain(text) for place, text in enumerate(row, start=1)}, 0)
        else:
            unread[f"{len(row)} fields instead of {width}"] += 1
    return _resolved(top, widths[width], empty, unread)


def quoted(name: str) -> str:
    return name if PLAIN_NAME.fullmatch(name) else f"`{name}`"


# reading


def _guess_one(value: bytes) -> Guess:
    start = value.lstrip()[:1]
    if start == b"{":
        return Guess("json")
    if value[:1] == b"\0" and value[CONFLUENT_BYTES : CONFLUENT_BYTES + 1] == b"{":
        return Guess("json", "confluent")
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return Guess("binary")
    if any(ord(letter) < 32 and letter not in "\t\r\n" for letter in text):
        return Guess("binary")
    counts = {delimiter: text.count(delimiter) for delimiter in DELIMITERS}
    best = max(counts, key=lambda delimiter: counts[delimiter])
    return Guess("csv", delimiter=best) if counts[best] else Guess("text")


def _read_json(value: bytes) -> dict[str, object] | str:
    """The object, or the reason why it is none."""
    try:
        read = json.loads(value.decode(), parse_constant=_no_constant, parse_float=exact)
    except UnicodeDecodeError:
        return "not UTF-8 text"
    except (ValueError, RecursionError):
        return "not JSON" if value.strip() else "empty value"
    return read if isinstance(read, dict) else "not a JSON object"


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is no JSON")


def _read_csv(value: bytes, delimiter: str) -> list[str] | str:
    try:
        rows = list(csv.reader([value.decode().strip("\r\n")], delimiter=delimiter, strict=True))
    except UnicodeDecodeError:
        return "not UTF-8 text"
    except csv.Error:
        return "not CSV"
    return rows[0] if rows and rows[0] else "empty value"


def _plain(text: str) -> object:
    """A CSV field as the value that it spells; without letters it is null, as the step `parse` has it."""
    if not text:
        return None
    if text in ("true", "false"):
        return text == "true"
    if WHOLE.fullmatch(text) and len(text) <= DECIMAL_DIGITS:
        return int(text)
    return exact(text) if BROKEN.fullmatch(text) else text


# noting


def _note(seen: _Seen, value: object, depth: int) -> None:
    kind = _kind(value, depth)
    seen.kinds[kind] += 1
    if isinstance(value, int | Decimal):
        seen.digits = widest(seen.digits, digits_of(Decimal(value)))
    if kind == "object" and isinstance(value, dict):
        for name, entry in value.items():
            _note(seen.fields.setdefault(name, _Seen()), entry, depth + 1)
    elif kind == "array" and isinstance(value, list):
        seen.element = seen.element or _Seen()
        for entry in value:
            _note(seen.element, entry, depth + 1)


def _kind(value: object, depth: int) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return whole_kind(abs(value))
    if isinstance(value, Decimal):
        return broken_kind(value)
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


# choosing


def _resolved(top: _Seen, samples: int, empty: int, unread: Mapping[str, int]) -> Inference:
    chooser = _Chooser()
    types = chooser.fields(top.fields, "")
    present = {name: sum(top.fields[name].kinds.values()) - top.fields[name].kinds["null"] for name in types}
    return Inference(types, present, samples, empty, dict(unread), chooser.conflicts, chooser.left_out)


class _Chooser:
    """From what was seen to types; notes what did not fit on the way."""

    def __init__(self) -> None:
        self.conflicts: list[Conflict] = []
        self.left_out: dict[str, str] = {}

    def fields(self, seen: Mapping[str, _Seen], above: str) -> dict[str, str]:
        """The more frequent of two names that Spark would take for the same stays."""
        found: dict[str, str] = {}
        taken: dict[str, str] = {}
        by_count = sorted(seen, key=lambda name: -sum(seen[name].kinds.values()))
        for name in by_count:
            reason = _no_name(name, not above)
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

    def type(self, seen: _Seen, path: str) -> str:
        counts = _told(seen.kinds)
        if not counts:
            return "string"  # never anything but null
        if set(counts) == {"object"}:
            return self._object(seen, path)
        if set(counts) == {"array"}:
            return f"array<{self.type(seen.element or _Seen(), f'{path}[]')}>"
        chosen = _scalar(seen.kinds, seen.digits)
        if chosen is None:
            self.conflicts.append(Conflict(path, "string", counts))
        return chosen or "string"

    def _object(self, seen: _Seen, path: str) -> str:
        count = seen.kinds["object"]
        present = sum(sum(entry.kinds.values()) for entry in seen.fields.values())
        if len(seen.fields) > KEYS_MAX and present < KEYS_PRESENT_MIN * count * len(seen.fields):
            return f"map<string,{self.type(_merged(seen.fields.values()), f'{path}.*')}>"
        inner = self.fields(seen.fields, f"{path}.")
        return f"struct<{','.join(f'{quoted(name)}:{kind}' for name, kind in inner.items())}>" if inner else "string"


def _scalar(kinds: Mapping[str, int], digits: Digits) -> str | None:
    """The one type that reads them all as they were written; None if only text does."""
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


def _told(kinds: Mapping[str, int]) -> dict[str, int]:
    """The kinds by names that people know, without null."""
    names = {
        "wide": "bigint above 2^53",
        "huge": "number above 2^63",
        "giant": "number beyond all types",
        "fine": "number with more digits than a double has",
    }
    return {names.get(kind, kind): count for kind, count in kinds.items() if count and kind != "null"}


def _merged(many: Iterable[_Seen]) -> _Seen:
    whole = _Seen()
    for each in many:
        whole.kinds.update(each.kinds)
        whole.digits = widest(whole.digits, each.digits)
        for name, entry in each.fields.items():
            whole.fields[name] = _merged((whole.fields[name], entry)) if name in whole.fields else entry
        if each.element is not None:
            whole.element = _merged((whole.element, each.element)) if whole.element else each.element
    return whole


def _no_name(name: str, is_top: bool) -> str:
    """Why no column can be called that; empty if one can."""
    if not name.strip():
        return "it has no name"
    if "`" in name:
        return "its name holds a backtick"
    return "names that start with _ are reserved" if is_top and name.startswith("_") else ""
