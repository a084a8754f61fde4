"""Drives work of the active controller that a journal (decisions/journals.py) carries from one controller to the next.

Rules:
1. It begins with every election and ends when another broker is elected. While this broker is out of touch with the
   store nothing is done.
2. The journal is read when this broker is elected, and again after any failure: nobody knows then what became of a
   write. A journal that cannot be read keeps the work off.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, Generic, Protocol, TypeVar

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.errors import KafkaError
from ottla.base.log_limiter import LogLimiter
from ottla.controller import tree
from ottla.controller.cluster.controller import ClusterController
from ottla.controller.decisions.journals import PARENT, JournalForm, JournalNode
from ottla.controller.holder import ImageHolder
from ottla.controller.image import MetadataImage
from ottla.controller.service import Decide
from ottla.controller.stores.store import MetadataStore, StoreError

logger = logging.getLogger(__name__)

COMPLAINT_MS: Final = 60_000

J = TypeVar("J")
J_co = TypeVar("J_co", covariant=True)


class Journaled(Protocol[J_co]):
    """What a step answers: the journal after it, and more."""

    @property
    def journal(self) -> J_co: ...


R = TypeVar("R", bound=Journaled[Any])


class JournalDriver(Generic[J]):
    """One a broker and kind of work; at work while its broker is the controller. All calls are made on the loop."""

    NAME = ""  # what it does, in the log
    IS_URGENT = False  # its changes go before others

    def __init__(
        self,
        store: MetadataStore,
        controller: ClusterController,
        images: ImageHolder,
        clock: Clock,
        form: JournalForm[J],
    ) -> None:
        self._store = store
        self._controller = controller
        self._clock = clock
        self._form = form
        self._epoch = -1  # of the election that the task below belongs to
        self._task: asyncio.Task[None] | None = None
        self._node: JournalNode[J] | None = None  # None: it has to be read
        self._problem = ""  # why the journal cannot be read
        self._log_limiter = LogLimiter(COMPLAINT_MS)
        images.on_image(self._on_image)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _on_image(self, _: MetadataImage, new: MetadataImage) -> None:
        if self._controller.is_active and new.controller_epoch != self._epoch:
            self.stop()
            self._epoch = new.controller_epoch
            self._node = None
            self._begin()
            self._task = tasks.keep_running(self._run, self.NAME)

    # ---- what differs

    def _begin(self) -> None:
        """This broker was elected: what an earlier time has seen counts no more."""

    async def _pause(self) -> None:
        """Between two rounds."""
        raise NotImplementedError

    async def _round(self, node: JournalNode[J]) -> None:
        """Look, and do what is to be done."""
        raise NotImplementedError

    def _note_out_of_touch(self) -> None:
        """A round was left out."""

    # ---- rounds

    async def _run(self) -> None:
        while True:
            await self._pause()
            if self._controller.image.controller_epoch != self._epoch:
                return
            if not self._controller.is_active:
                self._note_out_of_touch()
                continue
            try:
                node = await self._read_journal()
                if node is not None:
                    await self._round(node)
            except (KafkaError, StoreError) as problem:  # the next round may succeed
                self._node = None
                if self._log_limiter.is_due(self._clock.monotonic_ms()):
                    logger.warning("[Controller] %s could not go on: %s", self.NAME, problem)

    async def _read_journal(self) -> JournalNode[J] | None:
        """None: it cannot be read by this broker."""
        if self._node is not None:
            return self._node
        found = await self._store.get(self._form.path)
        has_parent = found is not None or await self._store.get(PARENT) is not None
        try:
            node = self._form.read(found, has_parent=has_parent)
        except tree.DamagedNodeError as damage:
            name = self.NAME.capitalize()
            problem = f"{damage}. {name} is off until the node is restored, or deleted when nothing of it is under way"
            if problem != self._problem:
                self._problem = problem
                logger.error("[Controller] %s", problem)
            return None
        self._problem = ""
        self._node = node
        return node

    async def _change(self, decide: Decide[R], size: int) -> R:
        """Have a step written. What becomes of a write that fails is not known: the journal is read again then."""
        node = self._node
        assert node is not None, "a step is decided from a journal"
        try:
            reply = await self._controller.change(decide, size=size, is_urgent=self.IS_URGENT)
        except BaseException:
            self._node = None
            raise
        if reply.journal != node.journal:
            self._node = node.after(reply.journal)
        return reply
