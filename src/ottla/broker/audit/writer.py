"""Writer of the audit trail: appends to a partition of `__ottla_audit` on this broker, or produces to its leader.

Rules:
1. Requests never wait for the writer. It runs while events are queued, one batch at a time.
2. The first event creates the topic. While the topic is missing, has no leader or rejects records, events stay queued
   and the log reports the reason. The writer tries another partition, then repeats after a growing pause.
3. An event is written when all in-sync replicas have it. A batch with an unknown result is written again: events have
   ids, so that readers can remove duplicates.
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
from ottla.base.logs import LogLimiter
from ottla.base.names import AUDIT_TOPIC
from ottla.broker.audit.event import EncodedEvent
from ottla.broker.audit.trail import TRACKED_REFUSALS_MAX, WARNING_INTERVAL_SECONDS, AuditTrail
from ottla.broker.coordinator_service.internal_topics import InternalTopicCreator
from ottla.controller.image import MetadataImage
from ottla.coordination.runtime import is_leading
from ottla.metrics.counters import AuditCounters
from ottla.network.peer import PeerError
from ottla.protocol.batches import build_batch
from ottla.protocol.messages.inter_broker import WriteAuditRequest, WriteAuditResponse
from ottla.protocol.records import Record
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet
from ottla.replication.waiting_requests import WaitingProduce
from ottla.storage.errors import RecompressionNeededError

if TYPE_CHECKING:
    from ottla.broker.coordinator_service.transaction_channels import SendRequest
    from ottla.broker.node import Node

logger = logging.getLogger(__name__)

CONNECTION_PURPOSE: Final = "audit"  # of the connections to other brokers
BATCH_EVENTS_MAX: Final = 100
BATCH_BYTES_MAX: Final = 256 << 10  # batches are built on the loop
PAUSE_SECONDS_MIN: Final = 0.1
PAUSE_SECONDS_MAX: Final = 10.0
STOP_SECONDS_MAX: Final = 3.0


class AuditWriter:
    """Writes queued events; one per broker."""

    def __init__(
        self,
        node: Node,
        trail: AuditTrail,
        replicas: ReplicaSet,
        topics: InternalTopicCreator,
        call: SendRequest,
        counters: AuditCounters,
    ) -> None:
        """`call` sends a request to another broker."""
        self._node = node
        self._trail = trail
        self._replicas = replicas
        self._topics = topics
        self._call = call
        self._counters = counters
        self._failures = 0  # consecutive
        self._events_max = BATCH_EVENTS_MAX
        self._warning_limiter = LogLimiter(WARNING_INTERVAL_SECONDS * 1000)
        self._task: asyncio.Task[None] | None = None
        trail.on_line = self._wake

    def _wake(self) -> None:
        if self._task is None or self._task.done():
            self._task = tasks.spawn_restarting(self._write_all, "writing the audit trail")

    async def _write_all(self) -> None:
        while not self._trail.is_empty:
            lines = self._trail.peek(self._events_max, BATCH_BYTES_MAX)
            try:
                await self._write(lines)
            except KafkaError as problem:
                await self._on_failure(problem, len(lines))
            else:
                self._failures = 0
                self._events_max = BATCH_EVENTS_MAX
                self._trail.remove_written(len(lines))
            await asyncio.sleep(0)  # yields to the loop even if nothing else waited

    async def _on_failure(self, problem: KafkaError, count: int) -> None:
        if problem.error in (Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE):
            if count == 1:
                self._trail.drop(1, f"{AUDIT_TOPIC} accepts no message of that size (max.message.bytes)")
            self._events_max = max(1, count // 2)
            return
        self._counters.failed_writes += 1
        if self._warning_limiter.is_due(self._node.clock.monotonic_ms(), problem.error.name):
            logger.warning("%d events are waiting: cannot write to %s: %s", len(self._trail), AUDIT_TOPIC, problem)
        pause_seconds = min(PAUSE_SECONDS_MIN * 2 ** min(self._failures, 10), PAUSE_SECONDS_MAX)
        self._failures += 1
        await asyncio.sleep(pause_seconds)

    async def _write(self, lines: Sequence[EncodedEvent]) -> None:
        """Write some events. Raises KafkaError."""
        if AUDIT_TOPIC not in self._node.image.topics:
            await self._create_topic()
        index, leader = choose_partition(self._node.image, self._node.id, self._failures)
        batch = build_batch([Record(-1, line.time_ms, line.id.encode(), line.value) for line in lines])
        if leader == self._node.id:
            await append(self._replicas.get(AUDIT_TOPIC, index), batch, self._node.clock, self._node.workers)
            return
        try:
            request = WriteAuditRequest(partition_index=index, records=bytes(batch))
            answer: WriteAuditResponse = await self._call(leader, CONNECTION_PURPOSE, request, WriteAuditResponse)
        except PeerError as problem:
            raise KafkaError(Error.NETWORK_EXCEPTION, str(problem)) from None
        if answer.error_code != Error.NONE:
            raise KafkaError(Error(answer.error_code), answer.error_message)

    async def _create_topic(self) -> None:
        try:
            await self._topics.ensure(self._topics.audit())
        except KafkaError as refusal:
            problem = f"it cannot be created yet: {refusal.message or 'too few brokers are alive'}"
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, problem) from None

    async def stop(self) -> None:
        """Write the queued events, if that is possible."""
        self._trail.report_repeats(at_once=TRACKED_REFUSALS_MAX)
        if self._task is not None and not self._task.done():
            await asyncio.wait((self._task,), timeout=STOP_SECONDS_MAX)
            self._task.cancel()
        if not self._trail.is_empty:
            self._trail.drop(len(self._trail), "this broker is stopping, and they could not be written")

    def __repr__(self) -> str:
        return f"<AuditWriter of {self._trail!r}, {self._failures} failures in a row>"


def choose_partition(image: MetadataImage, node_id: int, attempt: int) -> tuple[int, int]:
    """Return a partition and its leader: a partition led by this broker if there is one, otherwise the next with each
    attempt.

    Raises KafkaError.
    """
    topic = image.topics.get(AUDIT_TOPIC)
    if topic is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, "it does not exist")
    led = [(index, state.leader) for index, state in enumerate(topic.partitions) if state.leader >= 0]
    if not led:
        raise KafkaError(Error.LEADER_NOT_AVAILABLE, "it has no leader")
    led.sort(key=lambda place: place[1] != node_id)
    return led[attempt % len(led)]


async def append(partition: Partition | None, batch: bytes | bytearray, clock: Clock, workers: Executor) -> None:
    """Append to a partition of this broker; returns when all in-sync replicas have the batch. Raises KafkaError."""
    if partition is None:
        raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
    try:
        appended = partition.append(memoryview(bytearray(batch)), True, clock.now_ms())
    except RecompressionNeededError:
        loop = asyncio.get_running_loop()
        batch = await loop.run_in_executor(workers, partition.log.recompressed, bytes(batch))
        appended = partition.append(memoryview(bytearray(batch)), True, clock.now_ms())
    since = partition.leader_since_epoch
    if partition.is_replicated(appended.last_offset):
        return
    ready = asyncio.Event()
    partition.wait_for_replication(appended.last_offset, WaitingProduce(1, ready.set))
    await ready.wait()
    if not is_leading(partition, since) or not partition.is_replicated(appended.last_offset):
        raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER, "its leader has changed meanwhile")
