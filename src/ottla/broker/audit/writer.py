"""Writes the audit trail: into a partition of `__ottla_audit` that this broker leads, or through whoever leads one.

Rules:
1. Nobody waits for it. It runs while events wait, one batch at a time, and ends when there are none.
2. The topic is made when the first event is there. While there is none, or nobody leads it, or it takes nothing, the
   events wait and the log tells why; another partition is tried, then the same again after a growing pause.
3. An event is written when all replicas in sync have it. If it is not known what became of a batch it is written again:
   events have ids, so that a reader can tell.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.errors import Error, KafkaError
from ottla.base.log_limiter import LogLimiter
from ottla.base.names import AUDIT_TOPIC
from ottla.broker.audit.event import Line
from ottla.broker.audit.trail import COMPLAINT_SECONDS, REPEATED_MAX, AuditTrail
from ottla.broker.coordinators.internal_topics import InternalTopics
from ottla.controller.image import MetadataImage
from ottla.coordination.runtime import is_leading
from ottla.metrics.audit import AuditCounters
from ottla.network.peer_error import PeerError
from ottla.protocol.batches import build_batch
from ottla.protocol.messages.inter_broker import WriteAuditRequest, WriteAuditResponse
from ottla.protocol.records import Record
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet
from ottla.replication.waiting import WaitingProduce
from ottla.storage.errors import RecompressionNeededError

if TYPE_CHECKING:
    from ottla.broker.coordinators.transaction_messages import Call
    from ottla.broker.node import Node

logger = logging.getLogger(__name__)

PURPOSE: Final = "audit"  # of the connections to other brokers
BATCH_EVENTS_MAX: Final = 100
BATCH_BYTES_MAX: Final = 256 << 10  # a batch is made on the loop
PAUSE_SECONDS_MIN: Final = 0.1
PAUSE_SECONDS_MAX: Final = 10.0
STOP_SECONDS_MAX: Final = 3.0


class AuditWriter:
    """One a broker."""

    def __init__(
        self,
        node: Node,
        trail: AuditTrail,
        replicas: ReplicaSet,
        topics: InternalTopics,
        call: Call,
        counters: AuditCounters,
    ) -> None:
        """`call` asks another broker."""
        self._node = node
        self._trail = trail
        self._replicas = replicas
        self._topics = topics
        self._call = call
        self._counters = counters
        self._failures = 0  # in a row
        self._events_max = BATCH_EVENTS_MAX
        self._complaints = LogLimiter(COMPLAINT_SECONDS * 1000)
        self._task: asyncio.Task[None] | None = None
        trail.on_line = self._wake

    def _wake(self) -> None:
        if self._task is None or self._task.done():
            self._task = tasks.keep_running(self._write_all, "writing the audit trail")

    async def _write_all(self) -> None:
        while not self._trail.is_empty:
            lines = self._trail.first(self._events_max, BATCH_BYTES_MAX)
            try:
                await self._write(lines)
            except KafkaError as problem:
                await self._on_failure(problem, len(lines))
            else:
                self._failures = 0
                self._events_max = BATCH_EVENTS_MAX
                self._trail.written(len(lines))
            await asyncio.sleep(0)  # nothing else may have made it wait, and others have their turn

    async def _on_failure(self, problem: KafkaError, count: int) -> None:
        if problem.error in (Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE):
            if count == 1:
                self._trail.give_up(1, f"{AUDIT_TOPIC} takes no message of that size (max.message.bytes)")
            self._events_max = max(1, count // 2)
            return
        self._counters.failed_writes += 1
        if self._complaints.is_due(self._node.clock.monotonic_ms(), problem.error.name):
            logger.warning("%d events wait: %s cannot be written to: %s", len(self._trail), AUDIT_TOPIC, problem)
        pause_seconds = min(PAUSE_SECONDS_MIN * 2 ** min(self._failures, 10), PAUSE_SECONDS_MAX)
        self._failures += 1
        await asyncio.sleep(pause_seconds)

    async def _write(self, lines: Sequence[Line]) -> None:
        """Raises KafkaError."""
        if AUDIT_TOPIC not in self._node.image.topics:
            await self._make_topic()
        index, leader = chosen_partition(self._node.image, self._node.id, self._failures)
        batch = build_batch([Record(-1, line.time_ms, line.id.encode(), line.value) for line in lines])
        if leader == self._node.id:
            await append(self._replicas.get(AUDIT_TOPIC, index), batch, self._node.clock, self._node.workers)
            return
        try:
            request = WriteAuditRequest(partition_index=index, records=bytes(batch))
            answer: WriteAuditResponse = await self._call(leader, PURPOSE, request, WriteAuditResponse)
        except PeerError as problem:
            raise KafkaError(Error.NETWORK_EXCEPTION, str(problem)) from None
        if answer.error_code != Error.NONE:
            raise KafkaError(Error(answer.error_code), answer.error_message)

    async def _make_topic(self) -> None:
        try:
            await self._topics.ensure(self._topics.audit())
        except KafkaError as refusal:
            problem = f"it cannot be created yet: {refusal.message or 'too few brokers are alive'}"
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, problem) from None

    async def stop(self) -> None:
        """Write what there is, if that is possible at all."""
        self._trail.tell_repeats(at_once=REPEATED_MAX)
        if self._task is not None and not self._task.done():
            await asyncio.wait((self._task,), timeout=STOP_SECONDS_MAX)
            self._task.cancel()
        if not self._trail.is_empty:
            self._trail.give_up(len(self._trail), "this broker stops, and they could not be written")

    def __repr__(self) -> str:
        return f"<AuditWriter of {self._trail!r}, {self._failures} failures in a row>"


def chosen_partition(image: MetadataImage, node_id: int, attempt: int) -> tuple[int, int]:
    """A partition and its leader: one that we lead if there is any, then the next with each attempt; or KafkaError."""
    topic = image.topics.get(AUDIT_TOPIC)
    if topic is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, "it does not exist")
    led = [(index, state.leader) for index, state in enumerate(topic.partitions) if state.leader >= 0]
    if not led:
        raise KafkaError(Error.LEADER_NOT_AVAILABLE, "nobody leads it")
    led.sort(key=lambda place: place[1] != node_id)
    return led[attempt % len(led)]


async def append(partition: Partition | None, batch: bytes | bytearray, clock: Clock, workers: Executor) -> None:
    """Returns when all replicas in sync have it. Raises KafkaError."""
    if partition is None:
        raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
    try:
        appended = partition.append(memoryview(bytearray(batch)), True, clock.now_ms())
    except RecompressionNeededError:
        loop = asyncio.get_running_loop()
        batch = await loop.run_in_executor(workers, partition.log.recompressed, bytes(batch))
        appended = partition.append(memoryview(bytearray(batch)), True, clock.now_ms())
    since = partition.leading_since
    if partition.is_replicated(appended.last_offset):
        return
    ready = asyncio.Event()
    partition.wait_for_replication(appended.last_offset, WaitingProduce(1, ready.set))
    await ready.wait()
    if not is_leading(partition, since) or not partition.is_replicated(appended.last_offset):
        raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER, "its leader has changed meanwhile")
