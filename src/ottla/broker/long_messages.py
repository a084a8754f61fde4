"""Messages with thousands of rows are encoded, decoded and taken apart by a worker: the loop has others to serve."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import cache, wraps
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.protocol.codec import EncodedBody, encode
from ottla.protocol.layout import Type, types_of

if TYPE_CHECKING:
    from ottla.broker.context import Context

LONG_ITEMS: Final = 1_000  # array items in all; a worker's help takes longer than to encode so many
LONG_BYTES: Final = 32 << 10  # of what is to be decoded: nobody knows yet what is in it
FREED_AT_ONCE: Final = 500
ONLY_OURS: Final = 2  # the variable, and the argument of getrefcount()

R = TypeVar("R")
Handler = Callable[[Any, "Context"], Coroutine[Any, Any, Any]]


def encoded_apart(handler: Handler) -> Handler:
    """The same handler; a long answer of it is bytes already."""

    @wraps(handler)
    async def handle(request: Any, context: Context) -> Any:
        response = await handler(request, context)
        if not is_long(response):
            return response
        context.broker.counters.note_answer(context.api_key, response)
        return await in_worker(context.broker.workers, encode_and_free, response, context.api_version)

    return handle


async def in_worker(workers: Executor, work: Callable[..., R], *arguments: Any) -> R:
    return await asyncio.get_running_loop().run_in_executor(workers, work, *arguments)


def encode_and_free(response: Any, version: int) -> EncodedBody:
    encoded = encode(response, version)
    free(response)
    return EncodedBody(encoded, encoded.holes)


def is_long(message: Any) -> bool:
    """Whether there are so many array items in it. Looks at no more of them than that."""
    return not isinstance(message, EncodedBody) and _room_left(message, LONG_ITEMS) < 0


def free(message: Any) -> None:
    """Forget a message that nobody needs any more, few rows at a time: freed at once they would stop every thread."""
    for name, has_structs in arrays_of(message):
        rows = getattr(message, name)
        setattr(message, name, None)
        has_arrays = has_structs and rows and arrays_of(rows[0])
        while rows and getrefcount(rows) == ONLY_OURS:  # a handler may have kept them
            if has_arrays:
                row = rows.pop()
                if getrefcount(row) == ONLY_OURS:
                    free(row)
            else:
                del rows[-FREED_AT_ONCE:]


def _room_left(message: Any, room: int) -> int:
    for name, has_structs in arrays_of(message):
        rows = getattr(message, name)
        if rows:
            room -= len(rows)
            if has_structs:
                for row in rows:
                    if room < 0:
                        break
                    room = _room_left(row, room)
        if room < 0:
            break
    return room


def arrays_of(message: Any) -> tuple[tuple[str, bool], ...]:
    cls: type = type(message)
    return _arrays(cls)


@cache
def _arrays(cls: type) -> tuple[tuple[str, bool], ...]:
    """The fields of a message that are arrays, and whether these are of structs."""
    kinds: dict[str, Type] = types_of(cls) if hasattr(cls, "__wire__") else {}
    return tuple((name, kind.array_item.kind == "struct") for name, kind in kinds.items() if kind.kind == "array")
