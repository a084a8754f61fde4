"""`SELECT ROWTIME, *` as ksqlDB has it: the star leaves out columns of the record that the same SELECT names.

The columns of the record (tables.py) are in every table that a query reads, if the query names them, so a star would
repeat them. Only plain columns in the list count: `rowtime AS at` is another column.

A comparison of whole rows (NATURAL, DISTINCT, set operators) must not include these columns: see `check_stars`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from ottla.pipelines.expressions.problems import SqlError
from ottla.pipelines.expressions.query import Query
from ottla.pipelines.sql.tables import RECORD_COLUMNS


def without_doubles(query: Query) -> Query:
    """Rewrite the stars of this query."""
    for select in query.tree.find_all(exp.Select):
        plain = [item.name.lower() for item in select.expressions if isinstance(item, exp.Column) and not item.is_star]
        named = [name for name in dict.fromkeys(plain) if name in RECORD_COLUMNS]
        for star in map(_star, select.expressions):
            if star is not None and named and not star.args.get("except_"):
                star.set("except_", [exp.Identifier(this=name) for name in named])
    return query


def check_stars(query: Query, added: Sequence[str]) -> None:
    """Refuse stars where rows are compared whole. `added`: the columns of the record that the query names. Raises
    SqlError."""
    if not added:
        return
    if any(join.args.get("method") == "NATURAL" for join in query.tree.find_all(exp.Join)):
        raise SqlError(f"has a NATURAL JOIN, which would compare {added[0]}, too: write JOIN … USING (columns)")
    compares_all = any(each.args.get("distinct") is not False for each in query.tree.find_all(exp.SetOperation))
    for select in query.tree.find_all(exp.Select):
        if (compares_all or select.args.get("distinct")) and _has_star_of_table(query, select):
            raise SqlError(
                f"compares whole rows, and {added[0]} is in each of them: name the columns instead of *",
                next(star.meta.get("start") for star in map(_star, select.expressions) if star is not None),
            )


def _has_star_of_table(query: Query, select: exp.Select) -> bool:
    """Return whether the SELECT includes all columns of a table."""
    source = select.args.get("from_")
    stars = [star for star in map(_star, select.expressions) if star is not None and not star.args.get("except_")]
    return source is not None and id(source.this) in query.tables and bool(stars)


def _star(item: exp.Expr) -> exp.Star | None:
    star = item.this if isinstance(item, exp.Column) else item
    return star if isinstance(star, exp.Star) else None
