"""`enrich`: columns looked up by the key of each row, in a web service or a database.

    enrich: {http: "https://users.example/users/{user}", schema: {city: string}}
    enrich: {sqlite: shop.db, query: "SELECT name FROM products WHERE id = :product", schema: {name: string}}
    enrich: {postgres: "postgresql://…", query: …, schema: …, on_failure: dead, cache_for: 10 minutes}

Spark's workers look up each distinct key of an Arrow batch once, several in parallel, and cache the answers (lookups/).
An unknown key gives nulls, unless `on_missing` is set; a failed lookup ends the run, unless `on_failure` is set.
Answers may change, so the rows of a batch are staged before any sink gets them: a repeated batch writes the first
answers.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql import types as T  # noqa: N812 (the usual alias)
from pyspark.sql.pandas.types import to_arrow_type

from ottla.pipelines.model.row_order import RowOrder
from ottla.pipelines.model.specs import Duration
from ottla.pipelines.steps.arrow_values import to_declared_types
from ottla.pipelines.steps.columns import require_columns
from ottla.pipelines.steps.frame import AppliedStep, Frame
from ottla.pipelines.steps.lookups.databases import (
    Database,
    database_file,
    database_in,
    parameters,
    query_problem,
    url_problem,
)
from ottla.pipelines.steps.lookups.lookup_client import Answer, Key, LookupSettings, LookupTarget, Row, client_for
from ottla.pipelines.steps.lookups.web_service import WebAddress, address_problem, headers_problem, key_names
from ottla.pipelines.steps.parsing.reader import PROBLEM, arrow_function, quoted
from ottla.pipelines.steps.parsing.schemas import SchemaError, read_schema, schema_file
from ottla.pipelines.steps.step import StepError, StepKind

FOUND = "_found"
IS_MISSING = "_is_missing"
CONCURRENCY_MAX = 64
CACHE_MAX = 1_000_000

# YAML reads `null` as None.
OnFailure = Literal["stop", "dead", "null"] | None
OnMissing = Literal["null", "dead", "filter"] | None


@dataclass(frozen=True, kw_only=True)
class Enrich:
    """Look up columns by the key of each row, in a web service or a database."""

    http: str | None = field(default=None, metadata={"doc": "URL with {column} in it; answers with a JSON object"})
    sqlite: str | None = field(default=None, metadata={"doc": "file of a SQLite database"})
    postgres: str | None = field(default=None, metadata={"doc": "PostgreSQL: postgresql://user@host/database"})
    sqlalchemy: str | None = field(default=None, metadata={"doc": "any other database: URL of SQLAlchemy"})
    query: str | None = field(default=None, metadata={"doc": "for a database: SELECT … WHERE id = :column"})
    schema: str | dict[str, object] = field(metadata={"doc": "new columns and their types"})
    fields: dict[str, str] = field(default_factory=dict, metadata={"doc": "for http: column: path in the answer (a.b)"})
    headers: dict[str, str] = field(default_factory=dict, metadata={"doc": "for http: headers of the request"})
    on_failure: OnFailure = field(default="stop", metadata={"doc": "no answer: stop the run, dead rows, null"})
    on_missing: OnMissing = field(default="null", metadata={"doc": "unknown key: null, dead rows, filter them"})
    cache_for: Duration = field(default=Duration(60_000), metadata={"doc": "how long an answer is cached (1 minute)"})
    cache_size: int = field(default=10_000, metadata={"doc": "cached answers per process (10000)"})
    concurrency: int = field(default=4, metadata={"doc": "parallel lookups in each task (4)"})
    timeout: Duration = field(default=Duration(5_000), metadata={"doc": "longest wait for an answer (5 seconds)"})
    retry: Duration = field(
        default=Duration(10_000), metadata={"doc": "total pause before retries, for all keys together (10 seconds)"}
    )
    KIND: ClassVar[StepKind] = "asks"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        places = [name for name in ("http", "sqlite", "postgres", "sqlalchemy") if getattr(self, name)]
        if len(places) != 1:
            yield "", "has no target", "set one of http, sqlite, postgres and sqlalchemy"
        elif self.http is not None:
            yield from self._web_problems(self.http)
        else:
            yield from self._query_problems()
        if isinstance(self.schema, dict) and not self.schema:
            yield "schema", "names no column", ""
        for name in self.fields:
            if isinstance(self.schema, dict) and name not in self.schema:
                yield "fields", f"{name!r} is not in schema", ""
        for name, most in (("concurrency", CONCURRENCY_MAX), ("cache_size", CACHE_MAX)):
            least = 0 if name == "cache_size" else 1
            if not least <= getattr(self, name) <= most:
                yield name, f"must be from {least} to {most:,}", ""
        if self.timeout < 1:
            yield "timeout", "must be at least a millisecond", ""

    def _web_problems(self, url: str) -> Iterator[tuple[str, str, str]]:
        problem = address_problem(url)
        if problem:
            yield "http", problem, ""
        problem = headers_problem(self.headers)
        if problem:
            yield "headers", problem, ""
        if self.query is not None:
            yield "query", "means nothing for http", "leave it out"

    def _query_problems(self) -> Iterator[tuple[str, str, str]]:
        problem = "is missing" if self.query is None else query_problem(self.query)
        if problem:
            yield "query", problem, "SELECT … WHERE id = :column"
        for name in ("headers", "fields"):
            if getattr(self, name):
                yield name, "is for http alone", "leave it out; name the columns in the query"
        if self.sqlalchemy is None:
            return
        if importlib.util.find_spec("sqlalchemy") is None:
            yield "sqlalchemy", "SQLAlchemy is not installed", "pip install 'ottla[databases]'"
        elif problem := url_problem(self.sqlalchemy):
            yield "sqlalchemy", problem, "write duckdb:///FILE"

    @property
    def _key_field(self) -> str:
        return "http" if self.http is not None else "query"

    @property
    def keys(self) -> list[str]:
        """The columns that the lookup uses."""
        return key_names(self.http) if self.http is not None else parameters(self.query or "")

    def files(self) -> Iterator[tuple[str, str]]:
        yield from (("schema", file) for file in schema_file(self.schema))
        if self.sqlite is not None:
            yield "sqlite", self.sqlite
        if self.sqlalchemy is not None and (file := database_file(self.sqlalchemy)) is not None:
            yield "sqlalchemy", file

    def apply(self, frame: Frame) -> Frame:
        require_columns(frame, self.keys, self._key_field)
        for name in self.keys:
            kind = frame.rows.schema[name].dataType
            if isinstance(kind, T.ArrayType | T.MapType | T.StructType):
                raise StepError(f"{name!r} is {kind.simpleString()}, and cannot be a key", field=self._key_field)
        schema = self._schema(frame.context.folder)
        taken = {name.lower() for name in frame.columns} & {name.lower() for name in schema.names}
        if taken:
            raise StepError(f"there is a column {min(taken)!r} already", "rename it before", "schema")
        question = self._question(frame.context.folder, schema.names)
        label = _step_label(frame.applied_steps[-1]) if self.on_failure == "stop" else None
        given = frame.if_alive(F.struct(*(F.col(quoted(name)) for name in self.keys)))
        found = frame.with_source_record()
        found = replace(found, rows=found.rows.withColumn(FOUND, _lookup_function(question, schema, label)(given)))
        problem, is_missing = F.col(FOUND).getField(PROBLEM), F.col(FOUND).getField(IS_MISSING)
        if self.on_failure == "dead":
            found = found.mark_dead(problem.isNotNull(), problem)
        if self.on_missing == "dead":
            found = found.mark_dead(is_missing, f"nothing is known about its {', '.join(self.keys)}")
        if self.on_missing == "filter":
            found = found.mark_filtered_unless(~F.coalesce(is_missing, F.lit(False)))
        made = found.with_columns({name: F.col(FOUND).getField(name) for name in schema.names})
        return made.without_column(FOUND)

    def row_order(self, before: RowOrder) -> RowOrder:
        return before

    def _schema(self, folder: str) -> T.StructType:
        try:
            return read_schema(self.schema, folder)[0]
        except SchemaError as problem:
            raise StepError(str(problem), field="schema") from None

    def _question(self, folder: str, names: list[str]) -> LookupSettings:
        seconds = int(self.timeout) / 1000
        address: LookupTarget
        if self.http is not None:
            fields = tuple((name, self.fields.get(name, name)) for name in names)
            address = WebAddress(self.http, fields, tuple(self.headers.items()), seconds)
        elif self.sqlite is not None:
            path = Path(folder, self.sqlite).resolve()
            if not path.is_file():
                raise StepError(f"there is no database {path}", "", "sqlite")
            address = Database("sqlite", str(path), self.query or "", tuple(names), seconds)
        elif self.postgres is not None:
            address = Database("postgres", self.postgres, self.query or "", tuple(names), seconds)
        else:
            address = Database(
                "sqlalchemy", database_in(folder, self.sqlalchemy or ""), self.query or "", tuple(names), seconds
            )
        cache_seconds = int(self.cache_for) / 1000
        return LookupSettings(address, self.cache_size, cache_seconds, self.concurrency, int(self.retry) / 1000)


def _lookup_function(question: LookupSettings, schema: T.StructType, label: str | None) -> Callable[[Column], Column]:
    """Struct of the key -> struct of the answer with its problem. With a label, a problem ends the query."""
    own = [T.StructField(PROBLEM, T.StringType()), T.StructField(IS_MISSING, T.BooleanType())]
    result = T.StructType([*schema.fields, *own])
    wanted, columns = to_arrow_type(result, timezone="UTC"), to_arrow_type(schema, timezone="UTC")

    def over(rows: pa.Array) -> pa.Array:
        keys: list[Key | None] = [None if row is None else tuple(row.values()) for row in rows.to_pylist()]
        answers = client_for(question).answers(key for key in keys if key is not None)
        made = {key: answer_row(answer, columns) for key, answer in answers.items()}
        problem = next((each[PROBLEM] for each in made.values() if PROBLEM in each), None)
        if label is not None and problem is not None:
            raise RuntimeError(f"{label}: {question.address.display_name}: {problem}")
        nothing = {IS_MISSING: True}  # the key contains a null
        return pa.array([None if key is None else made.get(key, nothing) for key in keys], type=wanted)

    function: Any = arrow_function(over, result)
    # otherwise Spark may evaluate it twice, for two expressions
    made: Callable[[Column], Column] = function.asNondeterministic()
    return made


def answer_row(answer: Answer, columns: pa.DataType) -> Row:
    """The column values for a row."""
    if answer.problem is not None:
        return {PROBLEM: answer.problem}
    if answer.row is None:
        return {IS_MISSING: True}
    try:
        return to_declared_types(answer.row, columns)
    except ValueError as problem:
        return {PROBLEM: str(problem)}


def _step_label(step: AppliedStep) -> str:
    return f"{step.stream}, step {step.number}, {step.step}"
