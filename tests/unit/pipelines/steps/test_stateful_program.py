"""User code for the rows of one key: state, timers, and dead rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from ottla.pipelines.steps.key_program import InputRow, OutputRow, Row, from_micros
from ottla.pipelines.steps.stateful_program import State, UserProgram

SECOND = 1_000_000
TYPES = pa.struct([("n", pa.int32()), ("names", pa.list_(pa.string())), ("at", pa.timestamp("us", tz="UTC"))])
RESULT = pa.struct([("what", pa.string()), ("total", pa.float64())])

Told = list[tuple[float, Any, Any]]


def program(on_row: Any, on_timer: Any = None, forget_seconds: int = 1000) -> UserProgram:
    return UserProgram(("user",), on_row, on_timer, TYPES, RESULT, forget_seconds * 1000, "main, step 3, stateful")


def arrived(*rows: tuple[float, int]) -> list[InputRow]:
    return [InputRow(round(seconds * SECOND), {"user": "ann", "v": value}) for seconds, value in rows]


def told(made: list[OutputRow]) -> Told:
    return [
        (each.instant / SECOND, each.row and each.row["what"], each.problem or (each.row and each.row["total"]))
        for each in made
    ]


def found(made_by: UserProgram, *rows: tuple[float, int]) -> Told:
    """All at once, and in pieces: the results are equal."""
    given = arrived(*rows)
    whole = made_by.run(given, None, None)
    assert whole.state is None
    for seed in range(5):
        chance = random.Random(seed)
        pieces: list[OutputRow] = []
        memory: str | None = None
        left, watermark = list(given), 0
        while left:
            watermark += chance.choice([1, 300, 4_000, 60_000])
            ready = [each for each in left if each.instant <= watermark * 1000]
            left = left[len(ready) :]
            ran = made_by.run(ready, memory, watermark)
            assert ran.wake_ms is None or ran.wake_ms > watermark
            pieces, memory = pieces + ran.made, ran.state
        pieces += made_by.run([], memory, watermark + 10**9).made
        assert [each[:3] for each in pieces] == [each[:3] for each in whole.made]  # the index is that in the piece
    return told(whole.made)


def counting(row: Row, state: State) -> Row:
    state["n"] = (state["n"] or 0) + row["v"]
    return {"what": state.key["user"], "total": state["n"]}


def test_state_is_available_at_the_next_row_with_declared_types() -> None:
    made = program(counting).run(arrived((1, 2), (2, 3)), None, None).made
    assert [each.row for each in made] == [
        {"user": "ann", "what": "ann", "total": 2.0},
        {"user": "ann", "what": "ann", "total": 5.0},
    ]
    assert found(program(counting), (1, 2), (2, 3)) == [(1, "ann", 2.0), (2, "ann", 5.0)]


def test_a_key_without_rows_expires_at_the_exact_time() -> None:
    assert found(program(counting, forget_seconds=10), (1, 2), (11, 1), (21.001, 1)) == [
        (1, "ann", 2.0), (11, "ann", 3.0), (21.001, "ann", 1.0),
    ]  # fmt: skip


class Silence:
    """Emits a row when nothing came for five seconds."""

    def on_row(self, row: Row, state: State) -> None:
        if state["at"] is not None:
            state.delete_timer(state["at"])
        state["n"] = row["v"]
        state["at"] = state.time + timedelta(seconds=5)
        state.set_timer(state["at"])

    def on_timer(self, time: datetime, state: State) -> Row:
        assert time == state.time == state["at"]
        made = {"what": "silent", "total": state["n"]}
        state.forget()
        return made


def test_a_timer_fires_once_after_the_rows_of_its_time_and_before_later_ones() -> None:
    code = Silence()
    silent = program(code.on_row, code.on_timer)
    assert found(silent, (1, 1), (6, 2), (11.001, 3)) == [(11, "silent", 2.0), (16.001, "silent", 3.0)]
    ran = silent.run(arrived((1, 1)), None, 1000)
    assert (ran.made, ran.wake_ms) == ([], 6000)
    assert silent.run([], ran.state, 5999) == ran
    fired = silent.run([], ran.state, 6000)
    assert (told(fired.made), fired.state) == ([(6, "silent", 1.0)], None)


def test_timers_fire_in_their_order_and_a_time_that_is_set_twice_is_one() -> None:
    def on_row(row: Row, state: State) -> None:
        for seconds in (30, 10, 20, 10):
            state.set_timer(timedelta(seconds=seconds))
        state.set_timer(from_micros(15 * SECOND + 1))
        state.delete_timer(timedelta(seconds=20))

    def on_timer(time: datetime, state: State) -> Row:
        return {"what": time.isoformat()[17:], "total": None}

    assert [each[0] for each in found(program(on_row, on_timer), (0, 1))] == [10, 15.001, 30]


def test_a_timer_that_sets_itself_again_ends_when_its_key_is_forgotten() -> None:
    def on_row(row: Row, state: State) -> None:
        state.set_timer(timedelta(seconds=3))

    def on_timer(time: datetime, state: State) -> Row:
        state.set_timer(timedelta(seconds=3))
        return {"what": "tick", "total": 0}

    ticks = found(program(on_row, on_timer, forget_seconds=10), (0, 1), (8, 1))
    assert [each[0] for each in ticks] == [3, 6, 9, 11, 12, 14, 15, 17, 18]


def failing(row: Row, state: State) -> Any:
    state["n"] = (state["n"] or 0) + row["v"]
    state.set_timer(timedelta(seconds=1))
    if row["v"] == 7:
        raise ValueError("seven")
    return [{"what": "ok", "total": state["n"]}] * 2


def test_a_failing_row_dies_with_file_and_line_and_changes_no_state() -> None:
    made = program(failing, lambda time, state: None).run(arrived((1, 1), (2, 7), (3, 1)), None, None).made
    assert told(made)[2] == (
        2,
        None,
        f"test_stateful_program.py:{failing.__code__.co_firstlineno + 4}: ValueError: seven",
    )
    assert made[2].input_index == 1
    assert [each[2] for each in told(made) if each[1]] == [1.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (lambda: {"what": "x"}, "the code did not return the column 'total'"),
        (lambda: {"what": "x", "total": 1, "more": 2}, "the code returned an unknown column 'more'"),
        (lambda: {"what": "x", "total": "much"}, "a value of the row does not fit its type: "),
        (lambda: 5, "the code returned int, not a dict or a list of them"),
        (lambda: "text", "the code returned str, not a dict or a list of them"),
        (lambda: [{"what": "x", "total": 1}, None], "the code returned NoneType among its rows, not a dict"),
    ],
)
def test_a_result_that_does_not_fit_dies(result: Callable[[], Any], reason: str) -> None:
    (made,) = program(lambda row, state: result()).run(arrived((1, 1)), None, None).made
    assert made.problem is not None
    assert made.problem.startswith(reason)


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (lambda state: state.set_timer(timedelta(0)), "ValueError: the timer 1970-01-01T00:00:01+00:00 is not after"),
        (lambda state: state.set_timer(datetime(2026, 1, 1)), "ValueError: 2026-01-01 00:00:00 has no time zone"),  # noqa: DTZ001
        (lambda state: state["m"], "KeyError: 'm is not declared in `state`'"),
        (lambda state: state.__setitem__("n", "x"), "a value of the state does not fit its type"),
        (lambda state: [state.set_timer(timedelta(seconds=n + 1)) for n in range(1001)], "ValueError: more than 1000"),
    ],
)
def test_invalid_state_kills_the_row(act: Callable[[State], Any], reason: str) -> None:
    def on_row(row: Row, state: State) -> None:
        act(state)

    ran = program(on_row, lambda time, state: None).run(arrived((1, 1)), None, 0)
    assert reason in (ran.made[0].problem or "")
    assert ran.state is None


def test_a_timer_needs_on_timer() -> None:
    (made,) = program(lambda row, state: state.set_timer(timedelta(1))).run(arrived((1, 1)), None, 0).made
    assert "TypeError: a timer is set, and there is no on_timer" in (made.problem or "")


def test_an_exception_of_a_timer_ends_the_run_with_step_and_line() -> None:
    def on_timer(time: datetime, state: State) -> None:
        raise ValueError("late")

    line = on_timer.__code__.co_firstlineno + 1
    broken = program(lambda row, state: state.set_timer(timedelta(seconds=1)), on_timer)
    with pytest.raises(
        RuntimeError,
        match=f"^main, step 3, stateful, on_timer: test_stateful_program.py:{line}: ValueError: late$",
    ):
        broken.run(arrived((1, 1)), None, None)


def test_an_exception_of_a_generator_kills_all_its_rows() -> None:
    def on_row(row: Row, state: State) -> Iterator[Row]:
        for number in range(row["v"]):
            yield {"what": "each", "total": 1 / (2 - number)}

    assert [each[1] for each in found(program(on_row), (1, 2), (2, 3))] == ["each", "each", None]
