"""Coroutines that mostly need not wait: they are begun at once, and get a task only if they have to wait after all."""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import Any, NamedTuple


class Ended(NamedTuple):
    """A coroutine that did not wait for anything."""

    result: Any


def begin(work: Coroutine[Any, Any, Any]) -> Ended | Coroutine[Any, Any, Any]:
    """Run until it has to wait: its result, or the rest of it, which is to be awaited.

    Up to there it has no task of its own, so it must not use asyncio.timeout() before it has waited once.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as end:
        return Ended(end.value)
    return _go_on(work, waits_for)


async def _go_on(work: Coroutine[Any, Any, Any], waits_for: Any) -> Any:
    return await _rest(work, waits_for)


@types.coroutine
def _rest(work: Coroutine[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, Any]:
    try:
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001 (it is the coroutine's to deal with)
                waits_for = work.throw(error)
            else:
                waits_for = work.send(sent)
    except StopIteration as end:
        return end.value
