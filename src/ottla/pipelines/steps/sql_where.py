"""The WHERE of a query over the stream alone, so that removed rows can be counted.

If a query has one SELECT from the stream and nothing else, rows that its WHERE removes are filtered. With several
tables a row of the stream has no single result.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.pipelines.steps.sql_query import JOINS, NO_ALIAS, STREAM, WITH_BY
from ottla.pipelines.steps.sql_tokens import END, Token, tokenize

# Spark's observations exclude nondeterministic expressions.
UNSTEADY = {"rand", "randn", "random", "uuid", "shuffle", "monotonically_increasing_id", "spark_partition_id"}


class Where(NamedTuple):
    """`alias` is the query's alias of the stream."""

    condition: str
    alias: str


def where_of(text: str) -> Where | None:
    """None if there is no WHERE, or it does not concern the stream's rows alone."""
    tokens = tokenize(text)
    words = [token.word for token in tokens]
    if words.count("SELECT") != 1 or "WITH" in words or {*words} & JOINS & {"JOIN", "LATERAL"}:
        return None
    outer = _outer(tokens)
    place = next((at for at in outer if tokens[at].word == "FROM" and _at(tokens, at + 1).name == STREAM), None)
    if place is None:
        return None
    place, alias = _alias(tokens, place + 2)
    if _at(tokens, place).word != "WHERE":
        return None
    end = next((at for at in outer if at > place and _ends_condition(tokens, at)), len(tokens))
    condition = tokens[place + 1 : end]
    if not condition or {token.name for token in condition} & UNSTEADY:
        return None
    return Where(" ".join(token.text for token in condition), alias)


def _outer(tokens: list[Token]) -> list[int]:
    """The positions outside of all brackets."""
    found: list[int] = []
    depth = 0
    for place, token in enumerate(tokens):
        depth += token.is_symbol("(") + token.is_symbol("[") - token.is_symbol(")") - token.is_symbol("]")
        if depth == 0:
            found.append(place)
    return found


def _alias(tokens: list[Token], place: int) -> tuple[int, str]:
    """The position after the alias, and the alias."""
    place += _at(tokens, place).word == "AS"
    token = _at(tokens, place)
    return (place + 1, token.name) if token.name and token.word not in NO_ALIAS else (place, STREAM)


def _ends_condition(tokens: list[Token], place: int) -> bool:
    """Nearly every keyword may also be a column: every record has `offset`."""
    word, after = tokens[place].word, _at(tokens, place + 1)
    if _at(tokens, place - 1).is_symbol("."):
        return False
    if word in WITH_BY:
        return after.word == "BY"
    if word in ("LIMIT", "OFFSET"):
        return after.kind == "number" or after.word == "ALL"
    return word == "HAVING" or (word == "WINDOW" and _at(tokens, place + 2).word == "AS")


def _at(tokens: list[Token], place: int) -> Token:
    return tokens[place] if 0 <= place < len(tokens) else END
