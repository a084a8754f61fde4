"""How a broker that is not the controller learns what is: it polls the controller and applies the deltas that come.

The next poll acknowledges what came before, so it is sent when the change has taken effect here, or after a short
while. A connection that breaks is the first sign of a dead controller: if its port refuses, this broker stands for
election.

A broker that ZooKeeper has not answered for a session may have successors without knowing. The controller, if there is
one, knows: whom it does not count among the brokers any more leads nothing, and says so to its clients, until it can
register again. Without ZooKeeper for anybody there is no controller, and everybody goes on.

One that reaches ZooKeeper and not the controller asks ZooKeeper who leads. The controller gives up whoever has not
polled for a session; if others lead what this broker led it has been given up, and does the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.base import tasks
from ottla.base.errors import Error
from ottla.base.uncollected import uncollected
from ottla.broker.cluster.peers import Peers
from ottla.broker.long_messages import free, is_long
from ottla.controller import tree
from ottla.controller.cluster.broker_liveness import patience_ms
from ottla.controller.cluster.deltas import DeltaMismatchError, Place, apply_deltas
from ottla.controller.cluster.membership import Membership
from ottla.controller.decisions import ottla_version
from ottla.controller.holder import ImageHolder
from ottla.controller.image import NO_CONTROLLER, MetadataImage
from ottla.controller.stores.store import SessionStore, StoreError
from ottla.network.peer import Peer, PeerError
from ottla.protocol.messages.cluster_poll import ClusterPollRequest, ClusterPollResponse, OfflineReplicas
from ottla.security.acls import Acls

logger = logging.getLogger(__name__)

WAIT_MS: Final = 3000
SLACK_MS: Final = 3000  # for an answer that is on its way
SETTLE_SECONDS_MAX: Final = 0.5
PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MAX: Final = 1.0
NO_SEQUENCE: Final = -1
NOT_COUNTED_ON: Final = "the controller does not count on this broker any more, and ZooKeeper cannot be reached"
ASKED_ABOUT_MAX: Final = 10  # partitions: whoever is given up loses all of them
ASK_AROUND_MS: Final = 4000  # a controller thinks for two seconds about brokers that it does not know


class PollLoop:
    """One task for the life of a broker; idle while the broker itself is the controller."""

    def __init__(
        self,
        membership: Membership,
        images: ImageHolder,
        peers: Peers,
        settled: Callable[[], Awaitable[None]],
        offline: Callable[[], list[OfflineReplicas]] = list,
        sync_ms: Callable[[], int] = int,
    ) -> None:
        self._membership = membership
        self._images = images
        self._peers = peers
        self._settled = settled
        self._offline = offline
        self._sync_ms = sync_ms
        self._epoch = -1  # of the controller whose deltas were applied last
        self._sequence = NO_SEQUENCE
        self.refusal: str | None = None  # why the controller does not want this broker
        self._pause_seconds = PAUSE_SECONDS
        self._heard_at = -math.inf  # when a controller has told something last, by the loop's clock
        self._nudged = asyncio.Event()
        self._asked: list[OfflineReplicas] = []  # what the last poll told
        self.told: list[OfflineReplicas] = []  # what the image that is in force follows: the controller knew it
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = tasks.keep_running(self._run, "polling the controller")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def nudge(self) -> None:
        """There is something to tell the controller (a folder has failed): do not wait for its answer."""
        self._nudged.set()

    async def _run(self) -> None:
        membership = self._membership
        while True:
            elected = membership.controller_id
            if membership.is_controller or elected in (-1, membership.node_id) or membership.broker_epoch < 0:
                self._sequence = NO_SEQUENCE
                if elected == NO_CONTROLLER and membership.broker_epoch >= 0 and not membership.is_in_touch():
                    await self._ask_around()
                await wait_for_event(membership.controller_changed, PAUSE_SECONDS_MAX)
                continue
            try:
                await self._follow(elected)
            except StoreError as problem:
                logger.warning("cannot look for the controller: %s", problem)
                await self._pause()
            except Exception:  # one of the loops that own a task
                logger.exception("polling broker %d failed", elected)
                self._sequence = NO_SEQUENCE
                await self._pause()

    async def _follow(self, elected: int) -> None:
        """Poll one controller until it is none any more, or cannot be reached."""
        await self._locate(elected)
        try:
            peer = self._peers.open(elected, "poll")
        except PeerError as problem:
            logger.warning("%s", problem)
            await self._pause()
            return
        try:
            while self._membership.controller_id == elected and not self._membership.is_controller:
                answer = await self._ask(peer)
                if answer is None:
                    continue
                if not await self._take(answer):
                    return
        except PeerError as problem:
            logger.info("the controller, broker %d, does not answer: %s", elected, problem)
            if problem.is_refused:
                await self._membership.suspect_controller(elected)
            elif await self._is_given_up():
                await self._abdicate("the controller cannot be reached, and has others lead what this broker led")
            await self._pause()
        finally:
            peer.close()

    async def _locate(self, elected: int) -> None:
        """The image may not know yet where the controller is, or know its address of an earlier life."""
        image = self._images.image
        try:
            broker = await self._membership.locate(elected)
        except StoreError:
            if elected not in image.brokers:
                raise
            return
        image = self._images.image
        known = image.brokers.get(elected)
        if broker is not None and (known is None or known.epoch != broker.epoch):
            self._images.publish(image.with_brokers({**image.brokers, elected: broker}))

    async def _ask(self, peer: Peer) -> ClusterPollResponse | None:
        """One poll; None if there is a reason to ask again, or another controller."""
        request = self._request(WAIT_MS)
        self._asked = request.offline
        call = tasks.ask(peer.call(request, ClusterPollResponse, timeout_ms=WAIT_MS + SLACK_MS), "a poll")
        moved = tasks.ask(self._membership.controller_changed.wait(), "another controller")
        nudged = tasks.ask(self._nudged.wait(), "something to tell the controller")
        try:
            await asyncio.wait((call, moved, nudged), return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                return call.result()
            if nudged.done():  # the answer that is still to come is lost with its connection: it comes again
                self._nudged.clear()
                raise PeerError("asking again")
            return None
        finally:
            for task in (call, moved, nudged):
                task.cancel()

    def _request(self, max_wait_ms: int) -> ClusterPollRequest:
        return ClusterPollRequest(
            broker_id=self._membership.node_id,
            broker_epoch=self._membership.broker_epoch,
            controller_epoch=self._epoch,
            sequence=self._sequence,
            max_wait_ms=max_wait_ms,
            offline=self._offline(),
            level_max=ottla_version.LEVEL_MAX,
            sync_ms=self._sync_ms(),
        )

    async def _take(self, answer: ClusterPollResponse) -> bool:
        """Apply what came; False if this is no controller to go on with."""
        error = answer.error_code  # maybe one that only newer brokers know
        if error == Error.UNSUPPORTED_VERSION:
            await self._on_refused(answer.error_message)
            return False
        if error == Error.STALE_BROKER_EPOCH:
            self._membership.look_at_registration()
            if not self._membership.is_in_touch():
                await self._abdicate(NOT_COUNTED_ON)
            await self._pause()
            return True
        if error != Error.NONE or answer.controller_epoch < self._images.image.controller_epoch:
            await wait_for_event(self._membership.controller_changed, self._pause_seconds)
            self._pause_seconds = min(2 * self._pause_seconds, PAUSE_SECONDS_MAX)
            return False
        self._pause_seconds = PAUSE_SECONDS
        self._heard_at = asyncio.get_running_loop().time()
        self.refusal = None
        before, place = self._images.image, Place(self._epoch, self._sequence)
        has_news = bool(answer.deltas)
        try:
            if is_long(answer):
                with uncollected:
                    image, place = await asyncio.to_thread(apply_apart, before, place, answer)
            else:
                image, place = apply_deltas(before, place, answer.controller_epoch, answer.deltas)
        except DeltaMismatchError as problem:
            logger.warning("what the controller told does not fit: %s; asking for everything", problem)
            self._sequence = NO_SEQUENCE
            return True
        if self._images.image is not before:  # somebody else knows more by now: this broker, as the controller
            return True
        self._epoch, self._sequence = place
        if has_news:
            await self._publish(image)
        self.told = self._asked
        return True

    async def _on_refused(self, why: str | None) -> None:
        """This broker is too old for the cluster, and stays so until somebody starts another version of it."""
        if self.refusal is None:
            self.refusal = why or "the controller says that this broker is of a version that it does not support"
            logger.error("the controller refuses this broker: %s", self.refusal)
        await self._pause()

    async def _ask_around(self) -> None:
        """This broker knows no controller, and ZooKeeper does not tell it: is one of the others?"""
        for broker_id in [id_ for id_ in self._images.image.brokers if id_ != self._membership.node_id]:
            try:
                answer = await self._peers.call(
                    broker_id, self._request(0), ClusterPollResponse, timeout_ms=ASK_AROUND_MS
                )
            except PeerError:
                continue
            if answer.error_code == Error.STALE_BROKER_EPOCH and not self._membership.is_in_touch():
                await self._abdicate(NOT_COUNTED_ON)

    async def _is_given_up(self) -> bool:
        """Whether this broker has been silent for so long that it is not counted on, and ZooKeeper says so, too."""
        membership = self._membership
        silent_ms = 1000 * (asyncio.get_running_loop().time() - self._heard_at)
        if not membership.is_in_touch() or silent_ms < patience_ms(membership.store.session_timeout_ms):
            return False
        try:
            async with asyncio.timeout(PAUSE_SECONDS_MAX):
                return await has_successors(membership.store, self._images.image, membership.node_id)
        except (TimeoutError, StoreError):
            return False

    async def _abdicate(self, why: str) -> None:
        image = self._images.image
        left = image.without_leader(self._membership.node_id)
        if left is image:
            return
        logger.warning("%s: it leads nothing until the controller counts on it again", why)
        self._sequence = NO_SEQUENCE  # everything, when there is a controller to ask
        await self._publish(left)

    async def _publish(self, image: MetadataImage) -> None:
        self._membership.take_image(image)
        try:
            async with asyncio.timeout(SETTLE_SECONDS_MAX):
                await self._settled()
        except TimeoutError:
            pass  # thousands of new partitions: the controller must not wait for all of them

    async def _pause(self) -> None:
        await wait_for_event(self._membership.controller_changed, self._pause_seconds)
        self._pause_seconds = min(2 * self._pause_seconds, PAUSE_SECONDS_MAX)

    def __repr__(self) -> str:
        return f"<PollLoop controller epoch {self._epoch}, sequence {self._sequence}>"


async def has_successors(store: SessionStore, image: MetadataImage, broker: int) -> bool:
    """Whether others lead what this broker leads in its image; a few partitions tell."""
    led = (
        (tree.partition_state_path(topic.name, index), partition.leader_epoch)
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if partition.leader == broker and len(partition.replicas) > 1
    )
    for path, known_epoch in itertools.islice(led, ASKED_ABOUT_MAX):
        node = await store.get(path)
        with contextlib.suppress(tree.DamagedNodeError):
            state = tree.decode_partition_state(path, node.data) if node is not None else None
            if state is not None and state.leader != broker and state.leader_epoch > known_epoch:
                return True
    return False


def apply_apart(before: MetadataImage, place: Place, answer: ClusterPollResponse) -> tuple[MetadataImage, Place]:
    """In a worker, where much has come: also what differs, so that nobody has to look for it on the loop. Whatever is
    not needed any more is freed here, the answer too.
    """
    image, place = apply_deltas(before, place, answer.controller_epoch, answer.deltas)
    free(answer)
    new = image.as_next_of(before)
    if image.acls is not before.acls and image.acls is not new.acls:
        empty(image.acls)
    return new, place


def empty(acls: Acls) -> None:
    """A dictionary that nobody else has: freed at once it would stop every thread."""
    assert isinstance(acls, dict), "as images make them"
    while acls:
        acls.popitem()


async def wait_for_event(event: asyncio.Event, seconds_max: float) -> None:
    """Whichever comes first."""
    try:
        async with asyncio.timeout(seconds_max):
            await event.wait()
    except TimeoutError:
        pass
