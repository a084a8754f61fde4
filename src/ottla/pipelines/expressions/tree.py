"""SQL as a tree: text is read once, checked, and written again for Spark, which never sees the user's text.

    tree = parse_expression("amount * 1.19")    a tree of sqlglot; raises SqlError
    check(tree)                                 only what an expression may do
    check_replayable(tree)                      and nothing that a replay would decide otherwise
    to_spark(tree)                              text for Spark's expr()

Pipeline files may come from untrusted sources, and Spark's SQL can call Java, start programs and read any file. So
functions and forms are allowed one by one (functions.tsv, writer.py); all others are refused.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlglot import exp
from sqlglot.errors import SqlglotError

from ottla.pipelines.expressions.folding import check_times
from ottla.pipelines.expressions.functions import kind_of, problem_of
from ottla.pipelines.expressions.grammar import Parser
from ottla.pipelines.expressions.lexer import SparkSql, tokenize
from ottla.pipelines.expressions.problems import SqlError
from ottla.pipelines.expressions.writer import Piece, check_faithful, to_text, write

FRAMES_MAX = 30_000  # of Python; brackets and prefixes are nested by recursion
LOCK = threading.RLock()  # the limit is that of all threads
CLOCKS_WITHOUT_BRACKETS = {"current_timestamp", "current_date", "localtimestamp"}
WITHOUT_BRACKETS = {  # functions, if there is no column of this name
    "CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER", "LOCALTIMESTAMP", "SESSION_USER", "USER",
    "CURRENT_CATALOG", "CURRENT_DATABASE", "CURRENT_SCHEMA",
}  # fmt: skip
TIME_OF_DAY = "current_time"  # not the batch's time, unlike the other clocks: a repeated batch gets another one
WINDOWS = {"window", "session_window"}
NESTED_MAX = 1_000  # forms in one another: Spark's parser recurses for each


def parse_expression(text: str) -> exp.Expr:
    """Raises SqlError for what is not one expression; a tree is not checked yet."""
    tokens = tokenize(text, has_comments=False)
    if not tokens:
        raise SqlError("is empty")
    with deep_recursion():
        tree = Parser(dialect=SparkSql).expression_of(tokens, text)
        if tree.find(exp.Query) is not None:
            raise SqlError("uses SELECT: subqueries are not allowed here (a column of that name needs `backticks`)")
        check_depth(tree)
        check_faithful(tokens, write(tree))
    return tree


def check(tree: exp.Expr) -> None:
    """Raises SqlError for functions that are not allowed, and for times that are computed once for all rows."""
    for node in tree.walk():
        if isinstance(node, exp.Anonymous):
            problem = problem_of(node.name, len(node.expressions))
            if problem:
                raise SqlError(problem, node.meta.get("start"))
        if _name(node) == TIME_OF_DAY:
            raise SqlError(
                f"asks for the time ({TIME_OF_DAY}): a repeated batch would get another one;"
                " use date_format(current_timestamp(), 'HH:mm:ss') (a column of that name needs `backticks`)",
                node.meta.get("start"),
            )
    with deep_recursion():
        check_times(tree)


def check_row(tree: exp.Expr) -> None:
    """Raises SqlError for windows: outside of GROUP BY, Spark drops rows without a time, and doubles rows in windows
    that overlap. And for *, which would read the columns of the pipeline itself."""
    for node in tree.walk():
        if isinstance(node, exp.Star) and not _is_part_of(node):
            raise SqlError("uses *: name the columns", node.meta.get("start"))
        if isinstance(node, exp.Anonymous) and node.name.lower() in WINDOWS:
            raise SqlError(
                f"calls {node.name.lower()}(), which drops or doubles rows here; use date_trunc() or the `window` step",
                node.meta.get("start"),
            )


def _is_part_of(star: exp.Star) -> bool:
    """count(*), and the fields of a struct: s.*"""
    parent = star.parent
    if isinstance(parent, exp.Column):
        return bool(parent.args.get("table"))
    return isinstance(parent, exp.Anonymous) and parent.name.lower() == "count"


def check_replayable(tree: exp.Expr) -> None:
    """Raises SqlError also for the clock."""
    check(tree)
    clock = next(clocks(tree), None)
    if clock is not None:
        raise SqlError(f"asks for the time ({clock}): a replay would decide otherwise; compare columns instead")


def clocks(tree: exp.Expr) -> Iterator[str]:
    """The functions in this tree whose value is the time of the batch."""
    for node in tree.walk():
        name = _name(node)
        kind = kind_of(name)
        is_call = isinstance(node, exp.Anonymous)
        if (is_call and kind == "clock without arguments" and not node.expressions) or (
            kind == "clock" and (is_call or name in CLOCKS_WITHOUT_BRACKETS)
        ):
            yield name


def columns_of(tree: exp.Expr) -> Iterator[str]:
    """The columns that an expression reads; of paths the first part."""
    for node in tree.find_all(exp.Column, bfs=False):
        name = next(node.args[key] for key in ("catalog", "db", "table", "this") if node.args.get(key))
        is_column = isinstance(name, exp.Identifier) and not is_parameter(node, name.name)
        if is_column and _name(node).upper() not in WITHOUT_BRACKETS:
            yield name.name


def is_parameter(node: exp.Expr, name: str) -> bool:
    """Whether the name is a parameter of a lambda around it."""
    while node.parent is not None:
        node = node.parent
        if isinstance(node, exp.Lambda) and any(each.name.lower() == name.lower() for each in node.expressions):
            return True
    return False


def to_spark(tree: exp.Expr) -> str:
    """The text of this expression for Spark."""
    with deep_recursion():
        return to_text(write(tree))


def _name(node: exp.Expr) -> str:
    """In lower case, of a call or of a column that stands alone without quotes; otherwise empty."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    is_alone = isinstance(node, exp.Column) and not node.args.get("table") and isinstance(node.this, exp.Identifier)
    return node.name.lower() if is_alone and not node.this.args.get("quoted") else ""


@contextmanager
def deep_recursion() -> Iterator[None]:
    """For trees as deep as the limits of lexer.py allow. Raises SqlError if one is deeper."""
    with LOCK:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(max(before, FRAMES_MAX))
        try:
            yield
        except RecursionError:
            raise SqlError("is nested too deeply") from None
        except (SqlglotError, IndexError, AttributeError, TypeError):  # sqlglot on hostile text
            raise SqlError("cannot be read as SQL") from None
        finally:
            sys.setrecursionlimit(before)


def check_depth(tree: exp.Expr) -> None:
    """Raises SqlError. Sums and other chains of one operator are not deep."""
    waiting = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > NESTED_MAX:
            raise SqlError(f"is nested deeper than {NESTED_MAX}")
        is_chain = isinstance(node, exp.Binary)
        waiting += [
            (child, depth + (not (is_chain and type(child) is type(node)))) for child in node.iter_expressions()
        ]


__all__ = ["Piece", "SqlError", "check", "check_replayable", "clocks", "parse_expression", "to_spark"]
