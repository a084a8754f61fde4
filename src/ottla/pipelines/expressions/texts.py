"""The expressions of steps: what is wrong with their text, and what Spark gets instead of it.

    check_expression   derive, and other column expressions: no subquery, nothing random
    check_condition    filter, rule, sinks' where: also no clock, because a replay must give the same result

Casts of 'now' or 'today' that only Spark's types reveal (`at > 'now'`) are found in its plan: running/special_times.py.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from ottla.pipelines.expressions.problems import SqlError

if TYPE_CHECKING:
    from pyspark.sql import Column
    from sqlglot import exp

KEPT = 1000  # expressions; each is asked for several times
# Functions that fill a buffer of their own. If one fails half-way, the next row finds what is left in it: a key of the
# row before would be a duplicate, and a good record dead.
WITH_BUFFER = {
    "map", "map_from_arrays", "map_from_entries", "map_concat", "str_to_map", "transform_keys",
    "to_json", "from_json", "to_csv", "from_csv", "to_xml", "from_xml",
}  # fmt: skip


def check_expression(text: str) -> str | None:
    """Why this expression is not allowed, or None."""
    found = _read(text)
    return str(found) if isinstance(found, SqlError) else None


def check_condition(text: str) -> str | None:
    """Why this condition is not allowed, or None."""
    from ottla.pipelines.expressions.tree import check_replayable  # noqa: PLC0415 (see _read)

    found = _read(text)
    if isinstance(found, SqlError):
        return str(found)
    try:
        check_replayable(found)
    except SqlError as problem:
        return str(problem)
    return None


def asks_the_time(text: str) -> bool:
    """Whether the value of this allowed expression depends on when it is computed."""
    return check_condition(text) is not None and check_expression(text) is None


def checked(text: str) -> exp.Expr:
    """The tree of an allowed expression; it is shared and must not be changed. Raises SqlError."""
    found = _read(text)
    if isinstance(found, SqlError):
        raise found
    return found


def column_of_sql(text: str) -> Column:
    """The expression in Spark, from text that is written from its checked tree. Raises SqlError."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (pages check text without Spark)

    from ottla.pipelines.expressions.tree import to_spark  # noqa: PLC0415 (see _read)

    return F.expr(to_spark(checked(text)))


def needed_columns(text: str) -> list[str]:
    """Column names as written; of paths the first part. Empty for text that is not allowed."""
    from ottla.pipelines.expressions.tree import columns_of  # noqa: PLC0415 (see _read)

    found = _read(text)
    return [] if isinstance(found, SqlError) else list(dict.fromkeys(columns_of(found)))


def names_in(text: str) -> set[str]:
    """All names in an allowed expression, in lower case: columns, fields, functions, parameters."""
    from sqlglot import exp  # noqa: PLC0415 (see _read)

    return {node.name.lower() for node in checked(text).find_all(exp.Identifier)}


def words_of_spark(text: str) -> set[str]:
    """The names in an allowed expression that Spark reads as the clock or as a fact about the session, where there is
    no column of that name. `current_timestamp` and the like are meant so, unless they are in backticks."""
    from sqlglot import exp  # noqa: PLC0415 (see _read)

    from ottla.pipelines.expressions.tree import (  # noqa: PLC0415 (see _read)
        CLOCKS_WITHOUT_BRACKETS,
        WITHOUT_BRACKETS,
        is_parameter,
    )

    columns = checked(text).find_all(exp.Column)
    alone = [node.this for node in columns if not node.args.get("table") and not is_parameter(node, node.name)]
    names = [each for each in alone if isinstance(each, exp.Identifier) and each.name.upper() in WITHOUT_BRACKETS]
    return {each.name for each in names if each.args.get("quoted") or each.name.lower() not in CLOCKS_WITHOUT_BRACKETS}


def keeps_something(text: str) -> bool:
    """Whether an allowed expression calls a function that keeps something between rows, also if it fails."""
    from sqlglot import exp  # noqa: PLC0415 (see _read)

    calls = checked(text).find_all(exp.Anonymous)
    return any(call.name.lower() in WITH_BUFFER or _keeps_format(call) for call in calls)


def _keeps_format(call: exp.Anonymous) -> bool:
    """Spark stores the format of a row before it checks it: the next row would be taken for a good one."""
    from sqlglot import exp  # noqa: PLC0415 (see _read)

    return call.name.lower() == "format_number" and not all(
        isinstance(each, exp.Literal) for each in call.expressions[1:]
    )


@lru_cache(KEPT)
def _read(text: str) -> exp.Expr | SqlError:
    # sqlglot takes 0.1 s to import: only pipelines with expressions pay for it.
    from ottla.pipelines.expressions.tree import check, check_row, parse_expression  # noqa: PLC0415

    try:
        tree = parse_expression(text)
        check(tree)
        check_row(tree)
    except SqlError as problem:
        return problem
    return tree
