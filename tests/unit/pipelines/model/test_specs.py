"""Values of a document become specs, and all problems are reported at once."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import pytest

from ottla.pipelines.model.problems import Problem
from ottla.pipelines.model.specs import Duration, WrongValueError, parse_duration, read_spec


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: int = 1


@dataclass(frozen=True, kw_only=True)
class Sample:
    where: str = field(metadata={"doc": "a condition"})
    columns: list[str] = field(default_factory=list)
    share: float = 1.0
    is_strict: bool = False
    wait: Duration | None = None
    mode: Literal["fast", "slow"] = "fast"
    names: dict[str, str] = field(default_factory=dict)
    inner: Inner | None = None
    either: str | bool = True

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if self.share > 1:
            yield "share", "is more than all", "give 1 or less"


def read(value: object) -> Sample:
    problems: list[Problem] = []
    made = read_spec(Sample, value, ("here",), problems)
    assert made is not None, problems
    return made


def problems_of(value: object) -> list[str]:
    problems: list[Problem] = []
    assert read_spec(Sample, value, ("here",), problems) is None
    return [problem.text() for problem in problems]


def test_a_plain_value_is_the_first_field() -> None:
    assert read("size > 3").where == "size > 3"


def test_values_come_in_the_types_of_their_fields() -> None:
    made = read(
        {"where": "x", "columns": "one", "share": 1, "wait": "10 seconds", "names": {"a": 1}, "inner": {"size": 7}}
    )
    assert made.columns == ("one",)
    assert isinstance(made.share, float)
    assert made.wait == 10_000
    assert made.names == {"a": "1"}
    assert made.inner == Inner(size=7)


def test_dots_and_dashes_are_underscores_in_names_of_fields() -> None:
    assert read({"where": "x", "is-strict": True}).is_strict


def test_all_problems_are_reported_at_once() -> None:
    assert problems_of({"wher": "x", "share": "much", "mode": "quick"}) == [
        "here, wher: unknown field 'wher'; did you mean 'where'?",
        "here, share: 'much' is not a number",
        "here, mode: 'quick' is not one of fast, slow",
        "here: 'where' is missing; a condition",
    ]


def test_true_is_no_number_and_a_number_no_truth() -> None:
    assert problems_of({"where": "x", "share": True}) == ["here, share: True is not a number"]
    assert problems_of({"where": "x", "is_strict": 1}) == ["here, is_strict: 1 is not true or false"]


def test_a_spec_has_the_last_word() -> None:
    assert problems_of({"where": "x", "share": 2}) == ["here, share: is more than all; give 1 or less"]


def test_a_problem_of_a_nested_spec_has_its_path() -> None:
    assert problems_of({"where": "x", "inner": {"siz": 1}}) == [
        "here, inner, siz: unknown field 'siz'; did you mean 'size'?"
    ]


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1 minute", 60_000),
        ("10s", 10_000),
        ("500 ms", 500),
        ("2 hours", 7_200_000),
        ("1d", 86_400_000),
        ("3 m", 180_000),
    ],
)
def test_durations_as_people_write_them(text: str, expected_ms: int) -> None:
    assert parse_duration(text) == expected_ms


@pytest.mark.parametrize("text", ["", "ten seconds", "10", "-5 seconds", "1 fortnight", None, 5, "1e9 s"])
def test_invalid_durations(text: object) -> None:
    with pytest.raises(WrongValueError, match="duration"):
        parse_duration(text)


def test_a_duration_for_spark() -> None:
    assert parse_duration("2 minutes").sql == "120000 milliseconds"
