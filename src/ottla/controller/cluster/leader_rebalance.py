"""Periodic changes of leaders by the active controller: preferred leaders and demoted brokers.

If too many partitions are not led by their preferred replicas, leadership returns to these: shortly after an election,
then every leader.imbalance.check.interval.seconds. So a restarted broker gets its share again. Demoted brokers (slow or
in maintenance) do not become leaders, and other brokers lead their partitions.

A change of settings demotes a broker in the same write (controller.py). This module only handles changes by the clock;
which leaders change is decided in decisions/leader_rebalance.py and decisions/demoted_brokers.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ottla.base import tasks
from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.base.errors import KafkaError
from ottla.controller.cluster.admin_nodes import AdminRequests
from ottla.controller.cluster.controller import ClusterController
from ottla.controller.cluster.store_watches import StoreWatches
from ottla.controller.decisions.demoted_brokers import SlowBrokerDetector, brokers_in_maintenance, with_slow_disks
from ottla.controller.decisions.leader_rebalance import decide_leader_rebalance
from ottla.controller.image import MetadataCache, MetadataImage
from ottla.controller.stores.store import MetadataStore, StoreError

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 1.0
SLOW_CHECK_MS: Final = 5_000  # between two checks for slow brokers
FIRST_CHECK_SECONDS: Final = 5  # from the election to the first check


class BrokerDemotion:
    """Moves leaders from demoted brokers while its broker is the controller."""

    def __init__(
        self,
        controller: ClusterController,
        clock: Clock,
        settings: Callable[[], BrokerSettings],
        own_sync_ms: Callable[[], int],
    ) -> None:
        """`own_sync_ms` returns the sync time of this broker, which does not poll itself."""
        self._controller = controller
        self._own_sync_ms = own_sync_ms
        self._clock = clock
        self._settings = settings
        self._brokers = SlowBrokerDetector()
        self._checked_ms: int | None = None
        self._logged_maintenance: frozenset[int] = frozenset()  # as last logged
        self._reconciled: frozenset[int] = frozenset()  # demoted brokers whose leaders were moved

    def reset(self) -> None:
        """Discard the state of an earlier epoch, after an election of this broker."""
        self._brokers.reset()
        self._controller.slow_brokers = frozenset()
        self._checked_ms = None
        self._reconciled = frozenset()

    async def run(self, epoch: int) -> None:
        while self._controller.image.controller_epoch == epoch:
            if self._controller.is_active:
                try:
                    await self._check()
                except (KafkaError, StoreError) as problem:  # the next check may succeed
                    logger.warning("[Controller] leaders could not be moved from demoted brokers: %s", problem)
            await asyncio.sleep(TICK_SECONDS)

    async def _check(self) -> None:
        self._update_slow_brokers()
        self._log_maintenance(brokers_in_maintenance(self._controller.image, self._clock.now_ms()))
        resting = self._controller.update_demoted()
        if not resting <= self._reconciled:
            await self._controller.reconcile_leaders(self._controller.index.topics_of(resting - self._reconciled))
        self._reconciled = resting

    def _update_slow_brokers(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._checked_ms is not None and now_ms - self._checked_ms < SLOW_CHECK_MS:
            return
        self._checked_ms = now_ms
        image = self._controller.image
        settings = self._settings()
        before, after_ms = self._brokers.slow, settings.ottla_heal_slow_after_ms
        found = self._controller.index.replica_lags(image.brokers) if after_ms >= 0 else {}
        reported = {**self._controller.heartbeats.sync_ms, image.controller_id: self._own_sync_ms()}
        found = with_slow_disks(found, reported, settings.ottla_heal_slow_sync_ms)
        slow = self._controller.slow_brokers = self._brokers.update(image, found, now_ms, after_ms)
        for broker in sorted(slow - before):
            logger.warning(
                "[Controller] broker %d is slow: %s for %d s; its leaders move to other brokers",
                broker,
                found[broker].reason,
                after_ms // 1000,
            )
        for broker in sorted(before - slow):
            logger.info("[Controller] broker %d is not slow any more, or is not registered", broker)

    def _log_maintenance(self, maintained: frozenset[int]) -> None:
        for broker in sorted(maintained - self._logged_maintenance):
            logger.info("[Controller] broker %d is in maintenance; its leaders move to other brokers", broker)
        for broker in sorted(self._logged_maintenance - maintained):
            logger.info("[Controller] the maintenance of broker %d has ended", broker)
        self._logged_maintenance = maintained

    def __repr__(self) -> str:
        return f"<BrokerDemotion {sorted(self._reconciled)} {self._brokers!r}>"


class LeaderRebalancer:
    """Active while its broker is the controller. All calls are made on the loop."""

    def __init__(
        self,
        store: MetadataStore,
        controller: ClusterController,
        images: MetadataCache,
        watches: StoreWatches,
        settings: Callable[[], BrokerSettings],
        clock: Clock,
        own_sync_ms: Callable[[], int] = int,
    ) -> None:
        self.admin_nodes = AdminRequests(store, controller, images, watches)
        self._controller = controller
        self._settings = settings
        self._demotion = BrokerDemotion(controller, clock, settings, own_sync_ms)
        self._epoch = -1  # of the election that the tasks below belong to
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        images.add_listener(self._on_image)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = ()

    def _on_image(self, _: MetadataImage, new: MetadataImage) -> None:
        """Restart the timers with every election of this broker."""
        if self._controller.is_active and new.controller_epoch != self._epoch:
            self.stop()
            self._epoch = new.controller_epoch
            self._demotion.reset()
            epoch = new.controller_epoch
            self._tasks = (
                tasks.spawn_restarting(self._run, "leader balance"),
                tasks.spawn_restarting(lambda: self._demotion.run(epoch), "demotion of brokers"),
            )

    async def _run(self) -> None:
        seconds = min(FIRST_CHECK_SECONDS, self._settings().leader_imbalance_check_interval_seconds)
        while True:
            await asyncio.sleep(seconds)
            if self._controller.image.controller_epoch != self._epoch:
                return
            seconds = self._settings().leader_imbalance_check_interval_seconds
            if self._settings().auto_leader_rebalance_enable and self._controller.is_active:
                await self._rebalance()

    async def _rebalance(self) -> None:
        percentage = self._settings().leader_imbalance_per_broker_percentage
        try:
            count = await self._controller.change(
                lambda image: decide_leader_rebalance(image, percentage, self._controller.liveness),
                size=self._controller.image.partition_count,
            )
        except (KafkaError, StoreError) as problem:  # the next round may succeed
            logger.warning("[Controller] leaders could not be balanced: %s", problem)
            return
        if count:
            logger.info("[Controller] leadership of %d partitions returned to the preferred replicas", count)

    def __repr__(self) -> str:
        return f"<LeaderRebalancer {'active' if self._controller.is_active else 'inactive'} {self.admin_nodes!r}>"
