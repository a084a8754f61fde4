"""All shards of one kind of coordinator on this broker: loading, lookup and timers.

A shard is loaded when this broker becomes the leader of its partition: a worker thread reads the log to its end, piece
by piece. Until then requests get COORDINATOR_LOAD_IN_PROGRESS. No acknowledged record can be missing, because the
leader's log has all of them.

Records in the log of a new leader above its high watermark may have been acknowledged by the old leader, and may still
be lost with this broker. They can be neither ignored nor returned. So a shard becomes ready only after the high
watermark has passed all loaded records. Kafka meanwhile returns the state at its high watermark, which may be older
than the responses of the old coordinator.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

from ottla.base import tasks
from ottla.base.clock import Clock, SteppedClock
from ottla.base.errors import Error, KafkaError
from ottla.base.file_range import FileRange
from ottla.base.partitioning import partition_for
from ottla.coordination.machine import Decision, Machine, TransactionalProducer
from ottla.coordination.shard import NO_TIMEOUT_MS, CoordinatorContext, MakeErrorResponse
from ottla.protocol.batches import COMMIT_MARKER, HEADER_BYTES, control_record_type, read_batch_header, read_records
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet
from ottla.replication.waiting_requests import WaitingProduce

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Machine)

LOAD_CHUNK_BYTES = 1 << 20
CONCURRENT_LOADS_MAX = 2
RECORDS_PER_GIL_RELEASE = 256  # under a millisecond
RETRY_INTERVAL_MS = 200  # between two checks whether enough replicas are in sync again
LINGER_SECONDS_MAX = 0.004  # the limit of gathering while more requests keep arriving


class PendingRequests(Protocol):
    """The poller's count of waiting requests."""

    @property
    def pending_sockets(self) -> int:
        """Return a lower bound of the requests that wait to be handled."""


class CoordinatorRuntime(Generic[M]):
    """The coordinators of one internal topic."""

    def __init__(
        self,
        topic: str,
        replicas: ReplicaSet,
        workers: ThreadPoolExecutor,
        clock: Clock,
        make_machine: Callable[[], M],
        refuse: MakeErrorResponse,
        codec: int = 0,
        wait_ms_max: int = NO_TIMEOUT_MS,
    ) -> None:
        self.topic = topic
        self._wait_ms_max = wait_ms_max
        self._replicas = replicas
        self._workers = workers
        self._clock = SteppedClock(clock, self._on_clock_step)
        self._make_machine = make_machine
        self._make_error_response = refuse
        self._codec = codec
        self._shards: dict[int, CoordinatorContext[M]] = {}
        self._loading: dict[int, asyncio.Task[None]] = {}
        self._load_slots = asyncio.Semaphore(CONCURRENT_LOADS_MAX)
        self._timers: dict[int, tuple[int, asyncio.TimerHandle]] = {}
        self._is_closed = False
        self.partition_count = 0
        self.must_check_leadership: Callable[[], bool] | None = None  # whether this broker may have lost its leadership
        self._was_unconfirmed = False  # whether the last call returned true
        self.on_machine_changed: Callable[[CoordinatorContext[M]], None] = lambda _: (
            None
        )  # for work of a machine outside of the log
        self.on_shard_loaded: Callable[[CoordinatorContext[M]], None] = lambda _: (
            None
        )  # a shard is loaded, before its first request
        # may spread the sweep over time
        self.on_sweep: Callable[[CoordinatorContext[M], Iterator[Decision]], None] = self._execute_all
        self.pending_requests: PendingRequests | None = None  # without it, decisions are not gathered
        self._batching: list[CoordinatorContext[M]] = []  # shards with gathered decisions
        self._batching_since = 0.0

    def now_ms(self) -> int:
        return self._clock.now_ms()

    # ---- lookup

    def shard(self, key: str, can_batch: bool = False) -> CoordinatorContext[M]:
        """Return the loaded shard of this key; raises the error for the client otherwise. `can_batch`: the decision
        does not depend on gathered ones, and can be gathered itself.
        """
        if self.partition_count == 0:
            raise KafkaError(Error.NOT_COORDINATOR)
        return self.shard_at(partition_for(key, self.partition_count), can_batch)

    def shard_at(self, index: int, can_batch: bool = False) -> CoordinatorContext[M]:
        if not self._is_leadership_confirmed():
            raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS)
        shard = self._shards.get(index)
        if shard is not None and not can_batch and shard.has_batched:
            tasks.notify_safely(shard.flush)
        if shard is not None and shard.is_current_leader:
            return shard
        partition = self._replicas.get(self.topic, index)
        if partition is None and (self.topic, index) in self._replicas.recovering_partitions:
            raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS)
        if partition is None or not partition.is_leader:
            raise KafkaError(Error.NOT_COORDINATOR)
        self._start_loading(index, partition)
        shard = self._shards.get(index)
        if shard is None:
            raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def _is_leadership_confirmed(self) -> bool:
        """Return whether leadership is certain.

        When it is certain again, sessions restart: heartbeats were rejected meanwhile.
        """
        if self.must_check_leadership is not None and self.must_check_leadership():
            self._was_unconfirmed = True
            return False
        if self._was_unconfirmed:
            self._was_unconfirmed = False
            now_ms = self._clock.now_ms()
            for shard in self._shards.values():
                shard.machine.renew_sessions(now_ms)
        return True

    def shards(self) -> Iterator[CoordinatorContext[M]]:
        """Yield every shard of this broker; raises COORDINATOR_LOAD_IN_PROGRESS while one is not loaded."""
        for index in range(self.partition_count):
            partition = self._replicas.get(self.topic, index)
            is_recovering = (self.topic, index) in self._replicas.recovering_partitions
            if is_recovering or (partition is not None and partition.is_leader):
                yield self.shard_at(index)

    def loaded(self) -> list[CoordinatorContext[M]]:
        """Return the shards that are loaded now."""
        self._flush_batches()
        return list(self._shards.values())

    def machines(self) -> Iterator[M]:
        """Return the machines of the loaded shards; gathered decisions are not flushed."""
        return (shard.machine for shard in self._shards.values())

    def loaded_at(self, index: int) -> CoordinatorContext[M] | None:
        self._flush_batches()
        return self._shards.get(index)

    def execute(self, shard: CoordinatorContext[M], decision: Decision) -> None:
        """Run a decision, and set the timer for the machine's next wake-up."""
        try:
            shard.execute(decision)
        finally:
            self._schedule_wakeup(shard)

    # ---- gathering

    def execute_batched(self, shard: CoordinatorContext[M], decision: Decision) -> None:
        """Run a decision; while other requests wait, it is written in one batch with theirs."""
        crowd = self.pending_requests
        is_alone = crowd is None or (crowd.pending_sockets == 0 and not shard.has_batched)
        if is_alone or not decision.records:
            self.execute(shard, decision)
            return
        if not self._batching:
            loop = asyncio.get_running_loop()
            self._batching_since = loop.time()
            loop.call_soon(self._flush_or_linger)
        if not shard.has_batched:
            self._batching.append(shard)
        shard.add_to_batch(decision)

    def _flush_or_linger(self) -> None:
        """Flush at the end of the poller's round, or continue gathering in the next round if requests still wait."""
        loop = asyncio.get_running_loop()
        is_crowded = self.pending_requests is not None and self.pending_requests.pending_sockets > 0
        if is_crowded and loop.time() - self._batching_since < LINGER_SECONDS_MAX:
            loop.call_soon(self._flush_or_linger)
        else:
            self._flush_batches()

    def _flush_batches(self) -> None:
        gathering, self._batching = self._batching, []
        for shard in gathering:
            tasks.notify_safely(shard.flush)
            self._schedule_wakeup(shard)

    # ---- loading

    def set_partition_count(self, partition_count: int) -> None:
        """Set the number of partitions, and load those that this broker leads."""
        self.partition_count = partition_count
        for index in range(partition_count):
            self.maybe_load(index)
        for index, shard in list(self._shards.items()):
            if not shard.is_current_leader:
                self._unload(index)

    def maybe_load(self, index: int) -> None:
        """Load this partition if this broker leads it now."""
        partition = self._replicas.get(self.topic, index)
        if partition is not None and partition.is_leader:
            self._start_loading(index, partition)

    def _start_loading(self, index: int, partition: Partition) -> None:
        shard = self._shards.get(index)
        if index in self._loading or (shard is not None and shard.is_current_leader):
            return
        self._unload(index)
        if partition.log.log_start_offset == partition.log.end_offset:
            self._activate(index, partition, self._make_machine())
            return
        since = partition.leader_since_epoch
        task = tasks.spawn(self._load(index, partition, since, self._make_machine()), f"loading {partition.name}")
        self._loading[index] = task
        task.add_done_callback(lambda _: self._on_load_ended(index, partition, since))

    def _on_load_ended(self, index: int, partition: Partition, since: int) -> None:
        """Start another load if leadership was lost and regained during this one."""
        self._loading.pop(index, None)
        if not self._is_closed and (partition.is_deleted or partition.leader_since_epoch != since):
            self.maybe_load(index)

    async def _load(self, index: int, partition: Partition, since: int, machine: M) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        offset = partition.log.log_start_offset
        try:
            while is_leading(partition, since) and not is_fully_committed(partition, offset):
                async with self._load_slots:
                    offset = await self._replay_log(partition, machine, offset, since)
                await wait_until_committed(partition, offset, since)
        except (OSError, KafkaError) as error:
            logger.error("cannot load %s: %s", partition.name, error)
            return
        if is_leading(partition, since):
            self._activate(index, partition, machine)
            logger.info("loaded %s in %d ms: %r", partition.name, (loop.time() - started) * 1000, machine)

    async def _replay_log(self, partition: Partition, machine: M, offset: int, since: int) -> int:
        """Read to the end of the log and return it. Only markers may be appended meanwhile: there is no shard yet."""
        loop = asyncio.get_running_loop()
        while offset < partition.log.end_offset and is_leading(partition, since):
            piece = partition.log.read(offset, LOAD_CHUNK_BYTES, partition.log.end_offset, True)
            if piece is None:  # compaction has removed all records up to the end
                return partition.log.end_offset
            try:
                next_offset = await loop.run_in_executor(self._workers, replay_chunk, piece, machine, offset)
            finally:
                piece.release()
            if next_offset <= offset:
                raise KafkaError(Error.CORRUPT_MESSAGE, f"there is no whole batch at offset {offset}")
            offset = next_offset
        return offset

    def _activate(self, index: int, partition: Partition, machine: M) -> None:
        shard = self._shards[index] = CoordinatorContext(
            partition,
            machine,
            self._make_error_response,
            self._clock.now_ms,
            self.on_machine_changed,
            self._codec,
            self._wait_ms_max,
            asyncio.get_running_loop().call_soon,
        )
        for decision in machine.on_loaded(self._clock.now_ms()):
            shard.execute(decision)
        self.on_machine_changed(shard)
        self.on_shard_loaded(shard)
        self._schedule_wakeup(shard)

    def _unload(self, index: int) -> None:
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.unload()
        timer = self._timers.pop(index, None)
        if timer is not None:
            timer[1].cancel()

    # ---- time

    def _on_clock_step(self, step_ms: int) -> None:
        logger.warning("%s: the system clock was set by %+.1f s; deadlines move with it", self.topic, step_ms / 1000)
        for index, (wakeup_ms, handle) in self._timers.items():  # the event loop's clock is monotonic
            self._timers[index] = (wakeup_ms + step_ms, handle)
        for shard in self._shards.values():
            shard.on_clock_step(step_ms)

    def _schedule_wakeup(self, shard: CoordinatorContext[M]) -> None:
        """Set the timer of a shard.

        Most deadlines only move later: then the timer fires without effect and is set again.
        """
        now_ms = self._clock.now_ms()
        wakeup_ms = shard.next_wakeup_ms()
        if wakeup_ms is None:
            return
        index = shard.partition.name.partition
        armed = self._timers.get(index)
        if armed is not None:
            if armed[0] <= wakeup_ms:
                return
            armed[1].cancel()
        delay_seconds = max(wakeup_ms - now_ms, RETRY_INTERVAL_MS if shard.is_under_min_isr else 0) / 1000
        handle = asyncio.get_running_loop().call_later(delay_seconds, self._wake, index)
        self._timers[index] = (wakeup_ms, handle)

    def _wake(self, index: int) -> None:
        self._timers.pop(index, None)
        shard = self._shards.get(index)
        if shard is None:
            return
        if not self._is_leadership_confirmed():
            handle = asyncio.get_running_loop().call_later(RETRY_INTERVAL_MS / 1000, self._wake, index)
            self._timers[index] = (0, handle)
        elif shard.is_current_leader:
            tasks.notify_safely(self._sweep, shard)
            tasks.notify_safely(shard.tick)
            self._schedule_wakeup(shard)
        else:
            self._unload(index)

    def _sweep(self, shard: CoordinatorContext[M]) -> None:
        decisions = shard.sweep()
        if decisions is not None:
            self.on_sweep(shard, decisions)

    def _execute_all(self, shard: CoordinatorContext[M], decisions: Iterator[Decision]) -> None:
        for decision in decisions:
            self.execute(shard, decision)

    def close(self) -> None:
        self._is_closed = True
        for task in self._loading.values():
            task.cancel()
        for index in list(self._shards):
            self._unload(index)

    def __repr__(self) -> str:
        return f"<CoordinatorRuntime of {self.topic}: {len(self._shards)} shards, {len(self._loading)} loading>"


def is_leading(partition: Partition, since: int) -> bool:
    return partition.is_leader and partition.leader_since_epoch == since


def is_fully_committed(partition: Partition, offset: int) -> bool:
    """Return whether this is the end of the log, and everything before it is committed."""
    return offset >= partition.log.end_offset and partition.is_replicated(offset - 1)


async def wait_until_committed(partition: Partition, end_offset: int, since: int) -> None:
    """Wait until the high watermark has passed this offset, or leadership is lost."""
    if not is_leading(partition, since) or partition.is_replicated(end_offset - 1):
        return
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_ready() -> None:
        if not done.done():
            done.set_result(None)

    partition.wait_for_replication(end_offset - 1, WaitingProduce(1, on_ready))
    await done


def replay_chunk(chunk: FileRange, machine: Machine, offset: int) -> int:
    """Apply all records of these batches; returns the offset of the next piece. Runs in a worker thread."""
    data = memoryview(os.pread(chunk.descriptor, chunk.length, chunk.position))
    position = 0
    next_offset = offset
    left = RECORDS_PER_GIL_RELEASE
    while len(data) - position >= HEADER_BYTES:
        header = read_batch_header(data, position)
        batch = data[position : position + header.batch_bytes]
        if len(batch) < header.batch_bytes:
            break
        stamp = TransactionalProducer(header.producer_id, header.producer_epoch) if header.is_transactional else None
        for record in read_records(batch):
            if header.is_control:
                if stamp is not None:
                    machine.replay_end_transaction_marker(stamp, control_record_type(record.key) == COMMIT_MARKER)
            elif record.key is not None:
                machine.replay(record.key, record.value, stamp)
            left -= 1
            if left == 0:  # compiled code does not release the GIL by itself, and would block the event loop
                left = RECORDS_PER_GIL_RELEASE
                time.sleep(0)
        next_offset = header.next_offset
        position += header.batch_bytes
    return next_offset
