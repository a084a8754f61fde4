"""Constant texts in a tree: `concat('n', 'ow')` is 'now'.

Spark's own folding decides which texts become a time when a query starts, so everything constant that reaches a time is
either a text that is known here, or certainly no text, or refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from sqlglot import exp

from ottla.pipelines.expressions.grammar import Positive, TypedLiteral, Words
from ottla.pipelines.expressions.problems import SqlError

TIME_TYPES: Final = {"DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ"}
TIME_FUNCTIONS: Final = {
    "date", "timestamp", "to_date", "try_to_date", "to_timestamp", "try_to_timestamp", "to_timestamp_ltz",
    "to_timestamp_ntz", "timestamp_ntz", "timestamp_ltz", "try_make_timestamp",
}  # fmt: skip
# 'now', 'today', 'tomorrow', 'yesterday' are the clock; a time of day is completed with today.
CLOCK_TEXT: Final = re.compile(
    r"\s*(?:(?:now|today|tomorrow|yesterday)\b.*|T?\d{1,2}:\d{1,2}.*)\s*", re.DOTALL | re.IGNORECASE
)
FIXED_TEXT: Final = re.compile(r"\s*(?:[+-]?\d{4,7}(?:[-\sT].*)?|epoch\s*)", re.DOTALL | re.IGNORECASE)
NUMERIC: Final = (exp.Neg, Positive, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.Paren)
BLANK: Final = " "
TEXTS: Final[dict[str, Callable[..., str]]] = {
    "concat": lambda *texts: "".join(texts),
    "concat_ws": lambda separator, *texts: separator.join(texts),
    "lower": str.lower, "lcase": str.lower, "upper": str.upper, "ucase": str.upper,
    "trim": lambda text: text.strip(BLANK), "ltrim": lambda text: text.lstrip(BLANK),
    "rtrim": lambda text: text.rstrip(BLANK), "btrim": lambda text: text.strip(BLANK),
    "reverse": lambda text: text[::-1], "replace": lambda text, old, new="": text.replace(old, new) if old else text,
    "string": str, "coalesce": lambda first, *_: first, "nvl": lambda first, _: first, "ifnull": lambda first, _: first,
}  # fmt: skip


def check_times(tree: exp.Expr) -> None:
    """Reject times that are computed once for all rows. Raises SqlError."""
    for node in tree.walk():
        is_typed = isinstance(node, TypedLiteral) and node.this.name in TIME_TYPES
        if is_typed and not FIXED_TEXT.fullmatch(node.expression.name):
            raise _frozen(repr(node.expression.name), node.expression)
        for value in _cast_to_time(node):
            _check(value)


def folded(node: exp.Expr) -> str | None:
    """The text of a constant, if it is known here."""
    if isinstance(node, exp.Literal):
        return str(node.this) if node.is_string else None
    if isinstance(node, exp.Paren):
        return folded(node.this)
    if isinstance(node, exp.Cast):
        return folded(node.this) if node.args["to"].args["kind"].startswith("STRING") else None
    if isinstance(node, exp.DPipe):
        return _all([node.this, node.expression], TEXTS["concat"])
    if isinstance(node, exp.Anonymous) and node.name.lower() in TEXTS:
        return _all(node.expressions, TEXTS[node.name.lower()])
    return None


def _all(nodes: list[exp.Expr], function: Callable[..., str]) -> str | None:
    texts = [folded(node) for node in nodes]
    try:
        return None if None in texts else function(*texts)
    except TypeError:  # a wrong number of arguments, which Spark reports
        return None


def _cast_to_time(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.Cast) and node.args["to"].args["kind"] in TIME_TYPES:
        yield node.this
    elif isinstance(node, exp.Anonymous) and node.name.lower() in TIME_FUNCTIONS and len(node.expressions) == 1:
        yield node.expressions[0]


def _check(value: exp.Expr) -> None:
    text = folded(value)
    if text is not None:
        if CLOCK_TEXT.fullmatch(text):
            raise _frozen(repr(text), value)
        return
    if not _is_constant(value) or _is_no_text(value):
        return
    raise _frozen("a computed constant", value)


def _is_constant(node: exp.Expr) -> bool:
    return not any(isinstance(each, exp.Column | exp.Query | exp.Subquery) for each in node.walk())


def _is_no_text(node: exp.Expr) -> bool:
    """Numbers, null, times: not text that Spark could take for the clock."""
    if isinstance(node, exp.Null | TypedLiteral | Words):
        return True
    if isinstance(node, exp.Literal):
        return not node.is_string
    if isinstance(node, NUMERIC):
        return all(_is_no_text(each) for each in node.iter_expressions())
    if isinstance(node, exp.Cast):
        return not node.args["to"].args["kind"].startswith(("STRING", "CHAR", "VARCHAR", "BINARY", "VARIANT"))
    return isinstance(node, exp.Anonymous) and node.name.lower() in GIVES_TIME


def _frozen(what: str, node: exp.Expr) -> SqlError:
    place = next((each.meta["start"] for each in node.walk() if "start" in each.meta), None)
    return SqlError(
        f"has {what} as a time, which is computed once for all rows, when the query starts, and not for each batch:"
        " write a whole date, or use current_timestamp() or current_date()",
        place,
    )


GIVES_TIME: Final = TIME_FUNCTIONS | {
    "now", "current_timestamp", "current_date", "curdate", "localtimestamp", "make_date", "make_timestamp", "date_add",
    "date_sub", "dateadd", "timestampadd", "add_months", "last_day", "next_day", "date_trunc", "trunc",
    "timestamp_seconds", "timestamp_millis", "timestamp_micros", "date_from_unix_date", "make_timestamp_ntz",
    "make_timestamp_ltz", "from_utc_timestamp", "to_utc_timestamp", "int", "bigint", "double",
}  # fmt: skip
