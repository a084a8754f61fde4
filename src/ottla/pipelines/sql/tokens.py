"""Splits SQL into tokens like Spark's lexer, and more strictly where the text is ambiguous."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from ottla.pipelines.expressions.problems import SqlError

LENGTH_MAX = 50_000
TOKENS_MAX = 5_000
DEPTH_MAX = 60  # nested brackets: Spark's parser recurses for each
PIECES = re.compile(
    r"""
    (?P<blank>[ \t\r\n]+)
  | (?P<comment>--[^\r\n]*|/\*.*?\*/)
  | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
  | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
  | (?P<quoted>`(?:[^`]|``)+`)
  | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:BD|[lLsSyYdDfF])?(?!\w))
  | (?P<word>\w+)
  | (?P<symbol>->|=>|<=>|<=|>=|<>|!=|==|<<|>>>|>>|\|\||::|\|>|[()\[\],.+\-*/%=<>!&|^~:;])
    """,
    re.VERBOSE | re.DOTALL,
)

Kind = Literal["raw", "string", "quoted", "number", "word", "symbol"]


class Token(NamedTuple):
    kind: Kind
    text: str
    start: int = 0  # position in the text

    @property
    def word(self) -> str:
        """In upper case, for unquoted words; otherwise empty."""
        return self.text.upper() if self.kind == "word" else ""

    @property
    def name(self) -> str:
        """The name in lower case, quoted or not; otherwise empty."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`").lower()
        return self.text.lower() if self.kind == "word" else ""

    def is_symbol(self, text: str) -> bool:
        return self.kind == "symbol" and self.text == text


END = Token("symbol", "")


def tokenize(text: str) -> list[Token]:
    """Without blanks and comments. Raises SqlError."""
    if len(text) > LENGTH_MAX:
        raise SqlError(f"is longer than {LENGTH_MAX} characters")
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = PIECES.match(text, position)
        if match is None:
            raise _at(position, _unknown(text[position], position))
        if match[0] == "/" and text.startswith("/*", position):
            raise _at(position, SqlError("has a comment that is never closed"))
        _check_piece(match)
        if match.lastgroup not in ("blank", "comment"):
            tokens.append(Token(match.lastgroup, match[0], position))  # type: ignore[arg-type]
        position = match.end()
    if len(tokens) > TOKENS_MAX:
        raise SqlError(f"has more than {TOKENS_MAX} parts")
    _check_brackets(tokens)
    return tokens


def _unknown(character: str, position: int) -> SqlError:
    if character in "'\"`":
        return SqlError(f"has a quote ({character}) that is never closed")
    return SqlError(f"has {character!r} at character {position + 1}, which is not SQL")


def _at(position: int, problem: SqlError) -> SqlError:
    problem.at = position
    return problem


def _check_piece(match: re.Match[str]) -> None:
    if match.lastgroup == "comment" and (
        match[0].count("/*") > 1 or (match[0].startswith("--") and match[0].endswith("\\"))
    ):
        raise _at(match.start(), SqlError("has a comment in a comment"))
    if match[0] == ";":
        raise _at(match.start(), SqlError("has a semicolon: one statement is all that is allowed"))
    if match[0] == "|>":
        raise _at(match.start(), SqlError("uses |>, which is not allowed"))


def _check_brackets(tokens: list[Token]) -> None:
    open_ones: list[Token] = []
    for token in tokens:
        if token.kind != "symbol":
            continue
        if token.text in ("(", "["):
            open_ones.append(token)
            if len(open_ones) > DEPTH_MAX:
                raise _at(token.start, SqlError(f"has brackets nested deeper than {DEPTH_MAX}"))
        elif token.text in (")", "]") and (not open_ones or open_ones.pop().text != {")": "(", "]": "["}[token.text]):
            raise _at(token.start, SqlError("has a closing bracket too many"))
    if open_ones:
        raise _at(open_ones[-1].start, SqlError("has a bracket that is never closed"))
