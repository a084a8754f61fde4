"""Times without garbage collection: for work with hundreds of thousands of objects, of which none is garbage."""

from __future__ import annotations

import asyncio
import gc
from typing import Final

SECONDS_MAX: Final = 60.0  # on a busy machine the longest requests take half a minute


class Uncollected:
    """No collection while a long request is at work: it would look at each of its rows, and stop every thread for that.

    There is nothing to find, rows are in no cycle, and when they are freed the next collection is a short one.
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
        return f"<Uncollected {self._requests} requests>"


uncollected: Final = Uncollected()  # one, as there is one collector


def settle_garbage_collector() -> None:
    """What was loaded stays: no collection looks at it again. Requests leave no cycles, so few collections do."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
