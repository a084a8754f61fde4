"""Changes as steps, one after the other. What fails ends it, and what was done until then is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ottla.client.errors import ClientError
from ottla.operations.errors import OperationError

Row = tuple[str, ...]  # as a plan shows a change; no two changes are shown alike


class Step(NamedTuple):
    """Changes that are asked for at once; `run` tells which of them were refused, or raises if all were."""

    rows: Sequence[Row]
    run: Callable[[], Mapping[Row, Exception] | None]


class Outcome(NamedTuple):
    """How far it came; `problem` is None if all is done."""

    done: list[Row]
    left: list[Row]
    problem: Exception | KeyboardInterrupt | None = None
    row: Row | None = None  # the change that failed, if it is known


def carry_out(steps: Sequence[Step]) -> Outcome:
    done: list[Row] = []
    for place, step in enumerate(steps):
        following = [row for later in steps[place + 1 :] for row in later.rows]
        try:
            refused = step.run() or {}
        except (ClientError, OperationError, KeyboardInterrupt) as problem:
            return Outcome(done, [*step.rows, *following], problem, step.rows[0] if len(step.rows) == 1 else None)
        done += [row for row in step.rows if row not in refused]
        if refused:
            row, cause = next(iter(refused.items()))
            return Outcome(done, [*refused, *following], cause, row)
    return Outcome(done, [])
