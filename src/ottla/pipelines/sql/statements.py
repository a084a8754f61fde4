"""The statements of `ottla sql`: splitting and parsing. Pure: nothing is looked up or run.

    SELECT … | WITH … SELECT … [EMIT CHANGES [LIMIT n]]        EXPLAIN SELECT …
    CREATE [OR REPLACE] TABLE|STREAM [IF NOT EXISTS] t [(columns)] [WITH (…)]      DROP TABLE t
    CREATE [OR REPLACE] PIPELINE p [WITH (…)] AS SELECT … INTO TOPIC|TABLE t [WITH (…)]
    SHOW TABLES|TOPICS|PIPELINES       DESCRIBE t       SET key = value       HELP       QUIT

Where Flink SQL and ksqlDB have different words for the same thing, both are accepted. The text of a SELECT is not
checked here; expressions/query.py does so when the tables are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ottla.pipelines.expressions.problems import SqlError
from ottla.pipelines.sql.declarations import Reader
from ottla.pipelines.sql.flink_windows import in_sparks_words
from ottla.pipelines.sql.other_words import CREATED, INTO_TOPIC, NOT_THERE, STATEMENTS, check_hints, check_words
from ottla.pipelines.sql.tables import Table
from ottla.pipelines.sql.tokens import PIECES, Token, tokenize

SHOWN = ("TABLES", "TOPICS", "PIPELINES")
OTHERS_SHOWN = {"STREAMS": "TABLES", "QUERIES": "PIPELINES", "JOBS": "PIPELINES"}  # names in ksqlDB and Flink
BEGINNINGS = (
    "SELECT",
    "WITH",
    "CREATE",
    "DROP",
    "SHOW",
    "LIST",
    "DESCRIBE",
    "DESC",
    "EXPLAIN",
    "SET",
    "HELP",
    "QUIT",
    "EXIT",
)

Shown = Literal["TABLES", "TOPICS", "PIPELINES"]


class Part(NamedTuple):
    """One statement, and its position in the whole text."""

    text: str
    start: int


class Split(NamedTuple):
    parts: list[Part]
    rest: Part  # after the last semicolon


@dataclass(frozen=True)
class Select:
    text: str
    start: int = 0  # position in the statement
    is_continuous: bool = False
    rows_max: int | None = None  # from EMIT CHANGES LIMIT n


@dataclass(frozen=True)
class Explain:
    select: Select


@dataclass(frozen=True)
class CreateTable:
    table: Table
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropTable:
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class CreatePipeline:
    """CREATE PIPELINE; `sink` has the form of `to` in a pipeline file."""

    name: str
    select: Select
    sink: Mapping[str, object]
    options: Mapping[str, str] = field(default_factory=dict)
    or_replace: bool = False


@dataclass(frozen=True)
class Show:
    what: Shown


@dataclass(frozen=True)
class Describe:
    name: str


@dataclass(frozen=True)
class SetOption:
    key: str = ""  # empty: show the settings
    value: str = ""


@dataclass(frozen=True)
class Help:
    pass


@dataclass(frozen=True)
class Quit:
    pass


Statement = Select | Explain | CreateTable | DropTable | CreatePipeline | Show | Describe | SetOption | Help | Quit


def split(text: str) -> Split:
    """Split at semicolons outside quotes and comments. Empty statements are left out."""
    parts: list[Part] = []
    begin = position = 0
    has_words = False
    while position < len(text):
        match = PIECES.match(text, position)
        if match is None or (match[0] == "/" and text.startswith("/*", position)):
            return Split(parts, Part(text[begin:], begin))  # an open quote or comment
        position = match.end()
        if match[0] == ";" and match.lastgroup == "symbol":
            if has_words:
                parts.append(Part(text[begin : match.start()], begin))
            begin, has_words = position, False
        elif match.lastgroup not in ("blank", "comment"):
            has_words = True
    return Split(parts, Part(text[begin:] if has_words else "", begin))


def place_of(text: str, position: int) -> tuple[int, int]:
    """Return line and column, both from 1."""
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1


def read_statement(text: str) -> Statement:
    """Parse a statement. Raises SqlError with the position in the text."""
    tokens = tokenize(text)
    if not tokens:
        raise SqlError("is empty")
    reader = Reader(text, tokens)
    try:
        return _read(reader)
    except SqlError as problem:
        problem.at = reader.position if problem.at is None else problem.at
        raise


def _read(reader: Reader) -> Statement:
    first = reader.peek().word
    if first in ("SELECT", "WITH"):
        return _select(reader.text, reader.tokens)
    if first in STATEMENTS:
        raise SqlError(f"begins with {first}: {STATEMENTS[first]}")
    if first not in BEGINNINGS:
        raise SqlError(f"begins with {reader.peek().text!r}; known: {', '.join(BEGINNINGS)}")
    reader.take()
    if first == "EXPLAIN":
        reader.skip("PLAN", "FOR")
        return Explain(_select(reader.text, reader.tokens[reader.place :]))
    if first == "CREATE":
        return _create(reader)
    found = _short(first, reader)
    reader.expect_end()
    return found


def _short(first: str, reader: Reader) -> Statement:
    cure = NOT_THERE.get((first, reader.peek().word))
    if cure is not None:
        raise SqlError(f"has {first} {reader.peek().word}: {cure}")
    if first in ("SHOW", "LIST"):
        other = OTHERS_SHOWN.get(reader.peek().word)
        what = reader.word_of(*SHOWN) if other is None else other
        reader.place += other is not None
        return Show(what)  # type: ignore[arg-type]
    if first in ("DESCRIBE", "DESC"):
        if reader.peek(1).name:  # otherwise the word is the table's name
            reader.skip("TABLE") or reader.skip("EXTENDED")
        name = reader.name()
        reader.skip("EXTENDED")
        return Describe(name)
    if first == "DROP":
        reader.word_of("TABLE", "STREAM")
        if_exists = reader.skip("IF", "EXISTS")
        name = reader.name()
        if reader.peek().word == "DELETE":
            raise SqlError("has DELETE TOPIC: leave it out, and use ottla topics delete")
        return DropTable(name, if_exists)
    if first == "SET":
        return SetOption(*reader.option()) if not reader.is_at_end else SetOption()
    return Help() if first == "HELP" else Quit()


def _select(text: str, tokens: list[Token]) -> Select:
    """Split off EMIT CHANGES and what follows it; Spark gets the text before it."""
    if not tokens or tokens[0].word not in ("SELECT", "WITH"):
        raise SqlError("needs a SELECT")
    check_hints(text)
    check_words(tokens)
    start = tokens[0].start
    words = [token.word for token in tokens]
    place = next((at for at in range(1, len(words)) if words[at - 1 : at + 1] == ["EMIT", "CHANGES"]), None)
    if place is None:
        return Select(in_sparks_words(text[start:]), start)
    tail, end = tokens[place + 1 :], place - 1
    rows_max: int | None = None
    if not tail and words[end - 2 : end - 1] == ["LIMIT"]:  # LIMIT n EMIT CHANGES
        end -= 2
        tail = tokens[end : end + 2]
    if tail:
        is_limit = len(tail) == 2 and tail[0].word == "LIMIT" and tail[1].text.isdecimal()
        if not is_limit:
            raise _at(tail[0], SqlError(f"has {tail[0].text!r} behind EMIT CHANGES, where only LIMIT n may stand"))
        rows_max = int(tail[1].text)
    return Select(in_sparks_words(text[start : tokens[end].start]), start, True, rows_max)


def _create(reader: Reader) -> Statement:
    or_replace = reader.skip("OR", "REPLACE")
    other = CREATED.get(reader.peek().word)
    if other is not None:
        raise SqlError(f"creates a {reader.peek().word}: {other}")
    kind = reader.word_of("TABLE", "STREAM", "PIPELINE")
    if kind == "PIPELINE":
        return _pipeline(reader, or_replace)
    if_not_exists = reader.skip("IF", "NOT", "EXISTS")
    table = reader.table()
    if reader.peek().word in ("AS", "LIKE"):
        raise SqlError(f"has {reader.peek().word} behind a table, which is an existing topic: {INTO_TOPIC}")
    reader.expect_end()
    return CreateTable(table, or_replace, if_not_exists)


def _pipeline(reader: Reader, or_replace: bool) -> CreatePipeline:
    name = reader.name()
    options = reader.options() if reader.skip("WITH") else {}
    reader.expect("AS")
    begin, depth, into = reader.place, 0, None
    for place in range(begin, len(reader.tokens)):
        token = reader.tokens[place]
        depth += (token.text in "([") - (token.text in ")]") if token.kind == "symbol" else 0
        if token.word == "INTO" and not depth:
            into = place
    if into is None:
        raise SqlError("does not say where to: write INTO TOPIC name, or INTO TABLE name WITH (sqlite = 'file.db')")
    select = _select(reader.text[: reader.tokens[into].start], reader.tokens[begin:into])
    if select.rows_max is not None:
        raise _at(reader.tokens[into - 1], SqlError("has a LIMIT, but a pipeline runs continuously: leave it out"))
    reader.place = into + 1
    kind = reader.word_of("TOPIC", "TABLE")
    target = reader.name()
    given: dict[str, object] = {}
    if reader.skip("KEY"):
        given["key"] = reader.names()
    if reader.skip("WITH"):
        given |= {key: _plain(value) for key, value in reader.options().items()}
    reader.expect_end()
    if kind == "TABLE" and not {"sqlite", "postgres"} & set(given):
        raise SqlError("does not say in which database the table is: WITH (sqlite = 'file.db') or WITH (postgres = …)")
    return CreatePipeline(name, select, {kind.lower(): target, **given}, options, or_replace)


def _plain(value: str) -> object:
    """Convert a value as a pipeline file would."""
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    return int(value) if value.isdecimal() else value


def _at(token: Token, problem: SqlError) -> SqlError:
    problem.at = token.start
    return problem
