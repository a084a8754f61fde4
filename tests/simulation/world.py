"""A world for coordinators: one thread of events, a clock that jumps, a log that can lose its tail, a bad network.

Everything random comes from one generator that the seed makes, so a seed reproduces a run exactly: `trace`
keeps its last lines, and its hash is the same in every run.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.tasks import counts
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import read_batch_header, read_records

TRACE_LINES = 60
Event = Callable[[], None]


class World:
    """Time, chance and the queue of what happens next."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now_ms = 1_000_000
        self.trace: deque[str] = deque(maxlen=TRACE_LINES)
        self._digest = blake2b(digest_size=8)
        self._queue: list[tuple[int, int, Event]] = []
        self._count = 0
        self._failed_before = counts.failed

    def tell(self, line: str) -> None:
        line = f"{self.now_ms - 1_000_000:>7} {line}"
        self.trace.append(line)
        self._digest.update(line.encode())

    def after(self, delay_ms: int, event: Event) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._count, event))

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def run(self, until_ms: int, steps_max: int = 20_000) -> None:
        end_ms = self.now_ms + until_ms
        for _ in range(steps_max):
            if not self._queue or self._queue[0][0] > end_ms:
                break
            at_ms, _, event = heapq.heappop(self._queue)
            self.now_ms = max(self.now_ms, at_ms)
            event()
            assert counts.failed == self._failed_before, "a listener failed: the log says which one"
        self.now_ms = max(self.now_ms, end_ms)

    @property
    def hash(self) -> str:
        return self._digest.hexdigest()

    def report(self) -> str:
        return "\n".join([f"seed {self.seed}", *self.trace])


class Network:
    """Carries requests and answers; each may be late, lost, or come twice."""

    def __init__(self, world: World, loss: float = 0.08, repeat: float = 0.05) -> None:
        self._world = world
        self.loss = loss
        self.repeat = repeat
        self.stalls = 0.01  # how often a process does nothing for a while after an answer

    def heal(self) -> None:
        self.loss = self.repeat = self.stalls = 0.0

    def send(self, deliver: Event, may_repeat: bool = True) -> None:
        world = self._world
        if world.chance(self.loss):
            return
        world.after(world.random.randint(1, 20), deliver)
        if may_repeat and world.chance(self.repeat):
            world.after(world.random.randint(1, 200), deliver)


class SimulatedPartition:
    """What a shard needs of a partition: appends are replicated some time later, and a crash may lose what was not.

    For a while it may refuse them, because too few replicas are in sync.
    """

    def __init__(self, world: World, topic: str, index: int = 0) -> None:
        self._world = world
        self.name = TopicPartition(topic, index)
        self.log = SimpleNamespace(settings=TopicSettings())
        self.is_leader = True
        self._refuses_until_ms = 0
        self.leader_epoch = self.leader_since_epoch = 0
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.high_watermark = 0
        self._waiting: list[tuple[int, Any]] = []

    @property
    def is_under_min_isr(self) -> bool:
        return self._world.now_ms < self._refuses_until_ms

    def refuse(self, for_ms: int) -> None:
        self._refuses_until_ms = self._world.now_ms + for_ms

    def append_as_coordinator(self, batch: bytearray, _: int) -> int:
        if self.is_under_min_isr:
            raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE)  # as reported to clients
        self.batches.append(bytes(batch))
        self.end_offset += read_batch_header(batch, 0).record_count
        if self._world.chance(0.5):
            self.replicate()
        else:
            epoch = self.leader_epoch
            self._world.after(self._world.random.randint(1, 40), lambda: self._replicate_in(epoch))
        return self.end_offset - 1

    def _replicate_in(self, epoch: int) -> None:
        if epoch == self.leader_epoch:
            self.replicate()

    def replicate(self) -> None:
        self.high_watermark = self.end_offset
        waiting, self._waiting = self._waiting, []
        for _, each in waiting:
            each.complete_partition()

    def is_replicated(self, offset: int) -> bool:
        return self.high_watermark > offset

    def wait_for_replication(self, offset: int, waiting: Any) -> None:
        self._waiting.append((offset, waiting))

    def crash(self) -> None:
        """What was not replicated is lost or not, from some batch on."""
        self._waiting = []
        self.leader_epoch += 1
        self.leader_since_epoch = self.leader_epoch
        kept, count = [], 0
        for batch in self.batches:
            records = read_batch_header(batch, 0).record_count
            if count >= self.high_watermark and self._world.chance(0.5):
                break
            kept.append(batch)
            count += records
        self.batches = kept
        self.end_offset = self.high_watermark = count

    def records(self) -> list[tuple[Any, Any]]:
        """(header, record) in the order of the log."""
        return [(read_batch_header(batch, 0), record) for batch in self.batches for record in read_records(batch)]
