"""Splits SQL into sqlglot's tokens, with limits, and without what Spark's lexer would read in another way.

Only the words that our grammar gives a meaning are keywords; all others are names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar, Final

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from ottla.pipelines.expressions.problems import SqlError

LENGTH_MAX: Final = 50_000
TOKENS_MAX: Final = 5_000
DEPTH_MAX: Final = 60  # nested brackets: Spark's parser recurses for each
KEPT: Final = {
    "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "WINDOW", "ORDER BY", "SORT BY", "CLUSTER BY", "DISTRIBUTE BY",
    "PARTITION BY", "GROUPING SETS", "ROLLUP", "CUBE", "LIMIT", "OFFSET", "UNION", "EXCEPT", "INTERSECT", "MINUS",
    "WITH", "AS", "DISTINCT", "ALL", "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "OUTER", "SEMI", "ANTI",
    "NATURAL", "ON", "USING", "LATERAL", "VIEW", "OVER", "FILTER", "ROWS", "RANGE", "BETWEEN", "AND", "OR", "NOT",
    "IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "IS", "NULL", "TRUE", "FALSE", "CASE", "WHEN", "THEN", "ELSE", "END",
    "ASC", "DESC",
}  # fmt: skip
SYMBOLS: Final = {"||", "|>", ">=", "<=", "<>", "!=", "==", "<=>", "::", "->", "=>", "/*+"}
REFUSED_SYMBOLS: Final = {
    TokenType.SEMICOLON: "has a semicolon: one statement is all that is allowed",
    TokenType.PIPE_GT: "uses |>, which is not allowed",
    TokenType.HINT: "has a hint: leave it out",
}
ALLOWED_SYMBOLS: Final = set("()[],.+-*/%=<>!&|^~:") | (SYMBOLS - {"|>", "/*+"})
DELIMITED: Final = {TokenType.STRING, TokenType.RAW_STRING, TokenType.IDENTIFIER, TokenType.HEX_STRING}
NO_WORDS: Final = {*DELIMITED, TokenType.NUMBER, TokenType.SENTINEL}  # the sentinel is behind the last token
BLANK: Final = re.compile(r"[ \t\r\n]*")
COMMENTS: Final = re.compile(r"(?:[ \t\r\n]|--[^\r\n]*(?<!\\)(?=[\r\n]|\Z)|/\*(?!\+)(?:(?!/\*|\*/).)*\*/)*", re.DOTALL)
NUMBER: Final = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:E[+-]?\d+)?(?:BD|[LSYDF])?", re.IGNORECASE)
BRACKETS: Final = {"(": ")", "[": "]"}


class SparkSql(Spark):
    """Spark's dialect with few keywords. Number suffixes stay part of the number."""

    INTERSECT_BINDS_TIGHTER_THAN_UNION_AND_EXCEPT = True

    class Tokenizer(Spark.Tokenizer):
        NUMERIC_LITERALS: ClassVar = {}
        COMMANDS: ClassVar = set()
        KEYWORDS: ClassVar = {
            word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word in KEPT or word in SYMBOLS
        }


def tokenize(text: str, *, has_comments: bool = True) -> list[Token]:
    """Without blanks and comments. Raises SqlError."""
    if len(text) > LENGTH_MAX:
        raise SqlError(f"is longer than {LENGTH_MAX} characters")
    try:
        tokens = SparkSql().tokenize(text)
    except TokenError:
        raise _unclosed(text) from None
    if len(tokens) > TOKENS_MAX:
        raise SqlError(f"has more than {TOKENS_MAX} parts")
    _check_gaps(text, tokens, has_comments)
    tokens = list(_merged(text, tokens))
    for token in tokens:
        _check_token(text, token)
    _check_brackets(tokens)
    return tokens


def is_word(token: Token) -> bool:
    """Whether it is a keyword or a name without quotes."""
    return token.token_type not in NO_WORDS and bool(re.fullmatch(r"[^\W\d][\w ]*|\d+\w*[^\W\d]\w*", token.text))


def word_of(token: Token) -> str:
    """In upper case, for words without quotes; otherwise empty."""
    return token.text.upper() if is_word(token) else ""


def _check_gaps(text: str, tokens: list[Token], has_comments: bool) -> None:
    """Between tokens only blanks and plain comments: what sqlglot skips, Spark could read."""
    end = 0
    for begin, after in [*((token.start, token.end + 1) for token in tokens), (len(text), len(text))]:
        if begin < end:  # parts of one number
            continue
        gap = text[end:begin]
        if not BLANK.fullmatch(gap):
            if not has_comments and ("--" in gap or "/*" in gap):
                raise SqlError("has a comment, or -- in it: write comments with # in the YAML file", end)
            if not COMMENTS.fullmatch(gap):
                if gap.count("/*") > 1 or "--" in gap:
                    raise SqlError("has a comment in a comment", end)
                character = gap.strip(" \t\r\n")[:1]
                raise SqlError(f"has {character!r} at character {end + 1}, which is not SQL", end)
        end = after


def _merged(text: str, tokens: list[Token]) -> Iterator[Token]:
    """Strings that stand beside each other are one, as in Spark; so are the parts of a number."""
    last: Token | None = None
    for token in tokens:
        if last is not None:
            merged = _joined(text, last, token)
            if merged is not None:
                last = merged
                continue
            yield last
        is_number = token.token_type == TokenType.VAR and NUMBER.fullmatch(token.text)
        last = _token(TokenType.NUMBER, token.text, token, token) if is_number else token
    if last is not None:
        yield last


def _joined(text: str, one: Token, two: Token) -> Token | None:
    strings = (TokenType.STRING, TokenType.RAW_STRING)
    is_adjacent = one.end + 1 == two.start
    if one.token_type in strings and two.token_type in strings:
        quote = text[two.start]
        is_doubled = is_adjacent and one.token_type == two.token_type == TokenType.STRING and text[one.end] == quote
        return _token(TokenType.STRING, one.text + (quote if is_doubled else "") + two.text, one, two)
    is_number = one.token_type == TokenType.NUMBER or (one.text == "." and one.token_type == TokenType.DOT)
    whole = text[one.start : two.end + 1]
    if is_number and is_adjacent and two.token_type in (TokenType.NUMBER, TokenType.VAR) and NUMBER.fullmatch(whole):
        return _token(TokenType.NUMBER, whole, one, two)
    return None


def _token(kind: TokenType, text: str, one: Token, two: Token) -> Token:
    return Token(kind, text, one.line, one.col, one.start, two.end)


def _check_token(text: str, token: Token) -> None:
    kind = token.token_type
    if kind in REFUSED_SYMBOLS:
        raise SqlError(REFUSED_SYMBOLS[kind], token.start)
    if kind in DELIMITED:
        if kind == TokenType.HEX_STRING and text[token.start] == "0":  # a name in Spark, not a number
            raise SqlError(f"has {text[token.start : token.end + 1]!r}, which is not a number", token.start)
        if kind == TokenType.IDENTIFIER and ("${" in token.text or not token.text or text[token.start] != "`"):
            raise SqlError(f"has the name {token.text!r}, which is not allowed", token.start)
        return
    if kind == TokenType.NUMBER:
        if not NUMBER.fullmatch(token.text):
            raise SqlError(f"has {token.text!r}, which is not a number", token.start)
        return
    if token.text in ALLOWED_SYMBOLS or is_word(token):
        return
    character = next((each for each in token.text if not each.isalnum() and each not in "_."), token.text[:1])
    raise SqlError(f"has {character!r} at character {token.start + 1}, which is not SQL", token.start)


def _check_brackets(tokens: list[Token]) -> None:
    open_ones: list[Token] = []
    for token in tokens:
        if token.token_type in DELIMITED:
            continue
        if token.text in BRACKETS:
            open_ones.append(token)
            if len(open_ones) > DEPTH_MAX:
                raise SqlError(f"has brackets nested deeper than {DEPTH_MAX}", token.start)
        elif token.text in (")", "]") and (not open_ones or BRACKETS[open_ones.pop().text] != token.text):
            raise SqlError("has a closing bracket too many", token.start)
    if open_ones:
        raise SqlError("has a bracket that is never closed", open_ones[-1].start)


def _unclosed(text: str) -> SqlError:
    """sqlglot found no end of a quote or comment: the first one that never ends."""
    place = 0
    while place < len(text):
        found = re.compile(
            r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\r\n]*|/\*.*?\*/|[^'"`]""", re.DOTALL
        ).match(text, place)
        if found is None or (found[0] == "/" and text.startswith("/*", place)):
            what = "comment" if text.startswith("/*", place) else f"quote ({text[place]})"
            return SqlError(f"has a {what} that is never closed", place)
        place = found.end()
    return SqlError("cannot be read as SQL")
