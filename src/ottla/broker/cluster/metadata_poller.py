"""Polls the controller for metadata deltas, on a broker that is not the controller.

Each poll acknowledges the previous deltas. It is sent when they have taken effect here, or after a short wait. A broken
connection is the first sign of a failed controller: if its port refuses connections, this broker starts an election.

A broker without a response from ZooKeeper for a session may have been replaced. If the controller no longer considers
it alive, it stops leading and reports that to clients until it can register again. If ZooKeeper is unreachable for all
brokers, there is no controller, and all brokers continue.

A broker that reaches ZooKeeper but not the controller reads the leaders from ZooKeeper. The controller replaces a
broker that has not polled for a session. If other brokers lead its partitions, it has been replaced, and stops leading.
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
from ottla.base.gc_pause import collector_pause
from ottla.broker.cluster.peers import Peers
from ottla.broker.offload import free_rows, is_long
from ottla.controller import tree
from ottla.controller.cluster.broker_heartbeats import session_timeout_ms
from ottla.controller.cluster.deltas import DeltaMismatchError, Place, apply_deltas
from ottla.controller.cluster.membership import ClusterMembership
from ottla.controller.decisions import ottla_version
from ottla.controller.image import NO_CONTROLLER, MetadataCache, MetadataImage
from ottla.controller.stores.store import SessionStore, StoreError
from ottla.network.peer import BrokerConnection, PeerError
from ottla.protocol.messages.inter_broker import ClusterPollRequest, ClusterPollResponse, OfflineReplicas
from ottla.security.acls import Acls

logger = logging.getLogger(__name__)

WAIT_MS: Final = 3000
RESPONSE_SLACK_MS: Final = 3000  # for a response in transit
APPLY_WAIT_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MAX: Final = 1.0
NO_SEQUENCE: Final = -1

GIVEN_UP_REASON: Final = "the controller no longer counts this broker as alive, and ZooKeeper cannot be reached"
CHECKED_PARTITIONS_MAX: Final = 10  # partitions: a replaced broker has lost all of them
FIND_CONTROLLER_AFTER_MS: Final = 4000  # a controller waits two seconds for unknown brokers


class MetadataPoller:
    """One task per broker; idle while this broker is the controller."""

    def __init__(
        self,
        membership: ClusterMembership,
        images: MetadataCache,
        peers: Peers,
        wait_until_applied: Callable[[], Awaitable[None]],
        offline: Callable[[], list[OfflineReplicas]] = list,
        sync_ms: Callable[[], int] = int,
    ) -> None:
        self._membership = membership
        self._images = images
        self._peers = peers
        self._wait_until_applied = wait_until_applied
        self._offline = offline
        self._sync_ms = sync_ms
        self._epoch = -1  # epoch of the controller whose deltas were applied last
        self._sequence = NO_SEQUENCE
        self.rejection: str | None = None  # why the controller rejects this broker
        self._pause_seconds = PAUSE_SECONDS
        self._last_response_time = -math.inf  # time of the last response of a controller, by the loop's clock
        self._poll_now = asyncio.Event()
        self._reported_in_flight: list[OfflineReplicas] = []  # reported with the last poll
        self.reported: list[OfflineReplicas] = []  # reported before the current image: the controller knew them
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = tasks.spawn_restarting(self._run, "polling the controller")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def poll_now(self) -> None:
        """Poll again at once, to report a failed log directory."""
        self._poll_now.set()

    async def _run(self) -> None:
        membership = self._membership
        while True:
            elected = membership.controller_id
            if membership.is_controller or elected in (-1, membership.node_id) or membership.broker_epoch < 0:
                self._sequence = NO_SEQUENCE
                if elected == NO_CONTROLLER and membership.broker_epoch >= 0 and not membership.has_session():
                    await self._find_controller()
                await wait_for_event(membership.controller_changed, PAUSE_SECONDS_MAX)
                continue
            try:
                await self._poll_controller(elected)
            except StoreError as problem:
                logger.warning("cannot look for the controller: %s", problem)
                await self._pause()
            except Exception:  # one of the tasks that never end
                logger.exception("polling broker %d failed", elected)
                self._sequence = NO_SEQUENCE
                await self._pause()

    async def _poll_controller(self, elected: int) -> None:
        """Poll one controller until it is deposed or unreachable."""
        await self._locate(elected)
        try:
            peer = self._peers.open(elected, "poll")
        except PeerError as problem:
            logger.warning("%s", problem)
            await self._pause()
            return
        try:
            while self._membership.controller_id == elected and not self._membership.is_controller:
                answer = await self._poll_once(peer)
                if answer is None:
                    continue
                if not await self._apply(answer):
                    return
        except PeerError as problem:
            logger.info("no answer from the controller, broker %d: %s", elected, problem)
            if problem.is_refused:
                await self._membership.suspect_controller(elected)
            elif await self._is_given_up():
                await self._give_up_leaderships(
                    "the controller cannot be reached, and other brokers lead this broker's partitions"
                )
            await self._pause()
        finally:
            peer.close()

    async def _locate(self, elected: int) -> None:
        """Return the controller's endpoint, which may be missing or outdated in the image."""
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

    async def _poll_once(self, peer: BrokerConnection) -> ClusterPollResponse | None:
        """Poll once. Returns None if the poll must be repeated or the controller changed."""
        request = self._request(WAIT_MS)
        self._reported_in_flight = request.offline
        call = tasks.spawn_awaited(
            peer.call(request, ClusterPollResponse, timeout_ms=WAIT_MS + RESPONSE_SLACK_MS), "a poll"
        )
        moved = tasks.spawn_awaited(self._membership.controller_changed.wait(), "another controller")
        nudged = tasks.spawn_awaited(self._poll_now.wait(), "a report to the controller")
        try:
            await asyncio.wait((call, moved, nudged), return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                return call.result()
            if nudged.done():  # the pending response is lost with its connection; the next poll repeats it
                self._poll_now.clear()
                raise PeerError("polling again")
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

    async def _apply(self, answer: ClusterPollResponse) -> bool:
        """Apply a response; False if this controller cannot be followed."""
        error = answer.error_code  # maybe a code of a newer version
        if error == Error.UNSUPPORTED_VERSION:
            await self._on_rejected(answer.error_message)
            return False
        if error == Error.STALE_BROKER_EPOCH:
            self._membership.check_registration()
            if not self._membership.has_session():
                await self._give_up_leaderships(GIVEN_UP_REASON)
            await self._pause()
            return True
        if error != Error.NONE or answer.controller_epoch < self._images.image.controller_epoch:
            await wait_for_event(self._membership.controller_changed, self._pause_seconds)
            self._pause_seconds = min(2 * self._pause_seconds, PAUSE_SECONDS_MAX)
            return False
        self._pause_seconds = PAUSE_SECONDS
        self._last_response_time = asyncio.get_running_loop().time()
        self.rejection = None
        before, place = self._images.image, Place(self._epoch, self._sequence)
        has_news = bool(answer.deltas)
        try:
            if is_long(answer):
                with collector_pause:
                    image, place = await asyncio.to_thread(apply_offloaded, before, place, answer)
            else:
                image, place = apply_deltas(before, place, answer.controller_epoch, answer.deltas)
        except DeltaMismatchError as problem:
            logger.warning("a delta of the controller does not fit: %s; requesting the full metadata", problem)
            self._sequence = NO_SEQUENCE
            return True
        if self._images.image is not before:  # this broker has become the controller and published a newer image
            return True
        self._epoch, self._sequence = place
        if has_news:
            await self._publish(image)
        self.reported = self._reported_in_flight
        return True

    async def _on_rejected(self, why: str | None) -> None:
        """Handle a rejection: this broker is too old for the controller, until it is restarted with another version."""
        if self.rejection is None:
            self.rejection = why or "the controller does not support the version of this broker"
            logger.error("the controller rejects this broker: %s", self.rejection)
        await self._pause()

    async def _find_controller(self) -> None:
        """Ask the other brokers for the controller, which ZooKeeper does not report."""
        for broker_id in [id_ for id_ in self._images.image.brokers if id_ != self._membership.node_id]:
            try:
                answer = await self._peers.call(
                    broker_id, self._request(0), ClusterPollResponse, timeout_ms=FIND_CONTROLLER_AFTER_MS
                )
            except PeerError:
                continue
            if answer.error_code == Error.STALE_BROKER_EPOCH and not self._membership.has_session():
                await self._give_up_leaderships(GIVEN_UP_REASON)

    async def _is_given_up(self) -> bool:
        """Return whether this broker has not polled for too long, and ZooKeeper confirms that it was replaced."""
        membership = self._membership
        silent_ms = 1000 * (asyncio.get_running_loop().time() - self._last_response_time)
        if not membership.has_session() or silent_ms < session_timeout_ms(membership.store.session_timeout_ms):
            return False
        try:
            async with asyncio.timeout(PAUSE_SECONDS_MAX):
                return await was_replaced(membership.store, self._images.image, membership.node_id)
        except (TimeoutError, StoreError):
            return False

    async def _give_up_leaderships(self, why: str) -> None:
        image = self._images.image
        left = image.without_leaderships_of(self._membership.node_id)
        if left is image:
            return
        logger.warning("%s: it leads nothing until the controller counts it as alive again", why)
        self._sequence = NO_SEQUENCE  # request the full metadata from the next controller
        await self._publish(left)

    async def _publish(self, image: MetadataImage) -> None:
        self._membership.publish_image(image)
        try:
            async with asyncio.timeout(APPLY_WAIT_SECONDS):
                await self._wait_until_applied()
        except TimeoutError:
            pass  # thousands of new partitions: the controller must not wait for all of them

    async def _pause(self) -> None:
        await wait_for_event(self._membership.controller_changed, self._pause_seconds)
        self._pause_seconds = min(2 * self._pause_seconds, PAUSE_SECONDS_MAX)

    def __repr__(self) -> str:
        return f"<MetadataPoller controller epoch {self._epoch}, sequence {self._sequence}>"


async def was_replaced(store: SessionStore, image: MetadataImage, broker: int) -> bool:
    """Return whether other brokers lead the partitions of this broker; checks a few of them."""
    led = (
        (tree.partition_state_path(topic.name, index), partition.leader_epoch)
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if partition.leader == broker and len(partition.replicas) > 1
    )
    for path, known_epoch in itertools.islice(led, CHECKED_PARTITIONS_MAX):
        node = await store.get(path)
        with contextlib.suppress(tree.DamagedNodeError):
            state = tree.decode_partition_state(path, node.data) if node is not None else None
            if state is not None and state.leader != broker and state.leader_epoch > known_epoch:
                return True
    return False


def apply_offloaded(before: MetadataImage, place: Place, answer: ClusterPollResponse) -> tuple[MetadataImage, Place]:
    """Apply a large delta in a worker thread, compute the differences, and free unused objects."""
    image, place = apply_deltas(before, place, answer.controller_epoch, answer.deltas)
    free_rows(answer)
    new = image.as_successor_of(before)
    if image.acls is not before.acls and image.acls is not new.acls:
        clear_gradually(image.acls)
    return new, place


def clear_gradually(acls: Acls) -> None:
    """Empty an unshared dictionary step by step: freeing it at once would stop all threads."""
    assert isinstance(acls, dict), "as images make them"
    while acls:
        acls.popitem()


async def wait_for_event(event: asyncio.Event, seconds_max: float) -> None:
    """Wait for the event or the timeout."""
    try:
        async with asyncio.timeout(seconds_max):
            await event.wait()
    except TimeoutError:
        pass
