"""Notices of changes that somebody else has written into the store: Kafka 3.x leaves a node for each.

At work on the active controller. Notices go after a while, as in Kafka: other brokers may want to read them, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, TypeVar

from ottla.base.clock import Clock
from ottla.controller.stores.store import SessionStore

NOTICE_KEPT_MS: Final = 15 * 60 * 1000

T = TypeVar("T")

Delete = Callable[[Iterable[str]], Awaitable[None]]


class Notices(Generic[T]):
    """Those of one kind; when they are looked at is decided by watching.py."""

    def __init__(
        self,
        store: SessionStore,
        clock: Clock,
        delete: Delete,
        parents: tuple[str, ...],
        subject_of: Callable[[bytes], T | None],
        take: Callable[[set[T]], Awaitable[None]],
    ) -> None:
        """`subject_of` reads whom a notice is about, None if it cannot; `take` looks at those in the store."""
        self._store = store
        self._clock = clock
        self._delete = delete
        self._parents = parents
        self._subject_of = subject_of
        self._take = take
        self._seen: dict[str, int] = {}  # notices by path, and when they were seen

    def begin(self) -> None:
        self._seen.clear()

    async def look(self) -> None:
        paths = [f"{parent}/{name}" for parent in self._parents for name in await self._store.children(parent)]
        new = [path for path in paths if path not in self._seen]
        nodes = [await self._store.get(path) for path in new]
        subjects = {
            subject for node in nodes if node is not None and (subject := self._subject_of(node.data)) is not None
        }
        if subjects:
            await self._take(subjects)
        now_ms = self._clock.monotonic_ms()
        self._seen.update(dict.fromkeys(new, now_ms))
        await self._purge(paths, now_ms)

    async def _purge(self, paths: list[str], now_ms: int) -> None:
        listed = set(paths)
        old = [path for path, seen_ms in self._seen.items() if now_ms - seen_ms > NOTICE_KEPT_MS]
        await self._delete([path for path in old if path in listed])
        for path in old:
            del self._seen[path]

    def __repr__(self) -> str:
        return f"<Notices below {', '.join(self._parents)}: {len(self._seen)}>"
