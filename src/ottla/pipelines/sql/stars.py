"""`SELECT ROWTIME, *`, as people of ksqlDB write it: a star leaves out what the same SELECT names of the record.

The columns that a record itself has (tables.py) are there for queries that name them, in all tables, so a star would
have them once more. Only those that stand alone in the list count: `rowtime AS at` is another column.

Where rows are compared whole, by NATURAL, DISTINCT or a set operator, nobody means these columns: `check_stars`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.pipelines.sql.tables import RECORD_COLUMNS
from ottla.pipelines.steps.sql_query import JOINS, SET_OPERATORS, Query
from ottla.pipelines.steps.sql_tokens import SqlError


def without_doubles(query: Query) -> Query:
    """Every piece keeps its place in the user's text."""
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
    """`added`: what the tables have of the record, because the query names it. Raises SqlError."""
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
    """Whether the SELECT at this place has all columns of a table."""
    items = _items(query.pieces, place + 1)
    behind = max((item[-1] for item in items if item), default=place) + 2  # FROM, and what it reads
    return behind in query.tables and any(_name([query.pieces[at] for at in item]) == "*" for item in items)


def _added(pieces: Sequence[str]) -> dict[int, list[str]]:
    """Behind which stars what stands."""
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
    """What stands between the commas up to FROM: places of pieces."""
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
    """In small letters, of `column` and `table.column`; nothing of any other expression."""
    plain = [word.strip("`").lower() for word in words]
    return plain[-1] if len(plain) == 1 or (len(plain) == 3 and plain[1] == ".") else ""
