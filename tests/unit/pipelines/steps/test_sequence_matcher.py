"""A, then B within a time: results for rows of one key, all at once and one by one."""

from __future__ import annotations

import random

import pytest

from ottla.pipelines.steps.key_program import InputRow, OutputRow
from ottla.pipelines.steps.sequence_matcher import SequenceMatcher

SECOND = 1_000_000
Row = tuple[float, str]


def rows_of(rows: list[Row], conditions: list[str]) -> list[InputRow]:
    """A row matches a condition if it contains its letter."""
    made = []
    for seconds, letter in rows:
        flags = "".join("1" if letter in each else "0" for each in conditions)
        made.append(InputRow(round(seconds * SECOND), {"user": "ann", "what": letter, "at": seconds}, flags))
    return made


def told(made: list[OutputRow]) -> list[tuple[object, ...]]:
    """(outcome, time, times of the rows)."""
    return [
        (
            each.row["outcome"],  # type: ignore[index]
            each.instant / SECOND,
            *(each.row[name] for name in ("first_at", "then_at", "last_at") if name in each.row),  # type: ignore[index,operator]
        )
        for each in made
    ]


def found(rows: list[Row], conditions: list[str], *, steps: int = 2, **options: object) -> list[tuple[object, ...]]:
    """With 10 seconds; all at once and in pieces with an advancing watermark: the results are equal."""
    prefixes = ("first_", "then_", "last_")[:steps]
    program = SequenceMatcher(("user",), prefixes, 10 * SECOND, **options)  # type: ignore[arg-type]
    arrived = rows_of(rows, conditions)
    whole = program.run(arrived, None, None)
    assert whole.state is None
    for seed in range(5):
        chance = random.Random(seed)
        pieces: list[OutputRow] = []
        memory: str | None = None
        left = list(arrived)
        watermark = 0
        while left:
            watermark += chance.choice([1, 500, 4_000, 20_000])
            ready = [each for each in left if each.instant <= watermark * 1000]
            left = left[len(ready) :]
            ran = program.run(ready, memory, watermark)
            assert ran.wake_ms is None or ran.wake_ms > watermark
            assert (ran.state is None) == (ran.wake_ms is None)
            assert [each.instant for each in ran.made] == sorted(each.instant for each in ran.made)
            pieces += ran.made
            memory = ran.state
        pieces += program.run([], memory, watermark + 1_000_000).made
        assert pieces == whole.made
    return told(whole.made)


def test_a_then_b_within_the_time_whatever_comes_between() -> None:
    assert found([(1, "a"), (2, "x"), (5, "b")], ["a", "b"]) == [("matched", 5, 1, 5)]
    assert found([(1, "b"), (2, "a")], ["a", "b"]) == []
    assert found([(1, "a"), (11, "b")], ["a", "b"]) == [("matched", 11, 1, 11)]
    assert found([(1, "a"), (11.000001, "b")], ["a", "b"]) == []


def test_a_without_b_is_emitted_when_the_time_is_over() -> None:
    assert found([(1, "a"), (11.000001, "b")], ["a", "b"], emit="timed_out") == [("timed_out", 11, 1)]
    assert found([(1, "a"), (5, "b")], ["a", "b"], emit="timed_out") == []
    both = found([(1, "a"), (5, "b"), (7, "a")], ["a", "b"], emit="both")
    assert both == [("matched", 5, 1, 5), ("timed_out", 17, 7)]


def test_each_row_that_begins_gives_one_result_at_most() -> None:
    rows: list[Row] = [(1, "a"), (2, "a"), (5, "b"), (6, "b")]
    assert found(rows, ["a", "b"]) == [("matched", 5, 1, 5), ("matched", 5, 2, 5)]
    assert found(rows, ["a", "b"], several="first", emit="both") == [("matched", 5, 1, 5)]
    assert found(rows, ["a", "b"], several="newest", emit="both") == [("matched", 5, 2, 5)]


def test_the_first_of_several_waits_for_its_own_time() -> None:
    rows: list[Row] = [(1, "a"), (9, "a"), (12, "b")]
    assert found(rows, ["a", "b"], several="first", emit="both") == [("timed_out", 11, 1)]
    assert found(rows, ["a", "b"], emit="both") == [("timed_out", 11, 1), ("matched", 12, 9, 12)]


def test_three_conditions_and_a_partial_match() -> None:
    rows: list[Row] = [(1, "a"), (2, "c"), (3, "b"), (4, "b"), (6, "c"), (7, "c")]
    assert found(rows, ["a", "b", "c"], steps=3) == [("matched", 6, 1, 3, 6)]
    late: list[Row] = [(1, "a"), (3, "b"), (20, "c")]
    assert found(late, ["a", "b", "c"], steps=3, emit="both") == [("timed_out", 11, 1, 3)]


def test_a_row_that_must_not_be_there_ends_it_without_a_result() -> None:
    assert found([(1, "a"), (2, "n"), (3, "b")], ["a", "b", "n"], emit="both") == []
    assert found([(1, "n"), (2, "a"), (3, "b"), (4, "n")], ["a", "b", "n"]) == [("matched", 3, 2, 3)]
    assert found([(1, "a"), (3, "b")], ["a", "b", "b"], emit="both") == []  # it is checked first
    assert found([(1, "a"), (3, "n"), (4, "b")], ["an", "b", "n"]) == [("matched", 4, 3, 4)]


def test_the_same_condition_twice_is_every_row_with_the_one_before() -> None:
    rows: list[Row] = [(1, "a"), (2, "a"), (3, "a")]
    expected = [("matched", 2, 1, 2), ("matched", 3, 2, 3)]
    assert [found(rows, ["a", "a"], several=each) for each in ("each", "first", "newest")] == [expected] * 3


def test_open_sequences_are_bounded() -> None:
    program = SequenceMatcher(("user",), ("first_", "then_"), 10 * SECOND, open_max=3, label="main, step 2, pattern")
    with pytest.raises(RuntimeError, match="main, step 2, pattern: user 'ann': more than 3 rows wait"):
        program.run(rows_of([(n, "a") for n in range(4)], ["a", "b"]), None, 0)


def test_against_all_pairs() -> None:
    """By brute force: the first later b of each a, if it is close enough."""
    for seed in range(30):
        chance = random.Random(seed)
        rows = sorted((chance.randrange(400) / 10, chance.choice("abx")) for _ in range(40))
        expected = []
        for number, (start, letter) in enumerate(rows):
            if letter == "a":
                end = next((when for when, other in rows[number + 1 :] if other == "b"), None)
                near = end is not None and end - start <= 10
                expected.append(("matched", end, start, end) if near else ("timed_out", round(start + 10, 6), start))
        assert sorted(found(rows, ["a", "b"], emit="both"), key=repr) == sorted(expected, key=repr)
