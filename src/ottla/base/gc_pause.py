"""Pauses of the garbage collector, for work with hundreds of thousands of objects, none of which is garbage."""

from __future__ import annotations

import asyncio
import gc
from typing import Final

SECONDS_MAX: Final = 60.0  # on a busy machine the longest requests take half a minute


class CollectorPause:
    """Disables the collector while a long request runs: a collection would visit each of its rows and stop every
    thread.

    There is nothing to collect: rows are in no cycle, and after they are freed the next collection is short.
    """

    def __init__(self) -> None:
        self._requests = 0
        self._longest: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self._requests += 1
        if self._requests == 1:
            gc.disable()
            self._longest = asyncio.get_running_loop().call_later(SECONDS_MAX, gc.enable)

    def end(self, _: object = None) -> None:
        self._requests -= 1
        if self._requests == 0 and self._longest is not None:
            self._longest.cancel()
            gc.enable()

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *_: object) -> None:
        self.end()

    def __repr__(self) -> str:
        return f"<CollectorPause {self._requests} requests>"


collector_pause: Final = CollectorPause()  # one, because the process has one collector


def configure_collector() -> None:
    """Freeze the loaded objects, so that collections skip them. Requests leave no cycles, so collections can be
    rare."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
