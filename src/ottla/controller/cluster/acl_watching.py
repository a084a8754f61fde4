"""Access rules that somebody else has written into the store: tools of Kafka 3.x leave a notice for each change.

At work on the active controller. Notices go after a while, as in Kafka: other brokers may want to read them, too.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from ottla.base.clock import Clock
from ottla.controller.acl_nodes import CHANGES, acl_path, changed_pattern
from ottla.controller.cluster.controller import ClusterController
from ottla.controller.decisions.acl_changes import decide_external_acls
from ottla.controller.stores.store import Node, SessionStore
from ottla.security.acls import ResourcePattern

logger = logging.getLogger(__name__)

NOTICE_KEPT_MS: Final = 15 * 60 * 1000


class AclWatching:
    """What is looked at is decided by watching.py."""

    def __init__(
        self,
        store: SessionStore,
        controller: ClusterController,
        clock: Clock,
        delete: Callable[[Iterable[str]], Awaitable[None]],
    ) -> None:
        self._store = store
        self._controller = controller
        self._clock = clock
        self._delete = delete
        self._seen: dict[str, int] = {}  # notices by path, and when they were seen

    def begin(self) -> None:
        self._seen.clear()

    async def look(self) -> None:
        paths = [f"{parent}/{name}" for parent in CHANGES for name in await self._store.children(parent)]
        new = [path for path in paths if path not in self._seen]
        notices = [await self._store.get(path) for path in new]
        patterns = {pattern for node in notices if node is not None and (pattern := changed_pattern(node.data))}
        if patterns:
            await self._read(sorted(patterns))
        now_ms = self._clock.monotonic_ms()
        self._seen.update(dict.fromkeys(new, now_ms))
        await self._purge(paths, now_ms)

    async def _read(self, patterns: list[ResourcePattern]) -> None:
        async def read() -> dict[str, Node]:
            nodes = {path: await self._store.get(path) for path in map(acl_path, patterns)}
            return {path: node for path, node in nodes.items() if node is not None}

        count = await self._controller.change_after_reading(
            read, lambda image, nodes: decide_external_acls(image, patterns, nodes)
        )
        if count:
            logger.info("[Controller] access rules of %d resources were changed in the store by somebody else", count)

    async def _purge(self, paths: list[str], now_ms: int) -> None:
        listed = set(paths)
        old = [path for path, seen_ms in self._seen.items() if now_ms - seen_ms > NOTICE_KEPT_MS]
        await self._delete([path for path in old if path in listed])
        for path in old:
            del self._seen[path]

    def __repr__(self) -> str:
        return f"<AclWatching {len(self._seen)} notices>"
