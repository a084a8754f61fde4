"""SQL that was read in another way than Spark reads it, or for a very long time."""

from __future__ import annotations

import pytest

from ottla.pipelines.expressions.query import check_query
from ottla.pipelines.expressions.texts import check_condition, check_expression


def test_many_joins_without_a_condition_are_refused_in_time() -> None:
    """sqlglot takes time 2^n for them."""
    assert check_query("SELECT 1 FROM stream" + " JOIN stream" * 8) is None
    assert "too many joins without ON" in str(check_query("SELECT 1 FROM stream" + " JOIN stream" * 40))
    joins = "".join(f" JOIN stream s{number} ON true" for number in range(300))
    assert check_query(f"SELECT 1 FROM stream {joins}") is None


def test_a_hexadecimal_number_is_a_name_for_spark() -> None:
    assert "'0x1F', which is not a number" in str(check_expression("a = 0x1F"))
    assert check_expression("a = X'1F'") is None


@pytest.mark.parametrize(
    "text", ["window(at, '10 minutes', '5 minutes').start", "`WINDOW` (at, '1 day')", "session_window(at, '1 day')"]
)
def test_an_expression_makes_one_row_of_one(text: str) -> None:
    assert "drops or doubles rows" in str(check_expression(text))
    assert check_condition(f"{text} IS NOT NULL")
    assert check_query(f"SELECT count(*) FROM stream GROUP BY {text.removesuffix('.start')}") is None


@pytest.mark.parametrize("text", ["struct(*)", "hash(*)", "concat_ws(',', *)", "to_json(struct(* EXCEPT (a)))"])
def test_a_star_reads_no_columns_of_the_pipeline_itself(text: str) -> None:
    assert "uses *: name the columns" in str(check_expression(text))


@pytest.mark.parametrize("text", ["count(*)", "`COUNT`(*)", "struct(s.*)"])
def test_a_star_that_is_no_list_of_all_columns(text: str) -> None:
    assert check_expression(text) is None
