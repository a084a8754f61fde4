"""Lookups in a database: `SELECT city FROM users WHERE id = :user_id`, with no row or one.

SQLite files are opened read-only, and PostgreSQL sessions are read-only. Other databases use SQLAlchemy. Row values are
query parameters, never part of its text.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from ottla.pipelines.steps.lookups.lookup_client import Key, LookupFailedError, Row, UnavailableError

Kind = Literal["sqlite", "postgres", "sqlalchemy"]

FILE_DATABASES = ("sqlite", "duckdb")
# A SELECT of DuckDB can read any file (read_text, read_csv, FROM 'file'), unless its database is opened like this.
DUCKDB_OPTIONS = {"enable_external_access": "false", "access_mode": "read_only"}
# Quoted text and casts (::) are skipped; any other colon starts a parameter.
PARAMETER = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|::|:([A-Za-z_]\w*)", re.DOTALL)


@dataclass(frozen=True)
class Database:
    """`address`: a file, or a URL, which is never shown. `columns`: those taken from the row."""

    kind: Kind
    address: str = field(repr=False)
    query: str
    columns: tuple[str, ...]
    timeout_seconds: float = 5.0

    @property
    def display_name(self) -> str:
        return {"sqlite": Path(self.address).name, "postgres": "PostgreSQL"}.get(self.kind, "the database")

    @property
    def keys(self) -> list[str]:
        return parameters(self.query)

    def connect(self) -> SqliteLookup | PostgresLookup | SqlAlchemyLookup:
        if self.kind == "sqlite":
            return SqliteLookup(self)
        return PostgresLookup(self) if self.kind == "postgres" else SqlAlchemyLookup(self)


def database_file(url: str) -> str | None:
    """The file of a SQLite or DuckDB URL; None for a server or an invalid URL."""
    found = _parsed(url)
    is_file = found is not None and found.get_backend_name() in FILE_DATABASES and found.database != ":memory:"
    return found.database if is_file else None


def database_in(folder: str, url: str) -> str:
    """The same URL, with the file path resolved in the folder, and without access to other files."""
    found, file = _parsed(url), database_file(url)
    if found is not None and _is_duckdb(found):
        found = found.set(query=DUCKDB_OPTIONS)
    elif not file or file.startswith("file:"):
        return url
    if file and not file.startswith("file:"):
        found = found.set(database=str(Path(folder, file).resolve()))
    rendered: str = found.render_as_string(hide_password=False)
    return rendered


def url_problem(url: str) -> str | None:
    """Why the URL of a database is invalid."""
    found = _parsed(url)
    if found is not None and _is_duckdb(found) and found.query:
        return "has options, which are not allowed for DuckDB: they could open other files"
    return None


def _parsed(url: str) -> Any:
    """The URL of SQLAlchemy; None if it is invalid."""
    import sqlalchemy as sa  # noqa: PLC0415 (optional dependency)

    try:
        return sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        return None


def _is_duckdb(url: Any) -> bool:
    return bool(url.get_backend_name() == "duckdb")


def parameters(query: str) -> list[str]:
    return list(dict.fromkeys(match[1] for match in PARAMETER.finditer(query) if match[1]))


def query_problem(query: str) -> str | None:
    """Why the query is invalid."""
    bare = PARAMETER.sub(lambda match: "" if match[1] is None and match[0] != "::" else match[0], query).strip()
    if not re.match(r"(select|with)\b", bare, re.IGNORECASE):
        return "is not a SELECT"
    if ";" in bare.rstrip(";"):
        return "is more than one statement"
    return None if parameters(query) else "names no key column: write :column for its value"


def for_psycopg(query: str) -> str:
    """Convert parameters to psycopg's form, and double every other %."""
    made, end = "", 0
    for match in PARAMETER.finditer(query):
        made += query[end : match.start()].replace("%", "%%")
        made += f"%({match[1]})s" if match[1] else match[0].replace("%", "%%")
        end = match.end()
    return made + query[end:].replace("%", "%%")


def single_row(rows: list[Any], names: list[str], columns: tuple[str, ...]) -> Row | None:
    """Raises LookupFailedError."""
    if len(rows) > 1:
        raise LookupFailedError("the query returns several rows for one key")
    missing = [name for name in columns if name not in names]
    if missing:
        raise LookupFailedError(f"the query returns no column {missing[0]!r}, only {', '.join(names)}")
    return {name: value for name, value in zip(names, rows[0], strict=True) if name in columns} if rows else None


class SqliteLookup:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._open: sqlite3.Connection | None = None

    def __repr__(self) -> str:
        return f"SqliteLookup({self._database.display_name})"

    def lookup(self, key: Key) -> Row | None:
        try:
            if self._open is None:
                if not Path(self._database.address).is_file():
                    raise UnavailableError("the file does not exist")
                uri = f"{Path(self._database.address).resolve().as_uri()}?mode=ro"
                seconds = self._database.timeout_seconds
                self._open = sqlite3.connect(uri, uri=True, timeout=seconds, check_same_thread=False)
            values = {name: _sqlite_value(value) for name, value in zip(self._database.keys, key, strict=True)}
            cursor = self._open.execute(self._database.query, values)
            return single_row(cursor.fetchmany(2), [each[0] for each in cursor.description], self._database.columns)
        except sqlite3.OperationalError as problem:
            self.close()
            if "locked" in str(problem) or "unable to open" in str(problem):
                raise UnavailableError(str(problem)) from problem
            raise LookupFailedError(str(problem)) from problem
        except sqlite3.Error as problem:
            self.close()
            raise LookupFailedError(str(problem)) from problem

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


class PostgresLookup:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._open: Any = None
        self._query = for_psycopg(database.query)

    def __repr__(self) -> str:
        return f"PostgresLookup({'open' if self._open else 'closed'})"

    def lookup(self, key: Key) -> Row | None:
        import psycopg  # # noqa: PLC0415 (optional dependency)

        try:
            if self._open is None:
                self._open = self._connected(psycopg)
            cursor = self._open.execute(self._query, dict(zip(self._database.keys, key, strict=True)))
            names = [each.name for each in cursor.description or ()]
            return single_row(cursor.fetchmany(2), names, self._database.columns)
        except (psycopg.OperationalError, psycopg.InterfaceError) as problem:
            self.close()
            raise UnavailableError(_first_line(problem)) from problem
        except psycopg.Error as problem:
            self.close()
            raise LookupFailedError(_first_line(problem)) from problem

    def _connected(self, psycopg: Any) -> Any:
        seconds = self._database.timeout_seconds
        opened = psycopg.connect(self._database.address, connect_timeout=max(round(seconds), 2), autocommit=True)
        opened.execute("SET default_transaction_read_only = on")
        opened.execute(f"SET statement_timeout = {round(seconds * 1000)}")
        opened.execute("SET TIME ZONE 'UTC'")
        return opened

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


class SqlAlchemyLookup:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._open: Any = None

    def __repr__(self) -> str:
        return f"SqlAlchemyLookup({'open' if self._open else 'closed'})"

    def lookup(self, key: Key) -> Row | None:
        import sqlalchemy as sa  # # noqa: PLC0415 (optional dependency)

        try:
            if self._open is None:
                engine = sa.create_engine(self._database.address, poolclass=sa.NullPool, hide_parameters=True)
                self._open = engine.connect()
            values = dict(zip(self._database.keys, key, strict=True))
            result = self._open.execute(sa.text(self._database.query), values)
            found = single_row(result.fetchmany(2), list(result.keys()), self._database.columns)
            self._open.rollback()  # the next lookup sees later commits
        except (sa.exc.OperationalError, sa.exc.InterfaceError) as problem:
            self.close()
            raise UnavailableError(_first_line(problem.orig or problem)) from problem
        except sa.exc.SQLAlchemyError as problem:
            self.close()
            raise LookupFailedError(_first_line(getattr(problem, "orig", None) or problem)) from problem
        return found

    def close(self) -> None:
        import sqlalchemy as sa  # noqa: PLC0415

        if self._open is not None:
            with suppress(sa.exc.SQLAlchemyError):
                self._open.close()
            self._open = None


def _sqlite_value(value: Any) -> Any:
    """The value in SQLite's representation."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def _first_line(problem: BaseException) -> str:
    return next(iter(str(problem).splitlines()), type(problem).__name__)
