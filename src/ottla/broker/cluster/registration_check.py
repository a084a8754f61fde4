"""Check of this broker's registration after a pause or an isolation from the cluster.

A process that is stopped for longer than its session (SIGSTOP, a sleeping machine) has been replaced when it continues,
and does not know it yet. Followers do not acknowledge its appends. But its state of groups and transactions is old, and
a producer that is fenced because of old state would fail. After a long pause of the local clock, coordinators therefore
return COORDINATOR_LOAD_IN_PROGRESS until the store confirms that the registration in the image is the current one:
either it never ended, or the image is newer than the next registration.

The same applies to a broker without a response from the store for half a session, if no replica fetches the partitions
of its coordinators any more: other leaders may be elected soon. Half a session, because the store counts from the last
request that it received, which may be seconds before its last response. While the store is unreachable for all brokers,
followers continue to fetch.
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
    from ottla.controller.cluster.membership import ClusterMembership
    from ottla.replication.partition import Partition
    from ottla.replication.replica_set import ReplicaSet

logger = logging.getLogger(__name__)

SILENCE_MS_MIN: Final = 500
SESSION_DIVISOR: Final = 3  # no session ends within a third of its timeout
CHECKS_PER_SILENCE: Final = 4
RETRY_SECONDS: Final = 0.05
UNFETCHED_MS_MIN: Final = 1_000
MISSED_FETCHES_MAX: Final = 2  # a follower fetches at least every replica.fetch.wait.max.ms


WaitUntilApplied = Callable[[], Awaitable[None]]
"""Waits until the latest image has taken effect."""


class RegistrationCheck:
    """Detects pauses by the time between two iterations of the loop."""

    def __init__(
        self, node: Node, membership: ClusterMembership, replicas: ReplicaSet, settled: WaitUntilApplied
    ) -> None:
        self._node = node
        self._membership = membership
        self._replicas = replicas
        self._wait_until_applied = settled
        self._session_ms = node.settings.zookeeper_session_timeout_ms
        self._unfetched_ms = max(MISSED_FETCHES_MAX * node.settings.replica_fetch_wait_max_ms, UNFETCHED_MS_MIN)
        self._silence_ms_max = max(self._session_ms // SESSION_DIVISOR, SILENCE_MS_MIN)
        self._last_check_ms = node.clock.monotonic_ms()
        self._task: asyncio.Task[None] | None = None  # while the check runs
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._check()

    def is_pending(self) -> bool:
        """Return whether a check is pending.

        Called for every request: after a long pause requests are read before timers run.
        """
        silent_ms = self._node.clock.monotonic_ms() - self._last_check_ms
        if self._task is None and silent_ms > self._silence_ms_max:
            self._begin(f"was paused for {silent_ms} ms")
        return self._task is not None

    def _check(self) -> None:
        if not self.is_pending() and self._is_isolated():
            self._begin("reaches neither ZooKeeper nor its followers")
        self._last_check_ms = self._node.clock.monotonic_ms()
        seconds = self._silence_ms_max / CHECKS_PER_SILENCE / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self._check)

    def _begin(self, why: str) -> None:
        logger.info("this broker %s: checking whether its registration is still valid", why)
        self._task = tasks.spawn_restarting(self._wait_for_confirmation, "the registration check")

    async def _wait_for_confirmation(self) -> None:
        """Wait until the store confirms the registration, or has been unreachable for a session: then no other leader
        can be elected through it either. The session restarts while this broker is isolated, and while the registration
        is missing or replaced: such a broker must wait for a new image.
        """
        clock = self._node.clock
        deadline_ms = clock.monotonic_ms() + self._session_ms
        while clock.monotonic_ms() < deadline_ms:
            is_known = await self._is_registration_current()
            if is_known:
                break
            if is_known is False or self._is_isolated():
                deadline_ms = clock.monotonic_ms() + self._session_ms
            await asyncio.sleep(RETRY_SECONDS)
        await self._wait_until_applied()
        self._last_check_ms = clock.monotonic_ms()
        self._task = None

    def _is_isolated(self) -> bool:
        if self._membership.store_idle_ms() < self._session_ms // 2:
            return False
        since_ms = self._node.clock.monotonic_ms() - self._unfetched_ms
        coordinated = (
            partition for (topic, _), partition in self._replicas.partitions.items() if topic in INTERNAL_TOPICS
        )
        return any(is_without_fetching_followers(partition, since_ms) for partition in coordinated)

    async def _is_registration_current(self) -> bool | None:
        """Return whether the store has the registration of the image, or None without a response."""
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
        return f"<RegistrationCheck {'pending' if self._task is not None else 'idle'}>"


def is_without_fetching_followers(partition: Partition, since_ms: int) -> bool:
    """Return whether this broker leads the partition with in-sync followers, none of which has fetched lately."""
    followers = [follower for follower in partition.followers if follower.broker_id in partition.isr]
    return (
        partition.is_leader
        and bool(followers)
        and all(follower.last_fetch_time_ms < since_ms for follower in followers)
    )
