"""The base of background work of the active controller whose state is in a journal (journals.py).

Rules:
1. The work starts with every election of this broker and ends when another one is elected. The work pauses without a
session with the store.
2. The journal is read after the election, and again after any failure, because the outcome of a write is unknown then.
   If it cannot be read, the work is disabled.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, Generic, Protocol, TypeVar

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.errors import KafkaError
from ottla.base.logs import LogLimiter
from ottla.controller import tree
from ottla.controller.cluster.controller import ClusterController
from ottla.controller.image import MetadataCache, MetadataImage
from ottla.controller.self_balancing.journals import PARENT, JournalFormat, JournalNode
from ottla.controller.service import Decide
from ottla.controller.stores.store import MetadataStore, StoreError

logger = logging.getLogger(__name__)

LOG_INTERVAL_MS: Final = 60_000

J = TypeVar("J")
J_co = TypeVar("J_co", covariant=True)


class HasJournal(Protocol[J_co]):
    """The reply of a step, with the journal after it."""

    @property
    def journal(self) -> J_co: ...


R = TypeVar("R", bound=HasJournal[Any])


class JournalDriver(Generic[J]):
    """One kind of work; active while its broker is the controller. All calls are made on the loop."""

    NAME = ""  # in log messages
    IS_URGENT = False  # whether its changes are urgent (ControllerService.change)

    def __init__(
        self,
        store: MetadataStore,
        controller: ClusterController,
        images: MetadataCache,
        clock: Clock,
        form: JournalFormat[J],
    ) -> None:
        self._store = store
        self._controller = controller
        self._clock = clock
        self._form = form
        self._epoch = -1  # of the election that the task below belongs to
        self._task: asyncio.Task[None] | None = None
        self._node: JournalNode[J] | None = None  # None: it must be read
        self._problem = ""  # the reason why the journal cannot be read
        self._log_limiter = LogLimiter(LOG_INTERVAL_MS)
        images.add_listener(self._on_image)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _on_image(self, _: MetadataImage, new: MetadataImage) -> None:
        if self._controller.is_active and new.controller_epoch != self._epoch:
            self.stop()
            self._epoch = new.controller_epoch
            self._node = None
            self._reset()
            self._task = tasks.spawn_restarting(self._run, self.NAME)

    # ---- overridden by the kinds of work

    def _reset(self) -> None:
        """Discard the state of an earlier epoch, after an election of this broker."""

    async def _pause(self) -> None:
        """Wait between two rounds."""
        raise NotImplementedError

    async def _round(self, node: JournalNode[J]) -> None:
        """Run one round of the work."""
        raise NotImplementedError

    def _on_store_unavailable(self) -> None:
        """Handle a skipped round, without a session with the store."""

    # ---- rounds

    async def _run(self) -> None:
        while True:
            await self._pause()
            if self._controller.image.controller_epoch != self._epoch:
                return
            if not self._controller.is_active:
                self._on_store_unavailable()
                continue
            try:
                node = await self._read_journal()
                if node is not None:
                    await self._round(node)
            except (KafkaError, StoreError) as problem:  # the next round may succeed
                self._node = None
                if self._log_limiter.is_due(self._clock.monotonic_ms()):
                    logger.warning("[Controller] %s could not continue: %s", self.NAME, problem)

    async def _read_journal(self) -> JournalNode[J] | None:
        """Read the journal; None if it cannot be read."""
        if self._node is not None:
            return self._node
        found = await self._store.get(self._form.path)
        has_parent = found is not None or await self._store.get(PARENT) is not None
        try:
            node = self._form.read(found, has_parent=has_parent)
        except tree.DamagedNodeError as damage:
            name = self.NAME.capitalize()
            problem = (
                f"{damage}. {name} is disabled until the node is restored, or deleted if none of its moves is active"
            )
            if problem != self._problem:
                self._problem = problem
                logger.error("[Controller] %s", problem)
            return None
        self._problem = ""
        self._node = node
        return node

    async def _change(self, decide: Decide[R], size: int) -> R:
        """Write a step. The outcome of a failed write is unknown, so the journal is read again then."""
        node = self._node
        assert node is not None, "a step needs a journal"
        try:
            reply = await self._controller.change(decide, size=size, is_urgent=self.IS_URGENT)
        except BaseException:
            self._node = None
            raise
        if reply.journal != node.journal:
            self._node = node.after(reply.journal)
        return reply
