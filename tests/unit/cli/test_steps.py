"""Changes step by step: what fails ends it, and what was done until then is known."""

from collections.abc import Callable, Mapping

import pytest

from ottla.cli.security.steps import Row, Step, carry_out
from ottla.client.errors import ClientError
from ottla.operations.errors import OperationError

A, B, C, D = ((name,) for name in "abcd")


def fails(problem: BaseException) -> Callable[[], Mapping[Row, Exception] | None]:
    def run() -> None:
        raise problem

    return run


def test_all_is_done_in_order() -> None:
    seen: list[str] = []
    outcome = carry_out([Step([A, B], lambda: seen.append("first")), Step([C], lambda: seen.append("second"))])
    assert (outcome.done, outcome.left, outcome.problem, seen) == ([A, B, C], [], None, ["first", "second"])


@pytest.mark.parametrize("problem", [ClientError("no"), OperationError("no"), KeyboardInterrupt()])
def test_a_step_that_fails_is_the_last_and_nothing_of_it_is_done(problem: BaseException) -> None:
    outcome = carry_out(
        [Step([A], lambda: None), Step([B], fails(problem)), Step([C, D], lambda: pytest.fail("went on"))]
    )
    assert (outcome.done, outcome.left, outcome.problem, outcome.row) == ([A], [B, C, D], problem, B)


def test_of_a_step_that_was_refused_in_part_the_rest_is_done() -> None:
    problem = ClientError("not this one")
    outcome = carry_out([Step([A, B, C], lambda: {B: problem}), Step([D], lambda: pytest.fail("went on"))])
    assert (outcome.done, outcome.left, outcome.problem, outcome.row) == ([A, C], [B, D], problem, B)
