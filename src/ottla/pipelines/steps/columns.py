"""`select`, `rename`, `drop`, `cast`, `derive`, `mask`, `flatten`, `explode`: the columns of a record, their types
and values."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.pipelines.expressions.texts import check_expression
from ottla.pipelines.model.row_order import ELEMENT_POSITION, RowOrder
from ottla.pipelines.model.specs import ON_ERROR, OnError
from ottla.pipelines.steps.failing_values import Expression, compute, independent
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.parsing.reader import quoted, shown
from ottla.pipelines.steps.parsing.schemas import SchemaError, parse_type, type_name
from ottla.pipelines.steps.parsing.text_formats import parse_number
from ottla.pipelines.steps.parsing.time_formats import to_time, within_supported_years
from ottla.pipelines.steps.step import StepError, StepKind

FieldProblem = tuple[str, str, str]
DIGITS_MAX = 38  # of a decimal

SELECTED = "_selected_"  # temporary columns
ELEMENT_NUMBER = "_at"  # temporary column: the element's number

LAST = re.compile(r"last[ _-]?(\d{1,3})")
SALT_CHARACTERS_MIN = 8


@dataclass(frozen=True, kw_only=True)
class Select:
    """Keep only these columns."""

    columns: list[str] | dict[str, str] = field(metadata={"doc": "names, or new name: SQL expression"})
    on_error: OnError | None = field(default=None, metadata=ON_ERROR)
    KIND: ClassVar[StepKind] = "marks"

    def problems(self) -> Iterator[FieldProblem]:
        yield from _name_problems(_selected_columns(self.columns))
        if isinstance(self.columns, Mapping):
            yield from _expression_problems(self.columns)

    def apply(self, frame: Frame) -> Frame:
        if isinstance(self.columns, Mapping):
            return _without_lost_event_time(self._computed(frame, self.columns))
        for path in self.columns:
            require_columns(frame, [path.split(".")[0]] if path not in frame.columns else [path])
        chosen = {name: column_of(frame, path) for name, path in _selected_columns(self.columns).items()}
        return _without_lost_event_time(frame.select(chosen))

    def _computed(self, frame: Frame, columns: Mapping[str, str]) -> Frame:
        made = {f"{SELECTED}{number}": Expression(text) for number, text in enumerate(columns.values())}
        computed = compute(frame, made, self.on_error)
        return computed.select({name: F.col(column) for name, column in zip(columns, made, strict=True)})

    def row_order(self, before: RowOrder) -> RowOrder:
        plain = {old.strip("` "): new for new, old in _selected_columns(self.columns).items()}
        return before.renamed(plain.get)


@dataclass(frozen=True, kw_only=True)
class Rename:
    """Give columns other names."""

    columns: dict[str, str] = field(metadata={"doc": "old name: new name"})
    KIND: ClassVar[StepKind] = "marks"

    def problems(self) -> Iterator[FieldProblem]:
        yield from _name_problems({new: old for old, new in self.columns.items()})
        if len({new.lower() for new in self.columns.values()}) < len(self.columns):
            yield "columns", "two columns would get the same name", ""

    def apply(self, frame: Frame) -> Frame:
        require_columns(frame, self.columns)
        names = {name: self.columns.get(name, name) for name in frame.columns}
        if len({name.lower() for name in names.values()}) < len(names):
            raise StepError("two columns would have the same name", "drop one of them before", "columns")
        event_time = self.columns.get(frame.event_time or "", frame.event_time or "") or None
        rows = frame.rows.select(*(F.col(quoted(old)).alias(new) for old, new in names.items()), *frame.hidden)
        return replace(frame, rows=rows, event_time=event_time)

    def row_order(self, before: RowOrder) -> RowOrder:
        return before.renamed(lambda name: self.columns.get(name, name))


@dataclass(frozen=True, kw_only=True)
class Drop:
    """Remove columns."""

    columns: list[str] = field(metadata={"doc": "names"})
    KIND: ClassVar[StepKind] = "marks"

    def apply(self, frame: Frame) -> Frame:
        require_columns(frame, self.columns)
        left = [name for name in frame.columns if name not in self.columns]
        if not left:
            raise StepError("leaves no column", field="columns")
        return _without_lost_event_time(replace(frame, rows=frame.rows.select(*map(quoted, left), *frame.hidden)))

    def row_order(self, before: RowOrder) -> RowOrder:
        return before.without_columns(self.columns)


@dataclass(frozen=True, kw_only=True)
class Cast:
    """Change the type of columns; values that do not fit die, or become null."""

    columns: dict[str, str] = field(metadata={"doc": "column: type"})
    on_error: OnError | None = field(
        default=None, metadata={**ON_ERROR, "doc": "values that do not fit: dead, null or fail (the pipeline's)"}
    )
    KIND: ClassVar[StepKind] = "marks"

    def problems(self) -> Iterator[FieldProblem]:
        for name, text in self.columns.items():
            try:
                parse_type(text)
            except SchemaError as problem:
                yield "columns", f"{name}: {problem}", ""

    def apply(self, frame: Frame) -> Frame:
        require_columns(frame, self.columns)
        kinds = {entry.name: entry.dataType for entry in frame.rows.schema.fields}
        for name, text in self.columns.items():
            wanted = parse_type(text)
            old = F.col(quoted(name))
            new = _cast(old, kinds[name], wanted)
            reason = F.concat(
                F.lit(f"column `{name}`: "), shown(old.cast("string")), F.lit(f" is no {type_name(wanted)}")
            )
            on_error, does_not_fit = self.on_error or frame.context.on_error, old.isNotNull() & new.isNull()
            if on_error == "dead":
                frame = frame.mark_dead(does_not_fit, reason)
            elif on_error == "fail":
                new = F.when(does_not_fit, F.raise_error(reason)).otherwise(new)
            frame = frame.with_columns({name: new})
        return frame

    def row_order(self, before: RowOrder) -> RowOrder:
        return before.without_columns(self.columns)


@dataclass(frozen=True, kw_only=True)
class Derive:
    """Compute columns with SQL expressions; later ones may use earlier ones."""

    columns: dict[str, str] = field(metadata={"doc": "column: SQL expression"})
    on_error: OnError | None = field(default=None, metadata=ON_ERROR)
    KIND: ClassVar[StepKind] = "marks"

    def problems(self) -> Iterator[FieldProblem]:
        yield from _name_problems(self.columns)
        yield from _expression_problems(self.columns)

    def apply(self, frame: Frame) -> Frame:
        for group in independent({name: Expression(text) for name, text in self.columns.items()}):
            frame = compute(frame, group, self.on_error)
        return frame if frame.event_time not in self.columns else replace(frame, event_time=None)

    def row_order(self, before: RowOrder) -> RowOrder:
        return before.without_columns(self.columns)


@dataclass(frozen=True, kw_only=True)
class Flatten:
    """Turn struct fields into columns: address.city becomes address_city."""

    columns: list[str] = field(default_factory=list, metadata={"doc": "struct columns (all of them)"})
    separator: str = field(default="_", metadata={"doc": "between the names"})
    KIND: ClassVar[StepKind] = "marks"

    def apply(self, frame: Frame) -> Frame:
        require_columns(frame, self.columns)
        kinds = {entry.name: entry.dataType for entry in frame.rows.schema.fields if entry.name in frame.columns}
        made: dict[str, Column] = {}
        for name, kind in kinds.items():
            is_wanted = isinstance(kind, T.StructType) and (not self.columns or name in self.columns)
            parts = self._leaves((name,), kind) if is_wanted else iter([((name,), F.col(quoted(name)))])
            for path, value in parts:
                flat = self.separator.join(path)
                if flat.lower() in {other.lower() for other in made}:
                    raise StepError(f"two columns would be named {flat!r}", "choose another separator", "separator")
                made[flat] = value
        return _without_lost_event_time(frame.select(made))

    def row_order(self, before: RowOrder) -> RowOrder:
        return before  # columns that keep their name keep their values

    def _leaves(self, path: tuple[str, ...], kind: T.DataType) -> Iterator[tuple[tuple[str, ...], Column]]:
        if not isinstance(kind, T.StructType):
            yield path, F.col(".".join(map(quoted, path)))
            return
        for entry in kind.fields:
            yield from self._leaves((*path, entry.name), entry.dataType)


def require_columns(frame: Frame, names: Mapping[str, object] | list[str], where: str = "columns") -> None:
    """Raises StepError for a missing column."""
    for name in names:
        if name not in frame.columns:
            raise StepError(f"there is no column {name!r}", f"there are: {', '.join(frame.columns)}", where)


def column_of(frame: Frame, path: str) -> Column:
    """A column by name, or a struct field by its path."""
    return F.col(quoted(path) if path in frame.columns else ".".join(map(quoted, path.split("."))))


def loses_digits(one: T.DataType, other: T.DataType) -> bool:
    """Whether Spark would round two decimals because no common type holds the digits of both."""
    if not isinstance(one, T.DecimalType) or not isinstance(other, T.DecimalType):
        return False
    whole = max(one.precision - one.scale, other.precision - other.scale)
    return whole + max(one.scale, other.scale) > DIGITS_MAX


def _selected_columns(columns: list[str] | dict[str, str]) -> dict[str, str]:
    if isinstance(columns, Mapping):
        return dict(columns)
    return {path.split(".")[-1]: path for path in columns}


def _name_problems(columns: Mapping[str, str]) -> Iterator[FieldProblem]:
    if not columns:
        yield "columns", "names no column", ""
    for name in columns:
        if not name.strip() or name.startswith("_"):
            yield "columns", f"{name!r} cannot be the name of a column", "names that start with _ are reserved"


def _expression_problems(columns: Mapping[str, str]) -> Iterator[FieldProblem]:
    for name, text in columns.items():
        problem = check_expression(text)
        if problem:
            yield "columns", f"{name}: {text!r} {problem}", ""


def _cast(old: Column, kind: T.DataType, wanted: T.DataType) -> Column:
    if isinstance(kind, T.BinaryType) and isinstance(wanted, T.StringType):
        text = old.cast("string")
        return F.when(F.is_valid_utf8(text), text)
    if isinstance(kind, T.StringType) and isinstance(wanted, T.TimestampType | T.DateType):
        return to_time(old, wanted, "iso")
    if isinstance(kind, T.StringType):
        return parse_number(old, wanted)
    made = old.try_cast(wanted)
    return within_supported_years(made) if isinstance(wanted, T.TimestampType | T.DateType) else made


def _without_lost_event_time(frame: Frame) -> Frame:
    """The watermark's column may have been removed."""
    return frame if frame.event_time in (None, *frame.columns) else replace(frame, event_time=None)


@dataclass(frozen=True, kw_only=True)
class Explode:
    """Create a row for every list element or map entry."""

    column: str = field(metadata={"doc": "list or map"})
    into: str | None = field(default=None, metadata={"doc": "name for the element (the column's)"})
    key: str = field(default="key", metadata={"doc": "name for the key of a map's entry"})
    position: str | None = field(default=None, metadata={"doc": "name for the element's number, from 0"})
    keep_empty: bool = field(default=False, metadata={"doc": "records without elements stay, with null"})
    KIND: ClassVar[StepKind] = "merges"

    def apply(self, frame: Frame) -> Frame:
        require_columns(frame, [self.column], "column")
        kind = frame.rows.schema[self.column].dataType
        if not isinstance(kind, T.ArrayType | T.MapType):
            raise StepError(f"{self.column!r} is {kind.simpleString()}, not a list or map", field="column")
        element = self.into or self.column
        new = [name for name in (self.position, self.key if isinstance(kind, T.MapType) else None, element) if name]
        others = [name for name in frame.columns if name != self.column]
        clash = {name.lower() for name in new} & {name.lower() for name in others}
        if clash or len(set(new)) < len(new):
            raise StepError(f"there would be two columns {min(clash or set(new))!r}", "give `into` or `key`", "into")
        if not self.keep_empty:
            frame = frame.filter_counted(
                F.size(quoted(self.column)) > 0
            )  # empty lists give no row and count as filtered
        made = self._made().alias(ELEMENT_NUMBER, *(name for name in new if name != self.position))
        rows = frame.rows.select(*map(quoted, others), *frame.hidden, made)
        position: list[Column | str] = [F.col(ELEMENT_NUMBER).alias(self.position)] if self.position else []
        visible = [*map(quoted, others), *position, *(quoted(name) for name in new if name != self.position)]
        hidden = [name for name in frame.hidden if name != ELEMENT_POSITION]
        return replace(frame, rows=rows.select(*visible, *hidden, _position(frame)), needs_count=True)

    def row_order(self, before: RowOrder) -> RowOrder:
        return RowOrder((*before.columns, ELEMENT_POSITION) if before.columns else ())

    def _made(self) -> Column:
        column = F.col(quoted(self.column))
        return F.posexplode_outer(column) if self.keep_empty else F.posexplode(column)


def _position(frame: Frame) -> Column:
    """The path to the element: the position of the exploded row, and its own number."""
    number = F.array(F.col(ELEMENT_NUMBER))
    return (F.concat(F.col(ELEMENT_POSITION), number) if ELEMENT_POSITION in frame.hidden else number).alias(
        ELEMENT_POSITION
    )


@dataclass(frozen=True, kw_only=True)
class Mask:
    """Hide the values of columns from downstream readers.

    hash: 64 hexadecimal digits of SHA-256 over salt and value: equal values stay equal, so they can be counted and
    joined.
    last N: stars, and the last N characters. redact: a fixed text. null: nothing.
    The salt prevents guessing of hashed values. It is part of Spark's plans and visible in them.
    """

    columns: dict[str, str] = field(metadata={"doc": "column: hash, last N, redact, null"})
    salt: str | None = field(default=None, metadata={"doc": "secret for hash"})
    salt_env: str | None = field(default=None, metadata={"doc": "environment variable with the secret (preferred)"})
    text: str = field(default="***", metadata={"doc": "replacement text of redact"})
    KIND: ClassVar[StepKind] = "marks"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        for name, how in self.columns.items():
            if how not in ("hash", "redact", "null") and not LAST.fullmatch(how):
                yield "columns", f"{name}: {how!r} is not a way to mask values", "hash, last 4, redact, null"
        if "hash" in self.columns.values() and bool(self.salt) == bool(self.salt_env):
            yield "salt", "a hash needs one salt: without it values can be guessed", "give salt_env or salt"
        if self.salt is not None and len(self.salt) < SALT_CHARACTERS_MIN:
            yield "salt", f"a salt has at least {SALT_CHARACTERS_MIN} characters", ""

    def apply(self, frame: Frame) -> Frame:
        require_columns(frame, self.columns)
        salt = self._salt() if "hash" in self.columns.values() else ""
        return frame.with_columns(
            {name: self._masked(F.col(quoted(name)), how, salt) for name, how in self.columns.items()}
        )

    def row_order(self, before: RowOrder) -> RowOrder:
        return before.without_columns(name for name, how in self.columns.items() if how != "hash")

    def _masked(self, value: Column, how: str, salt: str) -> Column:
        text = value.cast("string")
        last = LAST.fullmatch(how)
        if last:
            count = int(last[1])
            shown = (
                F.when(F.length(text) > count, F.substring(text, -count, count)).otherwise("") if count else F.lit("")
            )
            return F.when(text.isNotNull(), F.concat(F.lit("*" * 8), shown))
        if how == "hash":
            return F.sha2(F.concat(F.lit(salt), text), 256)
        return F.when(text.isNotNull(), F.lit(self.text)) if how == "redact" else F.lit(None).cast("string")

    def _salt(self) -> str:
        if self.salt is not None:
            return self.salt
        found = os.environ.get(self.salt_env or "", "")
        if len(found) < SALT_CHARACTERS_MIN:
            cure = f"put at least {SALT_CHARACTERS_MIN} characters in it"
            raise StepError(f"the environment variable {self.salt_env} has no salt", cure, "salt_env")
        return found
