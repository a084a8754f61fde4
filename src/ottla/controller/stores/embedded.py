"""The store of a broker without ZooKeeper: a SQLite file that is accessed by a single worker thread.

Calls never block the event loop: each one is submitted to the worker thread, in order, and awaited. Watches fire on the
loop after the commit; they only report this process's own changes, because there is no other writer. The write-ahead
log is checkpointed soon after the start and then periodically, because its changes are lost if the log file is.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from ottla.base.tasks import notify_safely
from ottla.controller.stores.sqlite_tree import SqliteTree, StoreCheck
from ottla.controller.stores.store import (
    CheckNode,
    CreateNode,
    DeleteNode,
    Node,
    Outcome,
    StoreOperation,
    WatchCallback,
    WatchEvent,
    WatchKind,
    parent_and_name,
)

logger = logging.getLogger(__name__)

FILE_NAME: Final = "ottla.metadata.db"  # in the first log directory
RESERVE_CHECK_SECONDS: Final = 60.0  # after the reserve was used
CHECKPOINT_SECONDS: Final = 10.0  # from a change to its checkpoint

P = ParamSpec("P")
R = TypeVar("R")


class EmbeddedStore:
    """A MetadataStore in one file; SqliteTree has its contents."""

    def __init__(self, directory: str | os.PathLike[str], check: StoreCheck | None = None) -> None:
        """`check` runs before anything is written."""
        self._check = check
        self._tree = SqliteTree(os.path.join(directory, FILE_NAME))
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ottla-metadata-store")
        self._watches: dict[int, tuple[str, WatchCallback]] = {}
        self._watches_made = 0
        self._reserve_check: asyncio.TimerHandle | None = None
        self._checkpoint: asyncio.TimerHandle | None = None
        self._checkpoint_seconds = 0.0  # at first: the writes of the start are checkpointed at once
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<EmbeddedStore {self._tree!r} watches={len(self._watches)}>"

    async def open(self) -> None:
        await self._run(self._tree.open, self._check)
        self._watch_reserve()

    async def close(self) -> None:
        self._is_closed = True
        for timer in (self._reserve_check, self._checkpoint):
            if timer is not None:
                timer.cancel()
        await self._run(self._tree.close)
        self._thread.shutdown()

    @property
    def last_transaction(self) -> int:
        """The number of the last committed transaction, which is durable."""
        return self._tree.last_transaction

    async def get(self, path: str) -> Node | None:
        return await self._run(self._tree.get, path)

    async def children(self, path: str) -> list[str]:
        return await self._run(self._tree.children, path)

    async def subtree(self, path: str) -> dict[str, Node]:
        return await self._run(self._tree.subtree, path)

    async def multi(self, operations: Sequence[StoreOperation]) -> list[Outcome]:
        try:
            outcomes = await self._run(self._tree.multi, operations)
        finally:
            self._watch_reserve()
        self._checkpoint_later()
        if self._watches:
            self._tell_watches(operations, outcomes)
        return outcomes

    def watch_node(self, path: str, callback: WatchCallback) -> Callable[[], None]:
        return self._watch(path, callback)

    def watch_children(self, path: str, callback: WatchCallback) -> Callable[[], None]:
        return self._watch(f"{path.rstrip('/')}/", callback)

    def _watch(self, key: str, callback: WatchCallback) -> Callable[[], None]:
        """Watch a node (`key` is its path), or its children (a path with a slash at the end)."""
        self._watches_made += 1
        number = self._watches_made
        self._watches[number] = (key, callback)

        def end_watch() -> None:
            self._watches.pop(number, None)

        return end_watch

    def _watch_reserve(self) -> None:
        """Refill a used reserve as soon as the disk has enough space, even without further changes."""
        if not self._tree.reserve.is_whole and self._reserve_check is None:
            loop = asyncio.get_running_loop()
            self._reserve_check = loop.call_later(RESERVE_CHECK_SECONDS, self._fill_reserve)

    def _fill_reserve(self) -> None:
        self._reserve_check = None
        filling = asyncio.get_running_loop().run_in_executor(self._thread, self._tree.reserve.fill)
        filling.add_done_callback(lambda _: self._watch_reserve())

    def _checkpoint_later(self) -> None:
        if self._checkpoint is None:
            loop = asyncio.get_running_loop()
            self._checkpoint = loop.call_later(self._checkpoint_seconds, self._begin_checkpoint)

    def _begin_checkpoint(self) -> None:
        self._checkpoint, self._checkpoint_seconds = None, CHECKPOINT_SECONDS
        writing = asyncio.get_running_loop().run_in_executor(self._thread, self._tree.checkpoint)
        writing.add_done_callback(self._note_checkpoint)

    def _note_checkpoint(self, done: asyncio.Future[bool]) -> None:
        """Retry a checkpoint that a reader or a full disk has prevented."""
        error = done.exception()
        if error is not None:
            logger.error("a checkpoint of the metadata store failed, retrying: %s", error, exc_info=error)
        if (error is not None or not done.result()) and not self._is_closed:
            self._checkpoint_later()

    async def _run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        assert not kwargs
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    def _tell_watches(self, operations: Sequence[StoreOperation], outcomes: list[Outcome]) -> None:
        for operation, outcome in zip(operations, outcomes, strict=True):
            kind = watch_kind(operation)
            if kind is None:
                continue
            parent, _ = parent_and_name(outcome.path)
            self._tell(outcome.path, WatchEvent(kind, outcome.path))
            if kind is not WatchKind.CHANGED:
                self._tell(f"{parent.rstrip('/')}/", WatchEvent(WatchKind.CHANGED, parent))

    def _tell(self, key: str, event: WatchEvent) -> None:
        for watched, callback in list(self._watches.values()):
            if watched == key:
                notify_safely(callback, event)  # the change is committed, whatever a watch does


def watch_kind(operation: StoreOperation) -> WatchKind | None:
    match operation:
        case CreateNode():
            return WatchKind.CREATED
        case DeleteNode():
            return WatchKind.DELETED
        case CheckNode():
            return None
        case _:
            return WatchKind.CHANGED
