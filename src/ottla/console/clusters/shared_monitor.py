"""The monitor of one cluster, for verdicts in pages and for alerts: begun for the first who wants it, ended with the
last. Commits are read once, whoever asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.monitor.cluster_monitor import ClusterMonitor


class SharedMonitor:
    """`open` and `close` belong together; both on the event loop."""

    def __init__(self, make: Callable[[], ClusterMonitor]) -> None:
        self._make = make  # blocking; raises ClientError
        self._monitor: ClusterMonitor | None = None
        self._users = 0
        self._changing = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<SharedMonitor {self._users} users, {self._monitor}>"

    async def open(self) -> ClusterMonitor:
        """Raises ClientError where no monitor can be made."""
        async with self._changing:
            if self._monitor is None:
                self._monitor = await asyncio.to_thread(self._make)
                self._monitor.start()
            self._users += 1
            return self._monitor

    async def close(self) -> None:
        async with self._changing:
            self._users -= 1
            if self._users == 0 and self._monitor is not None:
                monitor, self._monitor = self._monitor, None
                await monitor.stop()
