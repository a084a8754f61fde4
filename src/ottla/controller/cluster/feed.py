"""The metadata feed from the active controller to the other brokers: numbered deltas and their acknowledgements.

A broker requests the deltas after its sequence number (ClusterPoll), which acknowledges all deltas up to it. A broker
whose number belongs to another controller epoch, or is older than the kept deltas, gets a snapshot.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sized
from typing import Final, NamedTuple

from ottla.base import tasks
from ottla.base.gc_pause import collector_pause
from ottla.controller.cluster.deltas import difference, snapshot
from ottla.controller.cluster.encoded_deltas import EncodedDelta, encode_delta, encode_snapshot
from ottla.controller.image import MetadataImage
from ottla.protocol.messages.inter_broker import MetadataDelta

DELTAS_MAX: Final = 500  # kept for slow brokers
PARTITIONS_MAX: Final = 20_000  # in all kept deltas together; a snapshot is cheaper than more
DELTAS_PER_ANSWER: Final = 100
NOTHING_SEEN: Final = -1
MUCH: Final = 300  # entries of an image; encoding more would block the event loop for too long


class Acknowledgement(NamedTuple):
    """A waiter for the acknowledgement of a sequence number by all brokers."""

    sequence: int
    future: asyncio.Future[None]
    missing: set[int]  # brokers that have not acknowledged it


class Feed:
    """The feed of one controller; reset by every election. All calls are made on the loop."""

    def __init__(self) -> None:
        self.epoch = -1  # of the controller; -1: not active
        self.sequence = 0
        self.seen: dict[int, int] = {}  # broker -> acknowledged sequence number
        self._image = MetadataImage()
        self._deltas: deque[MetadataDelta] = deque()
        self._partitions = 0
        self._prepared: tuple[MetadataImage, MetadataImage, MetadataDelta] | None = None
        self._snapshot: MetadataDelta | None = None
        self._encoded: dict[int, tuple[MetadataDelta, asyncio.Task[bytes] | bytes]] = {}  # by sequence number
        self._whole: EncodedDelta | None = None  # the encoded snapshot of the current image
        self._making: asyncio.Task[EncodedDelta] | None = None
        self._news: asyncio.Future[None] | None = None
        self._waiting: list[Acknowledgement] = []

    def begin(self, image: MetadataImage, epoch: int) -> None:
        self._forget()
        self.epoch = epoch
        self._image = image

    def end(self) -> None:
        """End the feed: wake all waiters, whose polls fail because this controller is no longer active."""
        self._forget()
        self.epoch = -1

    def _forget(self) -> None:
        self.sequence = 0
        self.seen.clear()
        self._deltas.clear()
        self._partitions = 0
        self._encoded.clear()
        self._prepared = None
        self._snapshot = self._whole = None
        self._making = None
        self._wake()
        for waiter in self._waiting:
            if not waiter.future.done():
                waiter.future.set_result(None)
        self._waiting.clear()

    async def prepare(self, image: MetadataImage) -> None:
        """Compute the delta to an image with many changes in a worker thread, before it is published."""
        old = self._image
        delta = await asyncio.to_thread(difference, old, image, self.sequence + 1)
        self._prepared = (old, image, delta)

    def publish(self, image: MetadataImage) -> None:
        """Add the delta to a new image that was committed."""
        if self.epoch < 0 or image is self._image:
            return
        delta = self._delta_to(image)
        has_other_brokers = image.brokers is not self._image.brokers
        self._image = image
        self._snapshot = self._whole = None
        self.sequence += 1
        self._deltas.append(delta)
        self._partitions += partition_count(delta)
        while len(self._deltas) > DELTAS_MAX or (self._partitions > PARTITIONS_MAX and len(self._deltas) > 1):
            gone = self._deltas.popleft()
            self._partitions -= partition_count(gone)
            self._encoded.pop(gone.sequence, None)
        self._wake()
        if has_other_brokers:  # a broker whose acknowledgement is missing may have failed meanwhile
            self._look_again()

    async def poll(
        self, broker: int, epoch: int, sequence: int, seconds_max: float
    ) -> list[MetadataDelta] | list[EncodedDelta]:
        """Return the deltas that a broker does not have. Waits for one, and returns an empty list after the timeout.

        A large snapshot is returned in encoded form.
        """
        if epoch == self.epoch and 0 <= sequence <= self.sequence:
            self._note(broker, sequence)
            if sequence == self.sequence:
                await self._wait_for_news(seconds_max)
        if self._keeps_too_little(epoch, sequence) and is_much(self._image):
            return await self._whole_apart()
        return self.unseen(epoch, sequence)

    async def encoded(self, delta: MetadataDelta | EncodedDelta) -> bytes | bytearray:
        """Return the encoded form of a delta from poll():

        encoded once for all brokers, large ones in a worker thread.
        """
        if isinstance(delta, EncodedDelta):
            return delta.body
        if delta.is_snapshot:
            return encode_delta(delta)
        known = self._encoded.get(delta.sequence)
        if known is not None and known[0] is delta:  # not the delta with this number of an earlier epoch
            found = known[1]
        else:
            found = self._encode(delta)
            if self._deltas and self._deltas[0].sequence <= delta.sequence:
                self._encoded[delta.sequence] = (delta, found)
        return found if isinstance(found, bytes) else await asyncio.shield(found)

    def unseen(self, epoch: int, sequence: int) -> list[MetadataDelta]:
        """Return the deltas after a sequence number, or a snapshot if they are not kept."""
        if self.epoch < 0:
            return []
        if self._keeps_too_little(epoch, sequence):
            self._snapshot = self._snapshot or snapshot(self._image, self.sequence)
            return [self._snapshot]
        new = (delta for delta in self._deltas if delta.sequence > sequence)
        return [delta for delta, _ in zip(new, range(DELTAS_PER_ANSWER), strict=False)]

    def _keeps_too_little(self, epoch: int, sequence: int) -> bool:
        """Return whether a broker at this position needs a snapshot."""
        if epoch != self.epoch or not 0 <= sequence <= self.sequence:
            return self.epoch >= 0
        return sequence < self.sequence and (not self._deltas or self._deltas[0].sequence > sequence + 1)

    def forget_broker(self, broker: int) -> None:
        """Stop waiting for the acknowledgements of a failed or restarted broker."""
        self.seen.pop(broker, None)
        self._look_again()

    async def acknowledged(self, sequence: int, seconds_max: float) -> bool:
        """Wait until every live broker has acknowledged a sequence number; returns False after the timeout."""
        missing = self._missing(sequence)
        if self.epoch < 0 or not missing:
            return True
        waiter = Acknowledgement(sequence, asyncio.get_running_loop().create_future(), missing)
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(seconds_max):
                await waiter.future
        except TimeoutError:
            return False
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
        return True

    # ---- internals

    def _encode(self, delta: MetadataDelta) -> asyncio.Task[bytes] | bytes:
        if partition_count(delta) <= MUCH:
            return encode_delta(delta)
        return tasks.spawn_awaited(asyncio.to_thread(encode_delta, delta), "encoding of a metadata delta")

    def _delta_to(self, image: MetadataImage) -> MetadataDelta:
        prepared, self._prepared = self._prepared, None
        sequence = self.sequence + 1
        if prepared is not None and prepared[:2] == (self._image, image) and prepared[2].sequence == sequence:
            return prepared[2]
        return difference(self._image, image, sequence)

    def _note(self, broker: int, sequence: int) -> None:
        """Record an acknowledgement; only the waiters for lower numbers, possibly thousands, are visited."""
        self.seen[broker] = sequence
        for waiter in [waiter for waiter in self._waiting if sequence >= waiter.sequence]:
            waiter.missing.discard(broker)
            self._end_if_seen(waiter)

    def _look_again(self) -> None:
        """Update all waiters after a change of the live brokers."""
        for waiter in list(self._waiting):
            waiter.missing.clear()
            waiter.missing.update(self._missing(waiter.sequence))
            self._end_if_seen(waiter)

    def _end_if_seen(self, waiter: Acknowledgement) -> None:
        if not waiter.missing:
            self._waiting.remove(waiter)
            if not waiter.future.done():
                waiter.future.set_result(None)

    def _missing(self, sequence: int) -> set[int]:
        """Return the live brokers that have not acknowledged a number, including those that have not polled yet."""
        others = (broker for broker in self._image.brokers if broker != self._image.controller_id)
        return {broker for broker in others if self.seen.get(broker, NOTHING_SEEN) < sequence}

    async def _whole_apart(self) -> list[EncodedDelta]:
        """Return a large snapshot: encoded by a worker thread, once for all brokers. Empty if the epoch has ended."""
        if self._whole is not None:
            return [self._whole]
        epoch, sequence = self.epoch, self.sequence
        making = self._making
        if making is None or making.done():
            making = tasks.spawn_awaited(
                asyncio.to_thread(encode_snapshot, self._image, sequence), "encoding of a metadata snapshot"
            )
            self._making = making
        with collector_pause:
            made = await asyncio.shield(making)
        if self.epoch != epoch:
            return []
        if made.sequence == self.sequence:
            self._whole = made
        return [made]

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
        self._news = None

    async def _wait_for_news(self, seconds_max: float) -> None:
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._news], timeout=seconds_max)

    def __repr__(self) -> str:
        state = f"epoch {self.epoch}" if self.epoch >= 0 else "not active"
        return f"<Feed {state} sequence={self.sequence} kept={len(self._deltas)} seen={self.seen}>"


def is_much(image: MetadataImage) -> bool:
    kinds: tuple[Sized, ...] = (
        *(image.topics, image.acls, image.user_configs, image.quota_configs, image.delegation_tokens),
    )
    return image.partition_count > MUCH or sum(len(each) for each in kinds) > MUCH


def partition_count(delta: MetadataDelta) -> int:
    return sum(len(topic.partitions) for topic in delta.topics)
