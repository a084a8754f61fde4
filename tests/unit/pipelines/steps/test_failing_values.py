"""Expressions that may fail: what is decided without Spark."""

import pytest

from ottla.pipelines.expressions.texts import keeps_something, words_of_spark
from ottla.pipelines.steps.failing_values import Expression, independent


@pytest.mark.parametrize(
    ("columns", "groups"),
    [
        ({"c1": "a", "c10": "b + 1", "a2": "cast(b as int)"}, [["c1", "c10", "a2"]]),
        ({"v": "cast(n as int)", "w": "V + 1", "x": "n"}, [["v"], ["w", "x"]]),
        ({"user": "upper(n)", "v": "user"}, [["user"], ["v"]]),
        ({"s": "named_struct('a', n)", "t": "s.a", "n": "t"}, [["s"], ["t"], ["n"]]),
        ({"n": "n + 1", "m": "`N`"}, [["n"], ["m"]]),
    ],
)
def test_a_column_is_computed_after_those_that_it_reads(columns: dict[str, str], groups: list[list[str]]) -> None:
    made = independent({name: Expression(text) for name, text in columns.items()})
    assert [list(group) for group in made] == groups


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MAP ('a', n)", True),
        ("size(`map_concat`(m, m))", True),
        ("format_number(cast(n as double), p)", True),
        ("format_number(cast(n as double), '#.#')", False),
        ("format_number(n, 2)", False),
        ("map", False),
        ("map_filter(m, (k, v) -> v > 1)", False),
        ("'map(1)'", False),
    ],
)
def test_functions_that_keep_something_between_rows_are_known(text: str, expected: bool) -> None:
    assert keeps_something(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("current_timestamp", set()),
        ("`current_timestamp`", {"current_timestamp"}),
        ("`Current_Time` || x", {"Current_Time"}),
        ("upper(user)", {"user"}),
        ("t.user", set()),
        ("transform(a, user -> user + 1)", set()),
        ("current_timestamp()", set()),
    ],
)
def test_names_that_spark_reads_without_a_column_are_known(text: str, expected: set[str]) -> None:
    assert words_of_spark(text) == expected
