"""A SELECT over tables as an ordinary pipeline: each table a stream, the query the step `sql` on top of them. Pure.

So a query at the prompt and the pipeline that CREATE PIPELINE writes are the same thing, and what a pipeline may not do
no query may.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ottla.base.counting import counted
from ottla.pipelines.sql.stars import check_stars, without_doubles
from ottla.pipelines.sql.tables import Table, columns_of_record, stream_of
from ottla.pipelines.steps.sql_query import STREAM, Query, rewrite_query
from ottla.pipelines.steps.sql_tokens import PIECES, SqlError, tokenize

RESULT = "result"
WINDOWS = ("window", "session_window")
SESSION = "SESSION_WINDOW"


@dataclass(frozen=True)
class Head:
    """What all queries of a session have in common: where the cluster is and how it is reached."""

    bootstrap: str
    client: Mapping[str, str] = field(default_factory=dict)


def tables_in(text: str, known: Collection[str]) -> tuple[Query, list[str]]:
    """The query, and the tables that it reads, in small letters. Raises SqlError."""
    query = without_doubles(rewrite_query(text, list(known)))
    names = list(dict.fromkeys(query.tables.values()))
    if STREAM in names and STREAM not in {name.lower() for name in known}:
        raise SqlError(f"reads {STREAM}, which is no table and no topic")
    if not names:
        raise SqlError("reads no table: write FROM and the name of a topic")
    return query, names


def check_comparisons(query: Query, tables: Sequence[Table]) -> None:
    """Where rows are compared whole. Raises SqlError."""
    words = {piece.strip("`").lower() for piece in query.pieces}
    check_stars(query, sorted({name for table in tables for name in columns_of_record(table, words)}))


def document_of(
    query: Query,
    tables: Mapping[str, Table],
    head: Head,
    *,
    name: str = "ottla-sql",
    sink: object = "console",
    output: str = "append",
) -> dict[str, object]:
    """`tables` by their names in the query, in small letters."""
    words = {piece.strip("`").lower() for piece in query.pieces}
    names = _safe_names(list(tables), words)
    main = next((each for each in tables if not tables[each].key), next(iter(tables)))
    in_query = {each: STREAM if each == main and not tables[each].key else names[each] for each in tables}
    step: dict[str, object] = {"query": query.renamed(in_query)}
    others = {names[each]: names[each] for each in tables if each != main and not tables[each].key}
    newest = {names[each]: list(tables[each].key) for each in tables if tables[each].key}
    step |= {"streams": others} if others else {}
    step |= {"newest_of": newest} if newest else {}
    streams: dict[str, object] = {names[each]: stream_of(tables[each], words) for each in tables}
    result: dict[str, object] = {"from": names[main], "steps": [{"sql": step}], "to": sink}
    streams[RESULT] = {**result, "output": output} if output != "append" else result
    document: dict[str, object] = {"name": name, "bootstrap_servers": head.bootstrap}
    return {**document, **({"client": dict(head.client)} if head.client else {}), "streams": streams}


def output_of(query: Query, tables: Sequence[Table]) -> str:
    """How a pipeline tells what changes: windows that a watermark closes are told once, other groups at each change."""
    words = _words(query)
    if not _is_grouped(words):
        return "append"
    has_window = any(name.upper() in words for name in WINDOWS)
    return "append" if has_window and all(table.event_time for table in tables if not table.key) else "update"


def late_words(query: Query, count: int) -> str:
    """What Spark has counted as late: rows, but of a query that groups the groups that they would have been in. A row
    may be late for some of its sliding windows only."""
    words = _words(query)
    if not _is_grouped(words) or SESSION in words:
        return f"{counted(count, 'row')} came later than the watermark allows: not in the result"
    groups = counted(count, "group")
    return f"rows of {groups} came later than the watermark allows: not in these groups (counted batch by batch)"


def starting_at(table: Table, starting: str) -> Table:
    return table if table.starting else replace(table, starting=starting)


def without_limit(text: str) -> tuple[str, int | None]:
    """The query without the LIMIT at its end, and the limit: from outside, Spark stops reading when it is reached.

    Not where rows are sorted: Spark keeps only the first ones then, if it knows that no more are wanted.
    """
    tokens = tokenize(text)
    words = [token.word for token in tokens]
    if len(tokens) < 3 or words[-2] != "LIMIT" or not tokens[-1].text.isdecimal() or "ORDER" in words:
        return text, None
    return text[: tokens[-2].start], int(tokens[-1].text)


def origin_of(query: Query, spark_text: str, index: int) -> int | None:
    """Where in the user's text stands what Spark complains about at this index of its own text.

    Both consist of the same tokens one by one: only names of tables are others.
    """
    count = position = 0
    while position < len(spark_text):
        match = PIECES.match(spark_text, position)
        if match is None:
            return None
        position = match.end()
        if match.lastgroup in ("blank", "comment"):
            continue
        if index < position:
            return query.starts[count] if count < len(query.starts) else None
        count += 1
    return None


def _words(query: Query) -> list[str]:
    return [piece.strip("`").upper() for piece in query.pieces]


def _is_grouped(words: Sequence[str]) -> bool:
    return any(words[at : at + 2] == ["GROUP", "BY"] for at in range(len(words)))


def _safe_names(tables: Sequence[str], words: Collection[str]) -> dict[str, str]:
    """Names that are right for a stream of a pipeline and for a table in SQL, each its own."""
    taken = {STREAM, RESULT}
    found: dict[str, str] = {}
    for table in tables:
        plain = re.sub(r"[^A-Za-z0-9_]", "_", table).strip("_")
        name = plain if plain and not plain[0].isdigit() and _is_plain(plain) else f"table_{plain}"
        number = 2
        while name in taken or (name != table and name in words):
            name, number = f"{plain or 'table'}_{number}", number + 1
        taken.add(name)
        found[table] = name
    return found


def _is_plain(name: str) -> bool:
    """It is no word that the step `sql` would refuse as a table."""
    try:
        rewrite_query(f"SELECT 1 FROM {name}", [name])  # noqa: S608 (no query: only looked at)
    except SqlError:
        return False
    return len(tokenize(name)) == 1
