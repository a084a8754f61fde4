"""What an active controller does by itself, by the clock and by what others write into the store.

Leadership goes back to the preferred replicas where too much of it has strayed, first shortly after an election, then
every leader.imbalance.check.interval.seconds: a broker that was restarted gets its share of the work again. One that
rests gets none, and gives away what it has (relief.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.errors import KafkaError
from ottla.controller.cluster.admin_nodes import AdminNodes
from ottla.controller.cluster.controller import ClusterController
from ottla.controller.cluster.relief import Relief, ReliefSettings
from ottla.controller.cluster.watching import ControllerWatches
from ottla.controller.decisions.preferred import decide_balance
from ottla.controller.holder import ImageHolder
from ottla.controller.image import MetadataImage
from ottla.controller.stores.store import MetadataStore, StoreError

logger = logging.getLogger(__name__)

FIRST_SECONDS: Final = 5


class BalanceSettings(ReliefSettings, Protocol):
    """The settings that the upkeep goes by."""

    @property
    def auto_leader_rebalance_enable(self) -> bool: ...

    @property
    def leader_imbalance_check_interval_seconds(self) -> int: ...

    @property
    def leader_imbalance_per_broker_percentage(self) -> int: ...


class Upkeep:
    """One a broker; at work while its broker is the controller. All calls are made on the loop."""

    def __init__(
        self,
        store: MetadataStore,
        controller: ClusterController,
        images: ImageHolder,
        watches: ControllerWatches,
        settings: Callable[[], BalanceSettings],
        clock: Clock,
        own_sync_ms: Callable[[], int] = int,
    ) -> None:
        self.admin_nodes = AdminNodes(store, controller, images, watches)
        self._controller = controller
        self._settings = settings
        self._relief = Relief(controller, clock, settings, own_sync_ms)
        self._epoch = -1  # of the election that the tasks below belong to
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        images.on_image(self._on_image)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = ()

    def _on_image(self, _: MetadataImage, new: MetadataImage) -> None:
        """Every election of this broker starts the clock anew."""
        if self._controller.is_active and new.controller_epoch != self._epoch:
            self.stop()
            self._epoch = new.controller_epoch
            self._relief.begin()
            epoch = new.controller_epoch
            self._tasks = (
                tasks.keep_running(self._balance_by_the_clock, "leader balance"),
                tasks.keep_running(lambda: self._relief.run(epoch), "relief of leaders"),
            )

    async def _balance_by_the_clock(self) -> None:
        seconds = min(FIRST_SECONDS, self._settings().leader_imbalance_check_interval_seconds)
        while True:
            await asyncio.sleep(seconds)
            if self._controller.image.controller_epoch != self._epoch:
                return
            seconds = self._settings().leader_imbalance_check_interval_seconds
            if self._settings().auto_leader_rebalance_enable and self._controller.is_active:
                await self._balance()

    async def _balance(self) -> None:
        percentage = self._settings().leader_imbalance_per_broker_percentage
        try:
            count = await self._controller.change(
                lambda image: decide_balance(image, percentage, self._controller.liveness),
                size=self._controller.image.partition_count,
            )
        except (KafkaError, StoreError) as problem:  # the next round may succeed
            logger.warning("[Controller] leaders could not be balanced: %s", problem)
            return
        if count:
            logger.info("[Controller] %d partitions are led by their preferred replica again", count)

    def __repr__(self) -> str:
        return f"<Upkeep {'at work' if self._controller.is_active else 'waiting'} {self.admin_nodes!r}>"
