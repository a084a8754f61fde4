"""`select`, `rename`, `drop`, `cast`, `derive`, `flatten`: which columns a record has, and of what type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql import types as T  # noqa: N812 (everybody's name for it)

from ottla.pipelines.model.row_order import RowOrder
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.parsing.reader import quoted, shown
from ottla.pipelines.steps.parsing.schemas import SchemaError, parse_type, type_name
from ottla.pipelines.steps.parsing.texts import number
from ottla.pipelines.steps.parsing.times import held, to_time
from ottla.pipelines.steps.sql_safety import check_expression
from ottla.pipelines.steps.step import Kind, StepError

Finding = tuple[str, str, str]
DIGITS_MAX = 38  # of a decimal


@dataclass(frozen=True, kw_only=True)
class Select:
    """Go on with these columns only."""

    columns: list[str] | dict[str, str] = field(metadata={"doc": "names, or new name: SQL expression"})
    KIND: ClassVar[Kind] = "marks"

    def problems(self) -> Iterator[Finding]:
        yield from _name_problems(_wanted(self.columns))
        if isinstance(self.columns, Mapping):
            yield from _expression_problems(self.columns)

    def apply(self, frame: Frame) -> Frame:
        if isinstance(self.columns, Mapping):
            return _still_timed(frame.select({name: F.expr(text) for name, text in self.columns.items()}))
        for path in self.columns:
            need_columns(frame, [path.split(".")[0]] if path not in frame.columns else [path])
        chosen = {name: column_of(frame, path) for name, path in _wanted(self.columns).items()}
        return _still_timed(frame.select(chosen))

    def row_order(self, before: RowOrder) -> RowOrder:
        plain = {old.strip("` "): new for new, old in _wanted(self.columns).items()}
        return before.renamed(plain.get)


@dataclass(frozen=True, kw_only=True)
class Rename:
    """Give columns other names."""

    columns: dict[str, str] = field(metadata={"doc": "old name: new name"})
    KIND: ClassVar[Kind] = "marks"

    def problems(self) -> Iterator[Finding]:
        yield from _name_problems({new: old for old, new in self.columns.items()})
        if len({new.lower() for new in self.columns.values()}) < len(self.columns):
            yield "columns", "two columns would get the same name", ""

    def apply(self, frame: Frame) -> Frame:
        need_columns(frame, self.columns)
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
    """Leave columns out."""

    columns: list[str] = field(metadata={"doc": "names"})
    KIND: ClassVar[Kind] = "marks"

    def apply(self, frame: Frame) -> Frame:
        need_columns(frame, self.columns)
        left = [name for name in frame.columns if name not in self.columns]
        if not left:
            raise StepError("leaves no column", field="columns")
        return _still_timed(replace(frame, rows=frame.rows.select(*map(quoted, left), *frame.hidden)))

    def row_order(self, before: RowOrder) -> RowOrder:
        return before.without(self.columns)


@dataclass(frozen=True, kw_only=True)
class Cast:
    """Change the type of columns; what does not fit dies, or becomes null."""

    columns: dict[str, str] = field(metadata={"doc": "column: type"})
    on_error: Literal["die", "null"] = field(default="die", metadata={"doc": "what becomes of values that do not fit"})
    KIND: ClassVar[Kind] = "marks"

    def problems(self) -> Iterator[Finding]:
        for name, text in self.columns.items():
            try:
                parse_type(text)
            except SchemaError as problem:
                yield "columns", f"{name}: {problem}", ""

    def apply(self, frame: Frame) -> Frame:
        need_columns(frame, self.columns)
        kinds = {entry.name: entry.dataType for entry in frame.rows.schema.fields}
        for name, text in self.columns.items():
            wanted = parse_type(text)
            old = F.col(quoted(name))
            new = _cast(old, kinds[name], wanted)
            if self.on_error == "die":
                reason = F.concat(
                    F.lit(f"column `{name}`: "), shown(old.cast("string")), F.lit(f" is no {type_name(wanted)}")
                )
                frame = frame.kill(old.isNotNull() & new.isNull(), reason)
            frame = frame.with_columns({name: new})
        return frame

    def row_order(self, before: RowOrder) -> RowOrder:
        return before.without(self.columns)


@dataclass(frozen=True, kw_only=True)
class Derive:
    """Make new columns, or columns anew, with SQL expressions; later ones may use earlier ones."""

    columns: dict[str, str] = field(metadata={"doc": "column: SQL expression"})
    KIND: ClassVar[Kind] = "marks"

    def problems(self) -> Iterator[Finding]:
        yield from _name_problems(self.columns)
        yield from _expression_problems(self.columns)

    def apply(self, frame: Frame) -> Frame:
        for name, text in self.columns.items():
            frame = frame.with_columns({name: F.expr(text)})
        return frame if frame.event_time not in self.columns else replace(frame, event_time=None)

    def row_order(self, before: RowOrder) -> RowOrder:
        return before.without(self.columns)


@dataclass(frozen=True, kw_only=True)
class Flatten:
    """Make columns of the fields of structs: address.city becomes address_city."""

    columns: list[str] = field(default_factory=list, metadata={"doc": "struct columns (all of them)"})
    separator: str = field(default="_", metadata={"doc": "between the names"})
    KIND: ClassVar[Kind] = "marks"

    def apply(self, frame: Frame) -> Frame:
        need_columns(frame, self.columns)
        kinds = {entry.name: entry.dataType for entry in frame.rows.schema.fields if entry.name in frame.columns}
        made: dict[str, Column] = {}
        for name, kind in kinds.items():
            is_wanted = isinstance(kind, T.StructType) and (not self.columns or name in self.columns)
            parts = self._leaves((name,), kind) if is_wanted else iter([((name,), F.col(quoted(name)))])
            for path, value in parts:
                flat = self.separator.join(path)
                if flat.lower() in {other.lower() for other in made}:
                    raise StepError(f"two columns would be called {flat!r}", "choose another separator", "separator")
                made[flat] = value
        return _still_timed(frame.select(made))

    def row_order(self, before: RowOrder) -> RowOrder:
        return before  # whoever still has a name is still the same

    def _leaves(self, path: tuple[str, ...], kind: T.DataType) -> Iterator[tuple[tuple[str, ...], Column]]:
        if not isinstance(kind, T.StructType):
            yield path, F.col(".".join(map(quoted, path)))
            return
        for entry in kind.fields:
            yield from self._leaves((*path, entry.name), entry.dataType)


def need_columns(frame: Frame, names: Mapping[str, object] | list[str], where: str = "columns") -> None:
    """Raises StepError for a column that is not there."""
    for name in names:
        if name not in frame.columns:
            raise StepError(f"there is no column {name!r}", f"there are: {', '.join(frame.columns)}", where)


def column_of(frame: Frame, path: str) -> Column:
    """A column by name, or a field of a struct by its path."""
    return F.col(quoted(path) if path in frame.columns else ".".join(map(quoted, path.split("."))))


def lose_digits(one: T.DataType, other: T.DataType) -> bool:
    """Two decimals for which there is no third one with the digits of both: Spark rounds them."""
    if not isinstance(one, T.DecimalType) or not isinstance(other, T.DecimalType):
        return False
    whole = max(one.precision - one.scale, other.precision - other.scale)
    return whole + max(one.scale, other.scale) > DIGITS_MAX


def _wanted(columns: list[str] | dict[str, str]) -> dict[str, str]:
    if isinstance(columns, Mapping):
        return dict(columns)
    return {path.split(".")[-1]: path for path in columns}


def _name_problems(columns: Mapping[str, str]) -> Iterator[Finding]:
    if not columns:
        yield "columns", "names no column", ""
    for name in columns:
        if not name.strip() or name.startswith("_"):
            yield "columns", f"{name!r} cannot be the name of a column", "names that start with _ are reserved"


def _expression_problems(columns: Mapping[str, str]) -> Iterator[Finding]:
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
        return number(old, wanted)
    made = old.try_cast(wanted)
    return held(made) if isinstance(wanted, T.TimestampType | T.DateType) else made


def _still_timed(frame: Frame) -> Frame:
    """The watermark's column may be gone."""
    return frame if frame.event_time in (None, *frame.columns) else replace(frame, event_time=None)
