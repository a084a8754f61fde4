"""`SELECT ROWTIME, *` as ksqlDB has it: the star leaves out columns of the record that the same SELECT names.

The columns of the record (tables.py) are in every table that a query reads, if the query names them, so a star would
repeat them. Only plain columns in the list count: `rowtime AS at` is another column.

A comparison of whole rows (NATURAL, DISTINCT, set operators) must not include these columns: see `check_stars`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.pipelines.sql.tables import RECORD_COLUMNS
from ottla.pipelines.steps.sql_query import JOINS, SET_OPERATORS, Query
from ottla.pipelines.steps.sql_tokens import SqlError


def without_doubles(query: Query) -> Query:
    """Rewrite the stars. Every token keeps its place in the user's text."""
    added = _added(query.pieces)
    found = Query()
    for place, (text, start) in enumerate(zip(query.pieces, query.starts, strict=True)):
        if place in query.tables:
            found.tables[len(found.pieces)] = query.tables[place]
        more = added.get(place, [])
        found.pieces += [text, *more]
        found.starts += [start] * (1 + len(more))
    return found


def check_stars(query: Query, added: Sequence[str]) -> None:
    """Refuse stars where rows are compared whole. `added`: the columns of the record that the query names. Raises
    SqlError."""
    pieces = [piece.upper() for piece in query.pieces]
    compares_all = any(
        piece in SET_OPERATORS and before != "*" and after != "ALL"
        for before, piece, after in zip(pieces, pieces[1:], [*pieces[2:], ""], strict=False)
    )
    for place, piece in enumerate(pieces[:-1] if added else ()):
        problem = ""
        if piece == "NATURAL" and pieces[place + 1] in JOINS:
            problem = f"has a NATURAL JOIN, which would compare {added[0]}, too: write JOIN … USING (columns)"
        is_whole = compares_all or pieces[place + 1] == "DISTINCT"
        if piece == "SELECT" and is_whole and _has_star_of_table(query, place):
            problem = f"compares whole rows, and {added[0]} is in each of them: name the columns instead of *"
        if problem:
            wrong = SqlError(problem)
            wrong.at = query.starts[place]
            raise wrong


def _has_star_of_table(query: Query, place: int) -> bool:
    """Return whether the SELECT at this place includes all columns of a table."""
    items = _items(query.pieces, place + 1)
    behind = max((item[-1] for item in items if item), default=place) + 2  # FROM and its first table
    return behind in query.tables and any(_name([query.pieces[at] for at in item]) == "*" for item in items)


def _added(pieces: Sequence[str]) -> dict[int, list[str]]:
    """Map the index of each star to the columns that it must leave out."""
    found: dict[int, list[str]] = {}
    for place, piece in enumerate(pieces):
        if piece.upper() != "SELECT":
            continue
        items = _items(pieces, place + 1)
        names = [_name([pieces[at] for at in item]) for item in items]
        named = [name for name in dict.fromkeys(names) if name in RECORD_COLUMNS]
        listed = [piece for name in named for piece in (",", name)][1:]
        if named:
            found |= {
                item[-1]: ["EXCEPT", "(", *listed, ")"] for item, name in zip(items, names, strict=True) if name == "*"
            }
    return found


def _items(pieces: Sequence[str], begin: int) -> list[list[int]]:
    """Split the list of a SELECT at its commas, up to FROM: indexes of tokens."""
    items: list[list[int]] = [[]]
    depth = 0
    for place in range(begin, len(pieces)):
        piece = pieces[place]
        depth += (piece in "([") - (piece in ")]")
        if depth < 0 or (depth == 0 and piece.upper() == "FROM"):
            break
        if depth == 0 and piece == ",":
            items.append([])
        elif items != [[]] or piece.upper() not in ("DISTINCT", "ALL"):
            items[-1].append(place)
    return items


def _name(words: Sequence[str]) -> str:
    """Return the name in `column` or `table.column` in lower case; "" for any other expression."""
    plain = [word.strip("`").lower() for word in words]
    return plain[-1] if len(plain) == 1 or (len(plain) == 3 and plain[1] == ".") else ""
