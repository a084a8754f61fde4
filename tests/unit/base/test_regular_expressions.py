"""No pattern that is let through takes RE2 long to compile, whatever it is made of."""

from __future__ import annotations

import random
import time

import pytest

from ottla.base.regular_expressions import (
    CLIENT,
    AsciiPattern,
    PatternError,
    PatternTooLargeError,
    check_size,
    compile_pattern,
)

ATOMS = (
    "a",
    "b",
    ".",
    "[a-z]",
    "[^a]",
    r"\d",
    r"\W",
    r"\pL",
    "x|y",
    "é",
    r"\b",
    "^",
    "(?:)",
    "|",
    r"\.",
    "(?i)k",
    r"\Qa\E",
)
REPETITIONS = ("", "", "?", "*", "+", "{2}", "{1,9}", "{0,30}", "{3,}", "{1000}", "{0,1000}", "*?")
SECONDS_MAX = 0.05  # of processor time; 5 to 10 ms on a quiet machine


def part(source: random.Random, depth: int) -> str:
    kind = source.random()
    if depth == 0 or kind < 0.3:
        return source.choice(ATOMS) + source.choice(REPETITIONS)
    if kind < 0.6:
        return "".join(part(source, depth - 1) for _ in range(source.randint(1, 4)))
    branches = "|".join(part(source, depth - 1) for _ in range(1 if kind < 0.8 else source.randint(1, 4)))
    return source.choice(("(?:", "(")) + branches + ")" + source.choice(REPETITIONS)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_accepted_compiles_at_once(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(25):
        once = part(source, source.randint(0, 4))
        pattern = source.choice(("", "|")).join([once] * source.choice((1, 10, 100, 1_000, 8_000)))[: 16 << 10]
        for compile_ in (AsciiPattern, compile_pattern):
            start = time.thread_time()
            try:
                compile_(pattern)
            except PatternError as refusal:
                assert str(refusal)  # noqa: PT017 (most of them are refused)
            assert time.thread_time() - start < SECONDS_MAX, once


@pytest.mark.parametrize(
    "pattern",
    [
        "a" * 40_000,
        "(" * 201 + ")" * 201,
        "a?" * 3_000,
        "(?:a{1000}){1000}",
        r"\pL" * 20,
        "x{1,1000}" * 10,
        "()" * 4_000,
    ],
)
def test_what_is_too_large(pattern: str) -> None:
    with pytest.raises(PatternTooLargeError):
        check_size(pattern, CLIENT)


@pytest.mark.parametrize("between", ["(?s)", "(?i)(?-i)", r"\Q\E", r"(?s)\Q\E(?s)"])
@pytest.mark.parametrize("part", [r"\pL", r"[\pL]", r"(?:\pL)", r"\pL{2}", r"x\pL?"])
def test_a_repetition_behind_flags_was_not_counted_and_took_re2_a_tenth_of_a_second(part: str, between: str) -> None:
    """RE2 applies it to what stands before them."""
    for repetition in ("{0,400}", "{1000}", "{20}" + between + "{20}"):
        with pytest.raises(PatternTooLargeError):
            check_size(part + between + repetition, CLIENT)
    check_size(f"{part}{between}*a{between}{{2,3}}", CLIENT)


@pytest.mark.parametrize(
    "pattern", ["", "a", "a|b|", "^$", "[", "(", ")", "*", "a{", "a{1", "\\", "[[:x", r"\Q", r"\p", "(?P<", "a**"]
)
def test_what_is_no_pattern_is_left_to_re2(pattern: str) -> None:
    check_size(pattern, CLIENT)
