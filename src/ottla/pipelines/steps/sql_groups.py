"""The columns of its result by which a SELECT groups: there is one row for each of their values.

Only what is certain from the text: the outermost SELECT has a GROUP BY, and each of its expressions is in the select
list, word for word. Other forms (set operators, ROLLUP, column numbers, table-generating functions) are unknown, which
is always safe.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.pipelines.steps.sql_query import SET_OPERATORS, TABLE_FUNCTIONS, WITH_BY, WITHOUT_COMMA
from ottla.pipelines.steps.sql_tokens import SqlError, Token, tokenize

SEVERAL_GROUPS = {"ROLLUP", "CUBE", "GROUPING", "WITH", "ALL"}
AFTER_GROUPS = {*WITH_BY, *WITHOUT_COMMA, *SET_OPERATORS, "WINDOW"}

Part = list[Token]


def grouping_columns(text: str) -> set[str] | None:
    """None if unknown."""
    try:
        tokens = tokenize(text)
    except SqlError:
        return None
    outer = list(_outer_words(tokens))
    selects = [place for place, word in outer if word == "SELECT"]
    groups = [place for place, word in outer if word == "GROUP" and _word_at(tokens, place + 1) == "BY"]
    if len(selects) != 1 or len(groups) != 1 or any(word in SET_OPERATORS for _, word in outer):
        return None
    from_ = next((place for place, word in outer if word == "FROM" and place > selects[0]), len(tokens))
    end = next((place for place, word in outer if word in AFTER_GROUPS and place > groups[0]), len(tokens))
    return _named(tokens[selects[0] + 1 : from_], tokens[groups[0] + 2 : end])


def _named(selected: Part, grouped: Part) -> set[str] | None:
    if any(token.name in TABLE_FUNCTIONS for token in selected) or any(
        token.word in SEVERAL_GROUPS for token in grouped
    ):
        return None
    names = dict(filter(None, map(_output, _parts(selected))))
    groups = [_signature(part) for part in _parts(grouped)]
    if any(group not in names or group[0].isdigit() for group in groups):
        return None
    return {names[group] for group in groups}


def _output(part: Part) -> tuple[tuple[str, ...], str] | None:
    """Expression and name of one entry of a select list."""
    if len(part) > 2 and part[-2].word == "AS" and part[-1].name:
        return _signature(part[:-2]), _plain(part[-1])
    if part and part[-1].name and (len(part) == 1 or part[-2].is_symbol(".")):
        return _signature(part), _plain(part[-1])
    return None


def _signature(part: Part) -> tuple[str, ...]:
    return tuple(token.name or token.text for token in part)


def _plain(token: Token) -> str:
    return token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text


def _word_at(tokens: list[Token], place: int) -> str:
    return tokens[place].word if place < len(tokens) else ""


def _outer_words(tokens: list[Token]) -> Iterator[tuple[int, str]]:
    depth = 0
    for place, token in enumerate(tokens):
        depth += token.is_symbol("(") - token.is_symbol(")")
        if depth == 0 and token.word:
            yield place, token.word


def _parts(tokens: Part) -> Iterator[Part]:
    """Split at commas outside of brackets."""
    depth = 0
    part: Part = []
    for token in tokens:
        depth += (token.is_symbol("(") or token.is_symbol("[")) - (token.is_symbol(")") or token.is_symbol("]"))
        if depth == 0 and token.is_symbol(","):
            yield part
            part = []
        else:
            part.append(token)
    yield part
