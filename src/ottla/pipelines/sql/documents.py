"""The pipeline document of a SELECT: each table is a stream, and the query is the step `sql` over them. Pure.

A query at the prompt and a pipeline that CREATE PIPELINE writes are the same document, so they have the same limits.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from ottla.base.text import format_count
from ottla.pipelines.expressions.lexer import tokenize, word_of
from ottla.pipelines.expressions.problems import SqlError
from ottla.pipelines.expressions.query import STREAM, Query, read_query
from ottla.pipelines.sql.stars import check_stars, without_doubles
from ottla.pipelines.sql.tables import Table, columns_of_record, stream_of

RESULT = "result"
WINDOWS = ("window", "session_window")
SESSION = "session_window"


@dataclass(frozen=True)
class Head:
    """What all queries of a session share: the cluster and its connection properties."""

    bootstrap: str
    client: Mapping[str, str] = field(default_factory=dict)


def tables_in(text: str, known: Collection[str]) -> tuple[Query, list[str]]:
    """Return the query, and the tables that it reads in lower case. Raises SqlError."""
    query = without_doubles(read_query(text, list(known)))
    names = list(dict.fromkeys(query.tables.values()))
    if STREAM in names and STREAM not in {name.lower() for name in known}:
        raise SqlError(f"reads {STREAM}, which is neither a table nor a topic")
    if not names:
        raise SqlError("reads no table: write FROM and the name of a topic")
    return query, names


def check_comparisons(query: Query, tables: Sequence[Table]) -> None:
    """Check queries that compare whole rows. Raises SqlError."""
    words = query.words()
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
    """Build the document; the keys of `tables` are their names in the query, in lower case."""
    words = query.words()
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
    """Return the output mode: append for windows that a watermark closes, update or complete for other groups."""
    if query.tree.find(exp.Group) is None:
        return "append"
    has_window = any(call.name.lower() in WINDOWS for call in query.tree.find_all(exp.Anonymous))
    return "append" if has_window and all(table.event_time for table in tables if not table.key) else "update"


def late_words(query: Query, count: int) -> str:
    """Describe what Spark counts as late: rows, or, for a query that groups, the groups that the rows belong to. A row
    may be late for only some of its sliding windows."""
    calls = {call.name.lower() for call in query.tree.find_all(exp.Anonymous)}
    if query.tree.find(exp.Group) is None or SESSION in calls:
        return f"{format_count(count, 'row')} came later than the watermark allows: not in the result"
    groups = format_count(count, "group")
    return f"rows of {groups} came later than the watermark allows: not in these groups (counted batch by batch)"


def starting_at(table: Table, starting: str) -> Table:
    return table if table.starting else replace(table, starting=starting)


def without_limit(text: str) -> tuple[str, int | None]:
    """Split off the LIMIT at the end of a query. With a LIMIT outside the plan, Spark stops reading when it is
    reached.

    A query that sorts keeps its LIMIT: Spark then keeps only the first rows.
    """
    tokens = tokenize(text)
    words = [word_of(token) for token in tokens]
    if len(tokens) < 3 or words[-2] != "LIMIT" or not tokens[-1].text.isdecimal() or "ORDER BY" in words:
        return text, None
    return text[: tokens[-2].start], int(tokens[-1].text)


def _safe_names(tables: Sequence[str], words: Collection[str]) -> dict[str, str]:
    """Return one name for each table that is valid and unique both as a stream of a pipeline and as a table in SQL."""
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
    """Return whether the step `sql` accepts the name as a table."""
    try:
        read_query(f"SELECT 1 FROM {name}", [name])  # noqa: S608 (parsed only, never run)
    except SqlError:
        return False
    return len(tokenize(name)) == 1
