"""A broker that was held still, or is cut off, must find out whether it still is what it believes to be.

Who stops for longer than its session (SIGSTOP, a machine that sleeps) has successors when it goes on, and knows nothing
of them at first. What it is asked to write no follower confirms; but what it knows of groups and transactions is old,
and to tell a producer out of old knowledge that it is fenced would end it. So after a long silence of our own clock
coordinators say COORDINATOR_LOAD_IN_PROGRESS until the store shows that our registration is still the one that our
image knows: either it has never ended, or the image is newer than the registration that followed.

The same goes for one that has not heard of the store for half a session, if no replica copies the partitions of
coordinators from it any more: others may be elected soon. Half, because others count from the last that they heard of
us, which may be seconds before the last that we heard of the store; and whoever asks too early is told so by the store.
(While the store is away from everybody, followers go on.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ottla.base import tasks
from ottla.base.names import INTERNAL_TOPICS
from ottla.controller.stores.store import StoreError

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.controller.cluster.membership import Membership
    from ottla.replication.partition import Partition
    from ottla.replication.replica_set import ReplicaSet

logger = logging.getLogger(__name__)

SILENCE_MS_MIN: Final = 500
SESSION_PART: Final = 3  # no session ends within a third of its time
LOOKS_PER_SILENCE: Final = 4
RETRY_SECONDS: Final = 0.05
UNFETCHED_MS_MIN: Final = 1_000
FETCHES_MISSED: Final = 2  # of a follower that asks at least every replica.fetch.wait.max.ms


Settled = Callable[[], Awaitable[None]]
"""Waits until all that is known of the metadata has taken effect."""


class LeadershipCheck:
    """Watches the time that passes between two rounds of the loop."""

    def __init__(self, node: Node, membership: Membership, replicas: ReplicaSet, settled: Settled) -> None:
        self._node = node
        self._membership = membership
        self._replicas = replicas
        self._settled = settled
        self._session_ms = node.settings.zookeeper_session_timeout_ms
        self._unfetched_ms = max(FETCHES_MISSED * node.settings.replica_fetch_wait_max_ms, UNFETCHED_MS_MIN)
        self._silence_ms_max = max(self._session_ms // SESSION_PART, SILENCE_MS_MIN)
        self._seen_ms = node.clock.monotonic_ms()
        self._task: asyncio.Task[None] | None = None  # while we are in doubt
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._look()

    def is_pending(self) -> bool:
        """Asked with every request: after a long stop requests are read before any timer comes."""
        silent_ms = self._node.clock.monotonic_ms() - self._seen_ms
        if self._task is None and silent_ms > self._silence_ms_max:
            self._begin(f"was held still for {silent_ms} ms")
        return self._task is not None

    def _look(self) -> None:
        if not self.is_pending() and self._is_cut_off():
            self._begin("reaches neither ZooKeeper nor its followers")
        self._seen_ms = self._node.clock.monotonic_ms()
        seconds = self._silence_ms_max / LOOKS_PER_SILENCE / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _begin(self, why: str) -> None:
        logger.info("this broker %s: does it still lead what it led?", why)
        self._task = tasks.keep_running(self._find_out, "the leadership check")

    async def _find_out(self) -> None:
        """If the store cannot be reached for a whole session, nobody else could be elected through it either.

        Unless we are cut off: then the session begins to count when we are not any more. And unless the store says that
        our registration is gone, or another one: who stops, and was given up by the others meanwhile, has none to wait
        for, and never knows better.
        """
        clock = self._node.clock
        deadline_ms = clock.monotonic_ms() + self._session_ms
        while clock.monotonic_ms() < deadline_ms:
            is_known = await self._is_known()
            if is_known:
                break
            if is_known is False or self._is_cut_off():
                deadline_ms = clock.monotonic_ms() + self._session_ms
            await asyncio.sleep(RETRY_SECONDS)
        await self._settled()
        self._seen_ms = clock.monotonic_ms()
        self._task = None

    def _is_cut_off(self) -> bool:
        if self._membership.store_silent_ms() < self._session_ms // 2:
            return False
        since_ms = self._node.clock.monotonic_ms() - self._unfetched_ms
        coordinated = (
            partition for (topic, _), partition in self._replicas.partitions.items() if topic in INTERNAL_TOPICS
        )
        return any(is_left_alone(partition, since_ms) for partition in coordinated)

    async def _is_known(self) -> bool | None:
        """Whether the store has the registration that our image knows; None: it does not answer."""
        try:
            registered = await self._membership.locate(self._node.id)
        except StoreError:
            return None
        known = self._node.image.brokers.get(self._node.id)
        return registered is not None and known is not None and registered.epoch == known.epoch

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def __repr__(self) -> str:
        return f"<LeadershipCheck {'pending' if self._task is not None else 'idle'}>"


def is_left_alone(partition: Partition, since_ms: int) -> bool:
    """Whether we believe to lead it with others in sync, none of whom has fetched lately."""
    followers = [follower for follower in partition.followers if follower.broker_id in partition.in_sync]
    return partition.is_leader and bool(followers) and all(follower.fetched_ms < since_ms for follower in followers)
