"""`SELECT ROWTIME, *`, as people of ksqlDB write it: a star leaves out what the same SELECT names of the record.

The columns that a record itself has (tables.py) are there for queries that name them, in all tables, so a star would
have them once more. Only those that stand alone in the list count: `rowtime AS at` is another column.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.pipelines.sql.tables import RECORD_COLUMNS
from ottla.pipelines.steps.sql_query import Query


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
