"""Who rests, by the clock: maintenance begins and ends, brokers become slow and well again.

A change of the settings counts in the write that makes it (controller.py). What only time changes is seen here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from ottla.base.clock import Clock
from ottla.base.errors import KafkaError
from ottla.controller.cluster.controller import ClusterController
from ottla.controller.decisions.maintenance import brokers_in_maintenance
from ottla.controller.decisions.slow_brokers import SlowBrokers, with_disks
from ottla.controller.stores.store import StoreError

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 1.0
COUNT_MS: Final = 5_000  # between two looks at all brokers


class ReliefSettings(Protocol):
    """The settings that decide who is slow."""

    @property
    def ottla_heal_slow_after_ms(self) -> int: ...

    @property
    def ottla_heal_slow_sync_ms(self) -> int: ...


class Relief:
    """At work while its broker is the controller; upkeep.py starts and ends it with every election."""

    def __init__(
        self,
        controller: ClusterController,
        clock: Clock,
        settings: Callable[[], ReliefSettings],
        own_sync_ms: Callable[[], int],
    ) -> None:
        """`own_sync_ms`: of this broker, which polls nobody."""
        self._controller = controller
        self._own_sync_ms = own_sync_ms
        self._clock = clock
        self._settings = settings
        self._brokers = SlowBrokers()
        self._counted_ms: int | None = None
        self._maintained: frozenset[int] = frozenset()  # as told in the log
        self._settled: frozenset[int] = frozenset()  # whose leaderships were given away

    def begin(self) -> None:
        """This broker was elected: what an earlier time has seen counts no more."""
        self._brokers.forget()
        self._controller.slow = frozenset()
        self._counted_ms = None
        self._settled = frozenset()

    async def run(self, epoch: int) -> None:
        while self._controller.image.controller_epoch == epoch:
            if self._controller.is_active:
                try:
                    await self._look()
                except (KafkaError, StoreError) as problem:  # the next look may succeed
                    logger.warning("[Controller] leaders could not be taken from brokers that rest: %s", problem)
            await asyncio.sleep(TICK_SECONDS)

    async def _look(self) -> None:
        self._look_for_slow()
        self._tell_maintenance(brokers_in_maintenance(self._controller.image, self._clock.now_ms()))
        resting = self._controller.note_resting()
        if not resting <= self._settled:
            await self._controller.settle(self._controller.index.topics_of(resting - self._settled))
        self._settled = resting

    def _look_for_slow(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._counted_ms is not None and now_ms - self._counted_ms < COUNT_MS:
            return
        self._counted_ms = now_ms
        image = self._controller.image
        settings = self._settings()
        before, after_ms = self._brokers.slow, settings.ottla_heal_slow_after_ms
        found = self._controller.index.shares(image.brokers) if after_ms >= 0 else {}
        told = {**self._controller.broker_liveness.sync_ms, image.controller_id: self._own_sync_ms()}
        found = with_disks(found, told, settings.ottla_heal_slow_sync_ms)
        slow = self._controller.slow = self._brokers.look(image, found, now_ms, after_ms)
        for broker in sorted(slow - before):
            logger.warning(
                "[Controller] broker %d is slow: %s, for %d s, so others lead instead",
                broker,
                found[broker].reason,
                after_ms // 1000,
            )
        for broker in sorted(before - slow):
            logger.info("[Controller] broker %d is not slow any more, or is gone", broker)

    def _tell_maintenance(self, maintained: frozenset[int]) -> None:
        for broker in sorted(maintained - self._maintained):
            logger.info("[Controller] broker %d is in maintenance: others lead where they can", broker)
        for broker in sorted(self._maintained - maintained):
            logger.info("[Controller] the maintenance of broker %d is over", broker)
        self._maintained = maintained

    def __repr__(self) -> str:
        return f"<Relief {sorted(self._settled)} {self._brokers!r}>"
