"""Persistent watches. ZooKeeper's watches fire once and end with the connection; these are set again each time.

Rule: the owner is called after the watch is set again. So the owner's read includes earlier changes, later changes fire
the new watch, and no change is missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.protocol.states import EventType

from ottla.controller.stores.store import WatchCallback, WatchEvent, WatchKind
from ottla.controller.stores.zookeeper.client import LoopResult, cross

logger = logging.getLogger(__name__)

ABSENT: Final = 0  # the creation id of a node that does not exist
UNKNOWN: Final = -1
ARMED_AT_ONCE: Final = 100

# Sends get_children() (True) or exists() (False) with a watch function.
Arm = Callable[[str, bool, Callable[[Any], None]], LoopResult]


class Watch:
    """One watch of one owner. `round` identifies the responses to the latest request; older ones are ignored."""

    def __init__(self, path: str, is_of_children: bool, callback: WatchCallback) -> None:
        self.path = path
        self.is_of_children = is_of_children
        self.callback = callback
        self.round = 0
        self.seen = UNKNOWN  # the creation id (czxid) of the node
        self.is_ended = False

    def __repr__(self) -> str:
        return f"<Watch {self.path}{'/*' if self.is_of_children else ''} round={self.round}>"


class Watches:
    """All watches of a store; all methods except `_cross` run on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, arm: Arm) -> None:
        self._loop = loop
        self._arm = arm
        self._watches: dict[Watch, None] = {}
        self._to_arm: deque[Watch] = deque()

    def __len__(self) -> int:
        return len(self._watches)

    def add(
        self, path: str, is_of_children: bool, callback: WatchCallback, *, is_connected: bool
    ) -> Callable[[], None]:
        """Add a watch, which is set at once if connected:

        a read after this call includes all changes before the watch.
        """
        watch = Watch(path, is_of_children, callback)
        self._watches[watch] = None
        if is_connected:
            self._send(watch, must_tell=False)

        def end_watch() -> None:
            if not watch.is_ended:
                watch.is_ended = True
                del self._watches[watch]

        return end_watch

    def arm_all(self) -> None:
        """Set all watches and call all owners after a new connection. There may be thousands of them."""
        self._to_arm = deque(self._watches)
        self._arm_some()

    def _arm_some(self) -> None:
        for watch in [self._to_arm.popleft() for _ in range(min(ARMED_AT_ONCE, len(self._to_arm)))]:
            if not watch.is_ended:
                self._send(watch, must_tell=True)
        if self._to_arm:
            self._loop.call_soon(self._arm_some)

    def _send(self, watch: Watch, *, must_tell: bool, is_for_children: bool | None = None) -> None:
        watch.round += 1
        wants_children = watch.is_of_children if is_for_children is None else is_for_children
        result = self._arm(watch.path, wants_children, partial(self._cross, watch, watch.round))
        result.future.add_done_callback(partial(self._on_armed, watch, watch.round, must_tell, wants_children))

    def _cross(self, watch: Watch, number: int, event: Any) -> None:
        cross(self._loop, self._on_event, watch, number, event)

    def _on_event(self, watch: Watch, number: int, event: Any) -> None:
        """Set the watch again; after a lost connection arm_all() does that."""
        if number == watch.round and not watch.is_ended and event.type != EventType.NONE:
            self._send(watch, must_tell=True)

    def _on_armed(
        self, watch: Watch, number: int, must_tell: bool, wants_children: bool, future: asyncio.Future[Any]
    ) -> None:
        error = None if future.cancelled() else future.exception()
        if number != watch.round or watch.is_ended or future.cancelled():
            return
        if isinstance(error, NoNodeError):  # first wait for the node itself
            self._send(watch, must_tell=must_tell, is_for_children=False)
        elif error is None and watch.is_of_children and not wants_children and future.result() is not None:
            self._send(watch, must_tell=True)  # the node exists now
        elif error is None:
            kind = self._kind(watch, wants_children, future.result())
            if must_tell:
                self._tell(watch, kind)
        elif not isinstance(error, KazooException):
            logger.error("the watch of %s cannot be set", watch.path, exc_info=error)

    def _kind(self, watch: Watch, wants_children: bool, stat: Any) -> WatchKind:
        if watch.is_of_children or wants_children:
            return WatchKind.CHANGED
        before, watch.seen = watch.seen, ABSENT if stat is None else stat.czxid
        if watch.seen == before:
            return WatchKind.CHANGED
        return WatchKind.DELETED if watch.seen == ABSENT else WatchKind.CREATED

    def _tell(self, watch: Watch, kind: WatchKind) -> None:
        try:
            watch.callback(WatchEvent(kind, watch.path))
        except Exception:
            logger.exception("a watch of %s failed", watch.path)
