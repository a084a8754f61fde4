"""All shards of one kind of coordinator on this broker: loads them, finds them, wakes them in time.

A shard is loaded when this broker becomes the leader of its partition: the log is read to its end, piece by piece in
a worker thread, and until it is done whoever asks is told COORDINATOR_LOAD_IN_PROGRESS. Nothing acknowledged can be
missing then, because the log of a leader holds all that was.

What a new leader has in its log, but above its high watermark, may have been acknowledged by the old one, and may
still be lost with us: it can neither be left out nor told. So a shard is not ready before the high watermark has passed
all that was loaded. Kafka answers reads from the state at its high watermark meanwhile, which may be older than what
the old coordinator has told.
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
from ottla.base.clock import Clock
from ottla.base.errors import Error, KafkaError
from ottla.base.file_range import FileRange
from ottla.base.partitioning import partition_for
from ottla.coordination.machine import Decision, Machine, Stamp
from ottla.coordination.shard import FOREVER_MS, Refuse, Shard
from ottla.protocol.batches import COMMIT_MARKER, HEADER_BYTES, control_record_type, read_batch_header, read_records
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet
from ottla.replication.waiting import WaitingProduce

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Machine)

PIECE_BYTES = 1 << 20
LOADS_AT_ONCE = 2
RECORDS_AT_ONCE = 256  # under a millisecond
PAUSE_MS = 200  # between two looks whether there are enough replicas again
GATHER_SECONDS_MAX = 0.004  # while more and more requests wait for their turn


class Crowd(Protocol):
    """The poller, as who gathers sees it."""

    @property
    def waiting(self) -> int:
        """How many requests are known to wait for their turn, at least."""


class SteadyClock:
    """Wall time that never jumps: sessions and transactions must not end because somebody set the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = clock.now_ms() - clock.monotonic_ms()

    def now_ms(self) -> int:
        return self._clock.monotonic_ms() + self._offset_ms


class Runtime(Generic[M]):
    """Coordinators of one internal topic."""

    def __init__(
        self,
        topic: str,
        replicas: ReplicaSet,
        workers: ThreadPoolExecutor,
        clock: Clock,
        make_machine: Callable[[], M],
        refuse: Refuse,
        codec: int = 0,
        wait_ms_max: int = FOREVER_MS,
    ) -> None:
        self.topic = topic
        self._wait_ms_max = wait_ms_max
        self._replicas = replicas
        self._workers = workers
        self._clock = SteadyClock(clock)
        self._make_machine = make_machine
        self._refuse = refuse
        self._codec = codec
        self._shards: dict[int, Shard[M]] = {}
        self._loading: dict[int, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(LOADS_AT_ONCE)
        self._timers: dict[int, tuple[int, asyncio.TimerHandle]] = {}
        self._is_closed = False
        self.partition_count = 0
        self.must_check_leadership: Callable[[], bool] | None = None  # whether nobody should trust what we know for now
        self._was_checking = False  # because of that
        self.on_settled: Callable[[Shard[M]], None] = lambda _: None  # for what a machine wants done outside the log
        self.on_taken: Callable[[Shard[M]], None] = lambda _: None  # a shard is loaded, and nobody has asked it yet
        self.on_sweep: Callable[[Shard[M], Iterator[Decision]], None] = self._run_all  # for who has time for long work
        self.crowd: Crowd | None = None  # without it nothing is gathered
        self._gathering: list[Shard[M]] = []  # those that have gathered something
        self._gathering_since = 0.0

    def now_ms(self) -> int:
        return self._clock.now_ms()

    # ---- finding

    def shard(self, key: str, to_gather: bool = False) -> Shard[M]:
        """The shard that this key belongs to, ready to be asked; raises what clients are told otherwise.

        `to_gather`: for a decision that does not depend on what others are gathered for, and can be gathered itself.
        """
        if self.partition_count == 0:
            raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE)
        return self.shard_at(partition_for(key, self.partition_count), to_gather)

    def shard_at(self, index: int, to_gather: bool = False) -> Shard[M]:
        if not self._may_trust():
            raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS)
        shard = self._shards.get(index)
        if shard is not None and not to_gather and shard.has_gathered:
            tasks.tell(shard.flush)
        if shard is not None and shard.is_ours:
            return shard
        partition = self._replicas.get(self.topic, index)
        if partition is None and (self.topic, index) in self._replicas.recovering:
            raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS)
        if partition is None or not partition.is_leader:
            raise KafkaError(Error.NOT_COORDINATOR)
        self._start(index, partition)
        shard = self._shards.get(index)
        if shard is None:
            raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def _may_trust(self) -> bool:
        """Members whose heartbeats were turned away in doubt are not silent: after it their sessions begin anew."""
        if self.must_check_leadership is not None and self.must_check_leadership():
            self._was_checking = True
            return False
        if self._was_checking:
            self._was_checking = False
            now_ms = self._clock.now_ms()
            for shard in self._shards.values():
                shard.machine.renew_sessions(now_ms)
        return True

    def shards(self) -> Iterator[Shard[M]]:
        """Every shard of this broker; raises COORDINATOR_LOAD_IN_PROGRESS while one is missing."""
        for index in range(self.partition_count):
            partition = self._replicas.get(self.topic, index)
            is_recovering = (self.topic, index) in self._replicas.recovering
            if is_recovering or (partition is not None and partition.is_leader):
                yield self.shard_at(index)

    def loaded(self) -> list[Shard[M]]:
        """The shards that are at work now."""
        self._flush()
        return list(self._shards.values())

    def loaded_at(self, index: int) -> Shard[M] | None:
        self._flush()
        return self._shards.get(index)

    def run(self, shard: Shard[M], decision: Decision) -> None:
        """Make a decision happen, and be there when the machine next wants to be woken."""
        try:
            shard.run(decision)
        finally:
            self._arm(shard)

    # ---- gathering

    def gather(self, shard: Shard[M], decision: Decision) -> None:
        """As run(). While others wait for their turn it is written with what they bring, else at once."""
        crowd = self.crowd
        is_alone = crowd is None or (crowd.waiting == 0 and not shard.has_gathered)
        if is_alone or not decision.records:
            self.run(shard, decision)
            return
        if not self._gathering:
            loop = asyncio.get_running_loop()
            self._gathering_since = loop.time()
            loop.call_soon(self._flush_soon)
        if not shard.has_gathered:
            self._gathering.append(shard)
        shard.gather(decision)

    def _flush_soon(self) -> None:
        """The round of the poller is over. If it could not serve all, the next one brings more of the same."""
        loop = asyncio.get_running_loop()
        is_crowded = self.crowd is not None and self.crowd.waiting > 0
        if is_crowded and loop.time() - self._gathering_since < GATHER_SECONDS_MAX:
            loop.call_soon(self._flush_soon)
        else:
            self._flush()

    def _flush(self) -> None:
        gathering, self._gathering = self._gathering, []
        for shard in gathering:
            tasks.tell(shard.flush)
            self._arm(shard)

    # ---- loading

    def follow(self, partition_count: int) -> None:
        """The topic has so many partitions now, and we may have become the leader of some."""
        self.partition_count = partition_count
        for index in range(partition_count):
            self.look_at(index)
        for index, shard in list(self._shards.items()):
            if not shard.is_ours:
                self._drop(index)

    def look_at(self, index: int) -> None:
        """This partition may have become ours."""
        partition = self._replicas.get(self.topic, index)
        if partition is not None and partition.is_leader:
            self._start(index, partition)

    def _start(self, index: int, partition: Partition) -> None:
        shard = self._shards.get(index)
        if index in self._loading or (shard is not None and shard.is_ours):
            return
        self._drop(index)
        if partition.log.log_start_offset == partition.log.end_offset:
            self._take(index, partition, self._make_machine())
            return
        since = partition.leading_since
        task = tasks.start(self._load(index, partition, since, self._make_machine()), f"loading {partition.name}")
        self._loading[index] = task
        task.add_done_callback(lambda _: self._on_load_ended(index, partition, since))

    def _on_load_ended(self, index: int, partition: Partition, since: int) -> None:
        """Leadership that was lost and won again meanwhile found us loading: it is looked at now."""
        self._loading.pop(index, None)
        if not self._is_closed and (partition.is_deleted or partition.leading_since != since):
            self.look_at(index)

    async def _load(self, index: int, partition: Partition, since: int, machine: M) -> None:
        started_ms = self._clock.now_ms()
        offset = partition.log.log_start_offset
        try:
            while is_leading(partition, since) and not is_committed_at(partition, offset):
                async with self._slots:
                    offset = await self._replay(partition, machine, offset, since)
                await replicated(partition, offset, since)
        except (OSError, KafkaError) as error:
            logger.error("cannot load %s: %s", partition.name, error)
            return
        if is_leading(partition, since):
            self._take(index, partition, machine)
            logger.info("loaded %s in %d ms: %r", partition.name, self._clock.now_ms() - started_ms, machine)

    async def _replay(self, partition: Partition, machine: M, offset: int, since: int) -> int:
        """Read to the end of the log and return it. Only markers may be appended meanwhile: there is no shard yet."""
        loop = asyncio.get_running_loop()
        while offset < partition.log.end_offset and is_leading(partition, since):
            piece = partition.log.read(offset, PIECE_BYTES, partition.log.end_offset, True)
            if piece is None:  # compaction has left nothing up to the end
                return partition.log.end_offset
            try:
                next_offset = await loop.run_in_executor(self._workers, replay_piece, piece, machine, offset)
            finally:
                piece.release()
            if next_offset <= offset:
                raise KafkaError(Error.CORRUPT_MESSAGE, f"there is no whole batch at offset {offset}")
            offset = next_offset
        return offset

    def _take(self, index: int, partition: Partition, machine: M) -> None:
        shard = self._shards[index] = Shard(
            partition, machine, self._refuse, self._clock.now_ms, self.on_settled, self._codec, self._wait_ms_max
        )
        for decision in machine.loaded(self._clock.now_ms()):
            shard.run(decision)
        self.on_settled(shard)
        self.on_taken(shard)
        self._arm(shard)

    def _drop(self, index: int) -> None:
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.abandon()
        timer = self._timers.pop(index, None)
        if timer is not None:
            timer[1].cancel()

    # ---- time

    def _arm(self, shard: Shard[M]) -> None:
        """One timer a shard. Most deadlines only move away: the timer then fires for nothing and is set again."""
        wakeup_ms = shard.next_wakeup_ms()
        if wakeup_ms is None:
            return
        index = shard.partition.name.partition
        armed = self._timers.get(index)
        if armed is not None:
            if armed[0] <= wakeup_ms:
                return
            armed[1].cancel()
        delay_seconds = max(wakeup_ms - self._clock.now_ms(), PAUSE_MS if shard.must_pause else 0) / 1000
        handle = asyncio.get_running_loop().call_later(delay_seconds, self._wake, index)
        self._timers[index] = (wakeup_ms, handle)

    def _wake(self, index: int) -> None:
        self._timers.pop(index, None)
        shard = self._shards.get(index)
        if shard is None:
            return
        if not self._may_trust():
            handle = asyncio.get_running_loop().call_later(PAUSE_MS / 1000, self._wake, index)
            self._timers[index] = (0, handle)
        elif shard.is_ours:
            tasks.tell(self._sweep, shard)
            tasks.tell(shard.tick)
            self._arm(shard)
        else:
            self._drop(index)

    def _sweep(self, shard: Shard[M]) -> None:
        decisions = shard.sweep()
        if decisions is not None:
            self.on_sweep(shard, decisions)

    def _run_all(self, shard: Shard[M], decisions: Iterator[Decision]) -> None:
        for decision in decisions:
            self.run(shard, decision)

    def close(self) -> None:
        self._is_closed = True
        for task in self._loading.values():
            task.cancel()
        for index in list(self._shards):
            self._drop(index)

    def __repr__(self) -> str:
        return f"<Runtime of {self.topic}: {len(self._shards)} shards, {len(self._loading)} loading>"


def is_leading(partition: Partition, since: int) -> bool:
    return partition.is_leader and partition.leading_since == since


def is_committed_at(partition: Partition, offset: int) -> bool:
    """Whether this is the end of the log, and all before it is committed."""
    return offset >= partition.log.end_offset and partition.is_replicated(offset - 1)


async def replicated(partition: Partition, end_offset: int, since: int) -> None:
    """Wait until the high watermark has passed all before this offset, or leadership is lost."""
    if not is_leading(partition, since) or partition.is_replicated(end_offset - 1):
        return
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_ready() -> None:
        if not done.done():
            done.set_result(None)

    partition.wait_for_replication(end_offset - 1, WaitingProduce(1, on_ready))
    await done


def replay_piece(piece: FileRange, machine: Machine, offset: int) -> int:
    """Hand all records of these batches to the machine; where the next piece starts. Runs in a worker thread."""
    data = memoryview(os.pread(piece.descriptor, piece.length, piece.position))
    position = 0
    next_offset = offset
    left = RECORDS_AT_ONCE
    while len(data) - position >= HEADER_BYTES:
        header = read_batch_header(data, position)
        batch = data[position : position + header.batch_bytes]
        if len(batch) < header.batch_bytes:
            break
        stamp = Stamp(header.producer_id, header.producer_epoch) if header.is_transactional else None
        for record in read_records(batch):
            if header.is_control:
                if stamp is not None:
                    machine.apply_marker(stamp, control_record_type(record.key) == COMMIT_MARKER)
            elif record.key is not None:
                machine.apply(record.key, record.value, stamp)
            left -= 1
            if left == 0:  # compiled code gives way to nobody by itself, and the event loop would stand still
                left = RECORDS_AT_ONCE
                time.sleep(0)
        next_offset = header.next_offset
        position += header.batch_bytes
    return next_offset
