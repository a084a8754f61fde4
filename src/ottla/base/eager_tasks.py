"""Eager coroutines: they run at once, and get a task only if they have to wait."""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import Any, NamedTuple


class CompletedTask(NamedTuple):
    """The result of a coroutine that finished without waiting."""

    result: Any


def run_eagerly(work: Coroutine[Any, Any, Any]) -> CompletedTask | Coroutine[Any, Any, Any]:
    """Run a coroutine until its first wait: returns its result, or the rest of it to be awaited.

    Until that point it has no task of its own, so it must not use asyncio.timeout() before its first wait.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as end:
        return CompletedTask(end.value)
    return _go_on(work, waits_for)


async def _go_on(work: Coroutine[Any, Any, Any], waits_for: Any) -> Any:
    return await _continue(work, waits_for)


@types.coroutine
def _continue(work: Coroutine[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, Any]:
    try:
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001 (the coroutine handles it)
                waits_for = work.throw(error)
            else:
                waits_for = work.send(sent)
    except StopIteration as end:
        return end.value
