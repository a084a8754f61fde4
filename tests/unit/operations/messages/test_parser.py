"""Search expressions: their syntax trees, and readable syntax errors."""

from __future__ import annotations

import contextlib
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.operations.messages.expressions.parser import DEPTH_MAX, TERMS_MAX, ExpressionError, parse
from ottla.operations.messages.expressions.syntax import (
    EVERYTHING,
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

A, B, C = Text("a"), Text("b"), Text("c")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("", EVERYTHING),
        ("a", A),
        ("a b", And((A, B))),
        ("a and b or c", Or((And((A, B)), C))),
        ("a and (b or c)", And((A, Or((B, C))))),
        ("not a b", And((Not(A), B))),
        ("not not a", Not(Not(A))),
        ('"a b"', Text("a b")),
        (r'"\"\u00fc\n\ud83d\ude00"', Text('"ü\n😀')),
        ("'and'", Text("and")),
        ("user@example.com", Text("user@example.com")),
        ("wow!", Text("wow!")),
        ("/a\\/b/i", Pattern("a/b", True)),
        ("key ~ /^x/", Pattern("^x", False, Field("key"))),
        ("value.a !~ /x/", Not(Pattern("x", False, Field("value", ("a",))))),
        ("key=x", Compare(Field("key"), "=", Literal(LiteralKind.STRING, "x"))),
        ("key == 'x'", Compare(Field("key"), "=", Literal(LiteralKind.STRING, "x"))),
        (
            "value.a >= -1.5e3",
            Compare(Field("value", ("a",)), ">=", Literal(LiteralKind.NUMBER, "-1.5e3", Decimal(-1500))),
        ),
        ("value.a != null", Not(Compare(Field("value", ("a",)), "=", Literal(LiteralKind.NULL, "null")))),
        ('value."a.b".c = true', Compare(Field("value", ("a.b", "c")), "=", Literal(LiteralKind.BOOLEAN, "true"))),
        ("header.x.y = 1", Compare(Field("header", ("x.y",)), "=", Literal(LiteralKind.NUMBER, "1", Decimal(1)))),
        ("offset < 5", Compare(Field("offset"), "<", Literal(LiteralKind.NUMBER, "5", Decimal(5)))),
        (
            "time > 1970-01-01T00:00:01Z",
            Compare(Field("timestamp"), ">", Literal(LiteralKind.NUMBER, "1970-01-01T00:00:01Z", Decimal(1000))),
        ),
    ],
)
def test_trees(text: str, tree: Expression) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"a', "has no end"),
        ("(a", "the bracket has no end"),
        ("a)", r"'\)' was not expected"),
        ("a or", "something is missing at the end"),
        ("and a", "'and' was not expected"),
        ("key =", "the value to compare"),
        ("= 5", "'=' was not expected"),
        ("user.id = 5", "is not a field"),
        ("value. = 5", "is not a field"),
        ("value..a = 5", "empty name"),
        ("header = 5", "is not a field"),
        ("key ~ x", "between slashes"),
        ("offset ~ /5/", "is a number"),
        ("offset = x", "offset is a number"),
        ("time > yesterday", "is not a time"),
        ("value.a < null", "use = or !="),
        ("/(/", "not an RE2 expression"),
        (r"/(a)\1/", "not an RE2 expression"),
        ("/a/x", "only flag of an expression is i"),
        ("/api/v1", "put text with slashes in quotes"),
        ('""', "an empty text matches everything"),
        (r'"\ud800"', "surrogate"),
        ("(" * (DEPTH_MAX + 1) + "a" + ")" * (DEPTH_MAX + 1), "nested deeper"),
        ("not " * (DEPTH_MAX + 1) + "a", "nested deeper"),
        ("a " * (TERMS_MAX + 1), "more than 100 terms"),
        ("a" * 5000, "longer than 4096"),
    ],
)
def test_mistakes_are_sentences_with_a_position(text: str, words: str) -> None:
    with pytest.raises(ExpressionError, match=words) as caught:
        parse(text)
    assert "(at character " in str(caught.value)


@given(st.text(max_size=60))
def test_nothing_but_expression_errors_comes_out(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        parse(text)
