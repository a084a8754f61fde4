"""Parser of search expressions. The grammar is our own: nothing from the input is ever executed.

    expression   any ("or" any)*
    any          one (["and"] one)*                     adjacent terms are joined by "and"
    one          "not" one | "(" expression ")" | term
    term         word | "quoted text" | /RE2/ | /RE2/i | field sign literal | field ~ /RE2/ | field !~ /RE2/
    sign         = == != < <= > >=
    field        key | value | key.path | value.path | header.name | offset | partition | timestamp
    path         name or "quoted name", separated by dots; every element of an array is tried, a number selects one
    literal      42 | "text" | word | true | false | null; for a timestamp also 2026-11-15T08:00:00Z

Rules:
1. Every syntax error is an ExpressionError with the position and a correction.
2. Length, depth and number of terms are bounded, and patterns are RE2, so evaluation takes linear time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from ottla.base.regular_expressions import PatternError, compile_pattern
from ottla.operations.messages.expressions.syntax import (
    EVERYTHING,
    HEADER,
    KEY,
    POSITION_FIELDS,
    TIMESTAMP,
    VALUE,
    And,
    Compare,
    Expression,
    Field,
    Literal,
    LiteralKind,
    Not,
    Or,
    Pattern,
    Text,
)

LENGTH_MAX = 4096
DEPTH_MAX = 40
TERMS_MAX = 100
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<quoted>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*')
      | (?P<pattern>/(?:[^/\\\n]|\\.)+/[a-z]*)
      | (?P<sign>!~|!=|==|<=|>=|=|<|>|~)
      | (?P<bracket>[()])
      | (?P<word>(?:[^\s"'()=<>!~/] | [!/](?![=~]))(?:[^\s"'()=<>!~] | "(?:[^"\\]|\\.)*" | !(?![=~]))*)""",
    re.VERBOSE | re.DOTALL,
)
_PIECE = re.compile(r'"((?:[^"\\]|\\.)*)"|([^."]+)', re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}
_WORDS = frozenset({"and", "or", "not"})


class ExpressionError(ValueError):
    """A syntax error; str() is a sentence, `position` counts from 0."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} (at character {position + 1})")
        self.position = position


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def parse(text: str) -> Expression:
    """Parse an expression; an empty one matches every message. Raises ExpressionError."""
    if len(text) > LENGTH_MAX:
        raise ExpressionError(f"the expression is longer than {LENGTH_MAX} characters", LENGTH_MAX)
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise ExpressionError("half of a surrogate pair is not text", problem.start) from None
    tokens = _tokens(text)
    if not tokens:
        return EVERYTHING
    parser = _Parser(tokens, len(text))
    found = parser.parse_or(0)
    if parser.index < len(tokens):
        left = tokens[parser.index]
        raise ExpressionError(f"{left.text!r} was not expected", left.position)
    return found


def _tokens(text: str) -> list[_Token]:
    found = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ExpressionError(_unexpected_message(text[position]), position)
        kind = str(match.lastgroup)
        if kind == "pattern" and match.end() < len(text) and text[match.end()] not in " \t\r\n)":
            raise ExpressionError("an expression between slashes ends here; put text with slashes in quotes", position)
        if kind != "space":
            found.append(_Token(kind, match.group(), position))
        position = match.end()
    return found


def _unexpected_message(character: str) -> str:
    if character in "\"'":
        return f"the text after {character} has no end: close the quote, or write \\{character} inside quotes"
    return f"{character!r} was not expected: put text with such characters in quotes"


class _Parser:
    """Recursive descent over the tokens."""

    def __init__(self, tokens: list[_Token], end: int) -> None:
        self.tokens = tokens
        self.end = end
        self.index = 0
        self.terms = 0

    def parse_or(self, depth: int) -> Expression:
        parts = [self._parse_and(depth)]
        while self._accept("or"):
            parts.append(self._parse_and(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _parse_and(self, depth: int) -> Expression:
        parts = [self._parse_factor(depth)]
        while True:
            if not self._accept("and") and (self._peek() is None or self._is("or") or self._is(")")):
                return parts[0] if len(parts) == 1 else And(tuple(parts))
            parts.append(self._parse_factor(depth))

    def _parse_factor(self, depth: int) -> Expression:
        token = self._peek()
        if token is None:
            raise ExpressionError("something is missing at the end", self.end)
        if depth >= DEPTH_MAX:
            raise ExpressionError(f"brackets and nots are nested deeper than {DEPTH_MAX}", token.position)
        if self._accept("not"):
            return Not(self._parse_factor(depth + 1))
        if self._accept("("):
            inner = self.parse_or(depth + 1)
            if not self._accept(")"):
                raise ExpressionError("the bracket has no end", token.position)
            return inner
        self.terms += 1
        if self.terms > TERMS_MAX:
            raise ExpressionError(f"there are more than {TERMS_MAX} terms", token.position)
        return self._term()

    def _term(self) -> Expression:
        token = self._advance()
        match token.kind:
            case "quoted":
                return Text(_text(_unquoted(token), token))
            case "pattern":
                return _pattern(token, None)
            case "word" if token.text not in _WORDS:
                following = self._peek()
                if following is None or following.kind != "sign":
                    return Text(token.text)
                return self._comparison(token)
        raise ExpressionError(f"{token.text!r} was not expected", token.position)

    def _comparison(self, name: _Token) -> Expression:
        field = _field(name)
        sign = self._advance()
        if self._peek() is None:
            raise ExpressionError(f"the value to compare {field} with is missing", self.end)
        operand = self._advance()
        if sign.text in ("~", "!~"):
            if operand.kind != "pattern":
                raise ExpressionError(f"{sign.text} needs an expression between slashes", operand.position)
            if field.part in POSITION_FIELDS:
                raise ExpressionError(f"{field} is a number: compare it with = < >", name.position)
            found: Expression = _pattern(operand, field)
            return Not(found) if sign.text == "!~" else found
        literal = _literal(field, operand)
        operator = {"==": "=", "!=": "="}.get(sign.text, sign.text)
        if operator != "=" and literal.kind in (LiteralKind.NULL, LiteralKind.BOOLEAN):
            raise ExpressionError(f"{literal.text} is not before or after anything: use = or !=", sign.position)
        found = Compare(field, operator, literal)
        return Not(found) if sign.text == "!=" else found

    def _peek(self) -> _Token | None:
        return self.tokens[self.index] if self.index < len(self.tokens) else None

    def _advance(self) -> _Token:
        token = self.tokens[self.index]
        self.index += 1
        return token

    def _is(self, word: str) -> bool:
        token = self._peek()
        return token is not None and token.kind in ("word", "bracket") and token.text == word

    def _accept(self, word: str) -> bool:
        if not self._is(word):
            return False
        self.index += 1
        return True


def _field(name: _Token) -> Field:
    part, dot, rest = name.text.partition(".")
    if part == "time":
        part = TIMESTAMP
    if part in POSITION_FIELDS and not dot:
        return Field(part)
    if part in (KEY, VALUE) and not dot:
        return Field(part)
    if part == HEADER and rest:
        quoted = _PIECE.fullmatch(rest)
        header = _unescaped(quoted.group(1)) if quoted and quoted.group(1) is not None else rest
        return Field(HEADER, (_text(header, name, can_be_empty=True),))
    if part in (KEY, VALUE) and rest:
        return Field(part, _path(rest, name))
    raise ExpressionError(
        f"{name.text!r} is not a field: use key, value, value.some.name, header.name, offset, partition and "
        "timestamp; put text with such characters in quotes",
        name.position,
    )


def _path(text: str, name: _Token) -> tuple[str, ...]:
    found = []
    position = 0
    while True:
        piece = _PIECE.match(text, position)
        if piece is None:
            raise ExpressionError(f"the path {name.text!r} has an empty name", name.position)
        step = _unescaped(piece.group(1)) if piece.group(1) is not None else piece.group(2)
        found.append(_text(step, name, can_be_empty=True))
        position = piece.end()
        if position == len(text):
            return tuple(found)
        if text[position] != ".":
            raise ExpressionError(f"dots are missing in the path {name.text!r}", name.position)
        position += 1


def _literal(field: Field, token: _Token) -> Literal:
    if token.kind == "quoted":
        text, is_bare = _text(_unquoted(token), token, can_be_empty=True), False
    elif token.kind == "word":
        text, is_bare = token.text, True
    else:
        raise ExpressionError(f"{field} is compared with a number or a text, not {token.text!r}", token.position)
    if field.part in POSITION_FIELDS:
        return Literal(LiteralKind.NUMBER, text, _place(field, text, token))
    if is_bare and text == "null":
        return Literal(LiteralKind.NULL, text)
    if is_bare and text in ("true", "false"):
        return Literal(LiteralKind.BOOLEAN, text)
    number = as_number(text) if is_bare else None
    return Literal(LiteralKind.STRING if number is None else LiteralKind.NUMBER, text, number)


def as_number(text: str) -> Decimal | None:
    """The number in JSON notation; None if the text is not a number."""
    if not NUMBER.fullmatch(text):
        return None
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent out of range
        return None


def _place(field: Field, text: str, token: _Token) -> Decimal:
    number = as_number(text)
    if number is not None:
        return number
    if field.part == TIMESTAMP:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            pass
        else:
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return Decimal(round(moment.timestamp() * 1000))
        raise ExpressionError(f"{text!r} is not a time: write 2026-11-15T08:00:00Z or milliseconds", token.position)
    raise ExpressionError(f"{field} is a number, not {text!r}", token.position)


def _pattern(token: _Token, field: Field | None) -> Pattern:
    body, _, flags = token.text[1:].rpartition("/")
    if flags not in ("", "i"):
        raise ExpressionError(f"the only flag of an expression is i, not {flags!r}", token.position)
    found = Pattern(body.replace("\\/", "/"), flags == "i", field)
    try:
        compile_pattern(found.pattern, is_case_blind=found.ignores_case)
    except PatternError as problem:
        raise ExpressionError(f"this is not an RE2 expression: {problem}", token.position) from None
    return found


def _unquoted(token: _Token) -> str:
    return _unescaped(token.text[1:-1])


def _text(text: str, token: _Token, can_be_empty: bool = False) -> str:
    if not text and not can_be_empty:
        raise ExpressionError("an empty text matches everything: leave it out", token.position)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ExpressionError("half of a surrogate pair is not text", token.position) from None
    return text


def _unescaped(text: str) -> str:
    """Resolve JSON escapes; surrogate pairs become one character."""

    def plain(match: re.Match[str]) -> str:
        name = match.group(1)
        return chr(int(name[1:], 16)) if len(name) == 5 else _ESCAPED.get(name, name)

    return _ESCAPE.sub(plain, text).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
