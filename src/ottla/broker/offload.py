"""Keeps long work off the event loop: in time slices, in worker threads, and for large messages.

A valid request may name a million items. Code that handles them one by one uses `in_slices`, which yields to the loop
every few milliseconds. Work that must not be interrupted handles some hundreds of items at a time (`chunks`).
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import cache, wraps
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from ottla.protocol.codec import EncodedBody, encode
from ottla.protocol.schema import Type, types_of
from ottla.quotas.request_time import charged
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet

if TYPE_CHECKING:
    from ottla.broker.context import Context


P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

SLICE_SECONDS: Final = 0.003
CHUNK_ROWS: Final = 100  # rows that can be decided, written and stored in one slice

THREADS_MAX: Final = 256  # upper limit for any setting: each thread costs memory

LONG_MESSAGE_ITEMS: Final = 1_000  # array items in all; offloading costs more than encoding fewer items
LONG_REQUEST_BYTES: Final = 32 << 10  # of an undecoded request: the number of its items is not known yet
FREE_CHUNK_ROWS: Final = 500

Handler = Callable[[Any, "Context"], Coroutine[Any, Any, Any]]


class TimeSlice:
    """The time budget of one slice. One per request, shared by all of its loops."""

    __slots__ = ("_ends", "_now")

    def __init__(self) -> None:
        self._now = asyncio.get_running_loop().time
        self._ends = self._now() + SLICE_SECONDS

    @property
    def is_used_up(self) -> bool:
        return self._now() > self._ends

    async def yield_to_loop(self) -> None:
        """Yield to the event loop, then start a new slice."""
        await asyncio.sleep(0)
        self._ends = self._now() + SLICE_SECONDS


async def in_slices(items: Iterable[T], time_slice: TimeSlice | None = None) -> AsyncIterator[T]:
    """Iterate over the items; yields to the event loop when the slice is used up."""
    time_slice = time_slice or TimeSlice()
    for item in items:
        yield item
        if time_slice.is_used_up:
            await time_slice.yield_to_loop()


def chunks(items: Sequence[T], size: int = CHUNK_ROWS) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


async def for_each_partition(replicas: ReplicaSet, work: Callable[[Partition], None]) -> None:
    """Run the function for all partitions that are not deleted."""
    async for partition in in_slices(list(replicas.partitions.values())):
        if not partition.is_deleted:
            work(partition)


class Workers(ThreadPoolExecutor):
    """Worker threads for disk work: syncs, cold reads, checks, recovery, removal of files.

    `num.io.threads` limits how many run at a time and can change at run time; surplus work waits and idle threads stay.
    Their time for a request is charged to the client's quota, if it has one.
    """

    def __init__(self, threads: int) -> None:
        super().__init__(THREADS_MAX, thread_name_prefix="worker")
        self._lock = threading.Lock()
        self._limit = threads
        self._busy = 0
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def limit(self, threads: int) -> None:
        """Set another limit; running work is not stopped."""
        with self._lock:
            self._limit = threads
        self._start_waiting()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        work = charged(lambda: fn(*args, **kwargs))
        with self._lock:
            self._waiting.append((future, work))
        self._start_waiting()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Finish the submitted work without a limit, then end the threads."""
        self.limit(sys.maxsize)
        super().shutdown(wait, cancel_futures=cancel_futures)

    def _start_waiting(self) -> None:
        with self._lock:
            while self._waiting and self._busy < self._limit:
                self._busy += 1
                super().submit(self._run, *self._waiting.popleft())

    def _run(self, future: Future[Any], work: Callable[[], Any]) -> None:
        try:
            if future.set_running_or_notify_cancel():
                _finish(future, work)
        finally:
            with self._lock:
                self._busy -= 1
            self._start_waiting()

    def __repr__(self) -> str:
        return f"<Workers {self._busy} busy of {self._limit}, {len(self._waiting)} waiting>"


def _finish(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 (the caller gets the exception with the result)
        future.set_exception(error)
    else:
        future.set_result(result)


def _count_of_local() -> int:
    """Return what getrefcount() reports for an object that only a local variable holds: 2, and 1 since Python 3.14."""
    local: list[None] = []
    return getrefcount(local)


ONLY_REFERENCE_COUNT: Final = _count_of_local()


def offload_encoding(handler: Handler) -> Handler:
    """Wrap a handler: its long responses are encoded by a worker thread."""

    @wraps(handler)
    async def handle(request: Any, context: Context) -> Any:
        response = await handler(request, context)
        if not is_long(response):
            return response
        context.broker.counters.note_answer(context.api_key, response)
        return await run_in_worker(context.broker.workers, encode_and_free, response, context.api_version)

    return handle


async def run_in_worker(workers: Executor, work: Callable[..., R], *arguments: Any) -> R:
    return await asyncio.get_running_loop().run_in_executor(workers, work, *arguments)


def encode_and_free(response: Any, version: int) -> EncodedBody:
    encoded = encode(response, version)
    free_rows(response)
    return EncodedBody(encoded, encoded.holes)


def is_long(message: Any) -> bool:
    """Return whether the message has more than LONG_ITEMS array items. Stops counting there."""
    return not isinstance(message, EncodedBody) and _count_down_items(message, LONG_MESSAGE_ITEMS) < 0


def free_rows(message: Any) -> None:
    """Release an unused message a few rows at a time: freeing all rows at once would stop all threads."""
    for name, has_structs in array_fields(message):
        rows = getattr(message, name)
        setattr(message, name, None)
        has_arrays = has_structs and rows and array_fields(rows[0])
        while rows and getrefcount(rows) == ONLY_REFERENCE_COUNT:  # a handler may have kept them
            if has_arrays:
                row = rows.pop()
                if getrefcount(row) == ONLY_REFERENCE_COUNT:
                    free_rows(row)
            else:
                del rows[-FREE_CHUNK_ROWS:]


def _count_down_items(message: Any, items_left: int) -> int:
    for name, has_structs in array_fields(message):
        rows = getattr(message, name)
        if rows:
            items_left -= len(rows)
            if has_structs:
                for row in rows:
                    if items_left < 0:
                        break
                    items_left = _count_down_items(row, items_left)
        if items_left < 0:
            break
    return items_left


def array_fields(message: Any) -> tuple[tuple[str, bool], ...]:
    cls: type = type(message)
    return _array_fields(cls)


@cache
def _array_fields(cls: type) -> tuple[tuple[str, bool], ...]:
    """Return the array fields of a message type, and whether their items are structs."""
    kinds: dict[str, Type] = types_of(cls) if hasattr(cls, "__wire__") else {}
    return tuple((name, kind.array_item.kind == "struct") for name, kind in kinds.items() if kind.kind == "array")
