"""What the active controller tells the other brokers: numbered deltas, and who has seen which.

A broker asks for everything after the number it has (ClusterPoll) and so acknowledges all up to it. A broker whose
number belongs to another controller, or is older than what is kept here, gets a snapshot: so brokers that have missed
something heal by themselves.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sized
from typing import Final, NamedTuple

from ottla.base import tasks
from ottla.base.uncollected import uncollected
from ottla.controller.cluster.deltas import difference, snapshot
from ottla.controller.cluster.encoded_deltas import EncodedDelta, encode_delta, encode_snapshot
from ottla.controller.image import MetadataImage
from ottla.protocol.messages.cluster_poll import MetadataDelta

DELTAS_MAX: Final = 500  # kept for brokers that are slow
PARTITIONS_MAX: Final = 20_000  # in all of them together; a snapshot is cheaper than more
DELTAS_PER_ANSWER: Final = 100
NOTHING_SEEN: Final = -1
MUCH: Final = 300  # things in an image: to tell more of them at once would keep the loop too long


class Acknowledgement(NamedTuple):
    """Somebody waits until all brokers have seen a number."""

    sequence: int
    future: asyncio.Future[None]
    missing: set[int]  # brokers that have not


class Feed:
    """One a controller; begins anew with every election. All calls are made on the loop."""

    def __init__(self) -> None:
        self.epoch = -1  # of the controller; -1: not active
        self.sequence = 0
        self.seen: dict[int, int] = {}  # by broker: the number that it has acknowledged
        self._image = MetadataImage()
        self._deltas: deque[MetadataDelta] = deque()
        self._partitions = 0
        self._prepared: tuple[MetadataImage, MetadataImage, MetadataDelta] | None = None
        self._snapshot: MetadataDelta | None = None
        self._encoded: dict[int, tuple[MetadataDelta, asyncio.Task[bytes] | bytes]] = {}  # by number
        self._whole: EncodedDelta | None = None  # a snapshot of all that there is now
        self._making: asyncio.Task[EncodedDelta] | None = None
        self._news: asyncio.Future[None] | None = None
        self._waiting: list[Acknowledgement] = []

    def begin(self, image: MetadataImage, epoch: int) -> None:
        self._forget()
        self.epoch = epoch
        self._image = image

    def end(self) -> None:
        """Everybody who waits goes on: polls learn that there is nothing here any more."""
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
        """An image with many changes is to be published: a worker finds out what they are."""
        old = self._image
        delta = await asyncio.to_thread(difference, old, image, self.sequence + 1)
        self._prepared = (old, image, delta)

    def publish(self, image: MetadataImage) -> None:
        """A new image is committed."""
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
        if has_other_brokers:  # somebody may be waited for that is gone now
            self._look_again()

    async def poll(
        self, broker: int, epoch: int, sequence: int, seconds_max: float
    ) -> list[MetadataDelta] | list[EncodedDelta]:
        """What a broker has not seen; waits until there is something, and answers nothing when the time is up.

        A snapshot of much comes as bytes.
        """
        if epoch == self.epoch and 0 <= sequence <= self.sequence:
            self._note(broker, sequence)
            if sequence == self.sequence:
                await self._wait_for_news(seconds_max)
        if self._keeps_too_little(epoch, sequence) and is_much(self._image):
            return await self._whole_apart()
        return self.unseen(epoch, sequence)

    async def encoded(self, delta: MetadataDelta | EncodedDelta) -> bytes | bytearray:
        """The bytes of something that poll() has told: made once for all brokers, by a worker if that takes long."""
        if isinstance(delta, EncodedDelta):
            return delta.body
        if delta.is_snapshot:
            return encode_delta(delta)
        known = self._encoded.get(delta.sequence)
        if known is not None and known[0] is delta:  # and not the one that had this number in an earlier term
            found = known[1]
        else:
            found = self._encode(delta)
            if self._deltas and self._deltas[0].sequence <= delta.sequence:
                self._encoded[delta.sequence] = (delta, found)
        return found if isinstance(found, bytes) else await asyncio.shield(found)

    def unseen(self, epoch: int, sequence: int) -> list[MetadataDelta]:
        """What follows a number, or everything if that is not one of ours."""
        if self.epoch < 0:
            return []
        if self._keeps_too_little(epoch, sequence):
            self._snapshot = self._snapshot or snapshot(self._image, self.sequence)
            return [self._snapshot]
        new = (delta for delta in self._deltas if delta.sequence > sequence)
        return [delta for delta, _ in zip(new, range(DELTAS_PER_ANSWER), strict=False)]

    def _keeps_too_little(self, epoch: int, sequence: int) -> bool:
        """Whether only a snapshot brings a broker forward that has come so far."""
        if epoch != self.epoch or not 0 <= sequence <= self.sequence:
            return self.epoch >= 0
        return sequence < self.sequence and (not self._deltas or self._deltas[0].sequence > sequence + 1)

    def forget_broker(self, broker: int) -> None:
        """It is dead, or has begun a new life: nobody waits for what it has not seen."""
        self.seen.pop(broker, None)
        self._look_again()

    async def acknowledged(self, sequence: int, seconds_max: float) -> bool:
        """Wait until every live broker has seen a number; False when the time was up before."""
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

    # ---- inside

    def _encode(self, delta: MetadataDelta) -> asyncio.Task[bytes] | bytes:
        if partition_count(delta) <= MUCH:
            return encode_delta(delta)
        return tasks.ask(asyncio.to_thread(encode_delta, delta), "a change of the metadata, encoded")

    def _delta_to(self, image: MetadataImage) -> MetadataDelta:
        prepared, self._prepared = self._prepared, None
        sequence = self.sequence + 1
        if prepared is not None and prepared[:2] == (self._image, image) and prepared[2].sequence == sequence:
            return prepared[2]
        return difference(self._image, image, sequence)

    def _note(self, broker: int, sequence: int) -> None:
        """Of all who wait for others, those brokers are looked at that they still wait for: there may be thousands."""
        self.seen[broker] = sequence
        for waiter in [waiter for waiter in self._waiting if sequence >= waiter.sequence]:
            waiter.missing.discard(broker)
            self._end_if_seen(waiter)

    def _look_again(self) -> None:
        """Other brokers count."""
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
        """Live brokers that have not seen a number. Who has not asked this controller yet has seen none."""
        others = (broker for broker in self._image.brokers if broker != self._image.controller_id)
        return {broker for broker in others if self.seen.get(broker, NOTHING_SEEN) < sequence}

    async def _whole_apart(self) -> list[EncodedDelta]:
        """A snapshot where there is much: a worker makes it, once for all who ask. Nothing, if all begins anew."""
        if self._whole is not None:
            return [self._whole]
        epoch, sequence = self.epoch, self.sequence
        making = self._making
        if making is None or making.done():
            making = tasks.ask(asyncio.to_thread(encode_snapshot, self._image, sequence), "a snapshot of the metadata")
            self._making = making
        with uncollected:
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
