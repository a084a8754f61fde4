"""Fetch: reads the requested partitions, waits for more bytes if there are too few, and responds (Kafka's
DelayedFetch).

Rules:
1. A waiting fetch holds no file ranges: it reads again when it is woken.
2. Ranges that this process did not write, or that are not in the page cache, are read and checked by a worker thread
   first. The loop never waits for a disk.
3. Each range keeps a file open. When very many are open, a fetch takes one range at a time, as if max_bytes were
reached; the next fetches return the other partitions.
4. In a session the response contains only partitions with changes (KIP-227).
5. Consumers wait for the high watermark. Followers wait for appends: they advance the high watermark.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.base.file_range import FileRange
from ottla.base.gc_pause import collector_pause
from ottla.broker.context import Context
from ottla.broker.current_leaders import (
    FETCH_ERRORS,
    FETCH_SINCE,
    add_node_endpoints_for_consumer,
    set_current_leader_for_consumer,
)
from ottla.broker.fetch_partition_data import (
    NO_RECORDS,
    FetchResult,
    UnpreparedRange,
    aborted_transactions,
    data_or_error,
    error_data,
    error_for_damaged_batch,
    get_partition,
    has_new_records,
    is_current_partition,
    partial_batch_bytes,
    prepare_range,
    release_ranges,
    release_ranges_in_slices,
    remember_sent_values,
    require_replica,
    unprepared_ranges,
)
from ottla.broker.fetch_sessions import UNKNOWN, CachedPartition, FetchSession
from ottla.broker.offload import TimeSlice, encode_and_free, in_slices, is_long, run_in_worker
from ottla.broker.quota_charges import NOTHING_ALLOWED, FetchCharge
from ottla.broker.replica_manager.follower_fetch import FetchingFollower, is_fetch_authorized
from ottla.broker.replica_manager.replica_selection import NO_PREFERRED_REPLICA, preferred_replica
from ottla.broker.responder import Responder
from ottla.protocol.codec import EncodedBody
from ottla.protocol.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from ottla.replication.partition import Partition
from ottla.replication.waiting_requests import WaitingFetch
from ottla.storage.segment import RebuildNeededError
from ottla.storage.transaction_check import TransactionIndexWrongError

logger = logging.getLogger(__name__)

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
PARTITIONS_ON_LOOP_MAX: Final = 250
REBUILDS_MAX: Final = (
    3  # rebuilds of damaged indexes, in addition to one per partition: a fetch may read two segments of a partition
)

Topics = dict[tuple[str, UUID], FetchableTopicResponse]
Answer = FetchResponse | Responder


class DelayedFetch:
    """State of one Fetch request until its response."""

    def __init__(
        self,
        context: Context,
        session: FetchSession | None,
        partitions: list[CachedPartition],
        is_incremental: bool,
        min_bytes: int,
        max_bytes: int,
        is_read_committed: bool,
    ) -> None:
        self.context = context
        self._loop = asyncio.get_running_loop()
        self.session = session
        self.partitions = partitions
        self.is_incremental = is_incremental
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.is_read_committed = is_read_committed
        self.replica: FetchingFollower | None = None  # None: a consumer
        self.quota_charge: FetchCharge | None = None  # set if a quota covers what is read
        self.rack = ""  # rack of a consumer that may be redirected to another replica
        self.found_bytes = 0  # bytes to send
        self.readable_bytes = 0  # including bytes that are only a part of a batch
        self.has_error = False
        self._waiting: WaitingFetch | None = None
        self._last_partition: CachedPartition | None = None  # the last one that was looked up
        self._woken: asyncio.Future[None] | None = None  # the same for a fetch that reads in slices
        self._deadline: asyncio.TimerHandle | None = None
        self._deadline_time = 0.0  # by the loop's clock
        self._current_leaders: set[int] = set()  # current leaders of partitions that this broker does not lead
        self._has_moved_high_watermark = False  # whether this follower's fetch offset moved a high watermark
        self._rebuild: RebuildNeededError | TransactionIndexWrongError | None = (
            None  # the damaged index that must be rebuilt first
        )
        self._rebuilds_left = REBUILDS_MAX + len(partitions)

    # ---- life cycle

    def run(self, max_wait_ms: int) -> Answer:
        """Return the response, or the responder if the response comes later."""
        if self.replica is not None:
            self._complete_earlier_fetches()
        elif len(self.partitions) > PARTITIONS_ON_LOOP_MAX:
            return self.context.responder.run_overlapping(self._run_in_slices(max_wait_ms))
        results = self._read_all()
        if self._rebuild is not None:
            return self._read_after_rebuild(self._rebuild, results)
        if self._has_moved_high_watermark and self.readable_bytes < self.min_bytes and has_new_records(self.partitions):
            release_ranges(results)
            results = self._read_all()
        if self._has_enough or max_wait_ms <= 0 or not self.partitions:
            return self._answer_or_prepare(results)
        if results and self.replica is not None and self.context.broker.replicas.notifies_followers_of_watermark:
            return self._answer_or_prepare(results)  # the follower does not know this high watermark yet
        release_ranges(results)
        if self.replica is not None and self.replica.throttled_ms:
            max_wait_ms = min(max_wait_ms, self.replica.throttled_ms)  # nothing wakes it when the throttle ends
        self._deadline_time = self._loop.time() + max_wait_ms / 1000
        return self._wait()

    async def _run_in_slices(self, max_wait_ms: int) -> Answer | EncodedBody:
        """Handle a consumer's fetch of hundreds of partitions in slices."""
        turn = TimeSlice()
        until = self._loop.time() + max(0, max_wait_ms) / 1000
        while True:
            # Register with the partitions before reading them: records may be appended while it reads.
            waiting = WaitingFetch(self.min_bytes, self._wake_sliced)
            self._woken = self._loop.create_future()
            with collector_pause:
                await self._watch_partitions(waiting, turn)
                results = await self._read_all_in_slices(turn)
                has_enough = self._has_enough or self._rebuild is not None
                if has_enough or self._loop.time() >= until:
                    await self._unwatch_partitions(waiting, turn)
                    if not self.context.responder.is_disconnected and self._rebuild is None:
                        return await self._answer_in_slices(results, turn)
                await release_ranges_in_slices(results, turn)
            if not has_enough:
                await asyncio.wait([self._woken], timeout=until - self._loop.time())
                await self._unwatch_partitions(waiting, turn)
            if self.context.responder.is_disconnected:
                return self.context.responder
            if self._rebuild is not None:
                self._rebuilds_left -= 1
                await self.context.broker.index_rebuilds.wait_for(self._rebuild)

    async def _answer_in_slices(self, results: list[FetchResult], turn: TimeSlice) -> Answer | EncodedBody:
        to_prepare = [item async for result in in_slices(results, turn) for item in unprepared_ranges(*result)]
        if to_prepare:
            answer = await self._prepare(results, to_prepare, turn)
        else:
            answer = await self._response_in_slices(results, turn)
        if not isinstance(answer, FetchResponse) or not is_long(answer):
            return answer
        return await run_in_worker(self.context.broker.workers, encode_and_free, answer, self.context.api_version)

    def _wake_sliced(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def _watch_partitions(self, waiting: WaitingFetch, turn: TimeSlice) -> None:
        self.context.responder.cancel_on_disconnect(self)
        async for asked in in_slices(self.partitions, turn):
            with suppress(KafkaError):  # reported when it is read
                self._partition(asked).wait_for_records(waiting)

    async def _unwatch_partitions(self, waiting: WaitingFetch, turn: TimeSlice) -> None:
        self.context.responder.keep_on_disconnect(self)
        async for asked in in_slices(self.partitions, turn):
            if asked.partition is not None:
                asked.partition.remove_waiter(waiting)

    async def _read_all_in_slices(self, turn: TimeSlice) -> list[FetchResult]:
        self._reset_read_state()
        return [result async for asked in in_slices(self.partitions, turn) for result in self._read_one(asked)]

    def _complete_earlier_fetches(self) -> None:
        """Complete the delayed fetch of this follower now, so that responses keep their order."""
        for earlier in self.context.responder.waiting_requests():
            if isinstance(earlier, DelayedFetch) and earlier._waiting is not None:
                earlier._waiting.complete()

    def _wait(self) -> Responder:
        self._waiting = WaitingFetch(self.min_bytes - self.readable_bytes, self._on_woken)
        for asked in self.partitions:
            if asked.partition is None:
                continue
            if self.replica is None:
                asked.partition.wait_for_records(self._waiting)
            else:
                asked.partition.wait_for_appends(self._waiting)
        self._deadline = self._loop.call_at(self._deadline_time, self._waiting.complete)
        self.context.responder.cancel_on_disconnect(self)
        return self.context.responder.defer()

    def _on_woken(self) -> None:
        # Runs in the next iteration of the loop, after the response to the producer that woke this fetch.
        assert self._waiting is not None
        if self._waiting.bytes_missing > 0:
            self._deadline_time = 0.0  # timed out, or leadership changed: do not wait again
        self._stop_waiting()
        self._loop.call_soon(self._finish)

    def _finish(self) -> None:
        self.context.responder.complete(self._read_after_wait())

    def _read_after_wait(self) -> Answer:
        """Read again after waiting."""
        if self.context.responder.is_disconnected:
            return self.context.responder
        results = self._read_all()
        if self._rebuild is not None:
            return self._read_after_rebuild(self._rebuild, results)
        if not self._has_enough and self._deadline_time > self._loop.time():
            release_ranges(results)  # the number of visible bytes was only an estimate
            return self._wait()
        return self._answer_or_prepare(results)

    def _read_after_rebuild(
        self, needed: RebuildNeededError | TransactionIndexWrongError, results: list[FetchResult]
    ) -> Responder:
        """Read again after a worker thread has rebuilt the index of a segment."""
        release_ranges(results)
        self._rebuilds_left -= 1
        return self.context.responder.run_overlapping(self._read_again(needed))

    async def _read_again(self, needed: RebuildNeededError | TransactionIndexWrongError) -> Answer:
        await self.context.broker.index_rebuilds.wait_for(needed)
        return self._read_after_wait()

    def cancel(self) -> None:
        """Stop waiting, because the connection is closed."""
        self._wake_sliced()
        if self._waiting is not None:
            self._waiting.is_completed = True
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        assert self._waiting is not None
        if self._deadline is not None:
            self._deadline.cancel()
        for asked in self.partitions:
            if asked.partition is not None:
                asked.partition.remove_waiter(self._waiting)
        self._waiting = None
        self.context.responder.keep_on_disconnect(self)

    # ---- reading

    @property
    def _has_enough(self) -> bool:
        return self.readable_bytes >= self.min_bytes or self.has_error

    def _reset_read_state(self) -> None:
        self.found_bytes = self.readable_bytes = 0
        self.has_error = False
        self._rebuild = None

    def _read_all(self) -> list[FetchResult]:
        self._reset_read_state()
        results: list[FetchResult] = []
        for asked in self.partitions:
            results += self._read_one(asked)
        if self.replica is not None:
            self.replica.has_reported = True
        return results

    def _read_one(self, asked: CachedPartition) -> list[FetchResult]:
        is_lent_out = self.context.broker.replicas.log_dirs.pool.is_mostly_lent
        data = self._read(asked, 0 if is_lent_out else max(0, self.max_bytes - self.found_bytes))
        return [] if data is None else [(asked, data)]

    def _read(self, asked: CachedPartition, bytes_left: int) -> PartitionData | None:
        """Return the data of one partition; None if nothing changed in this session."""
        try:
            partition = self._partition(asked)
        except KafkaError as error:
            return self._error_data(asked, error.error, is_served=False)
        bytes_left = min(asked.max_bytes, bytes_left)
        try:
            if self.replica is not None:
                return self._read_for_replica(self.replica, partition, asked, bytes_left)
            require_replica(partition, asked.leader_epoch, self.context.api_version)
            if self.rack:
                preferred = self._redirect_to_preferred_replica(partition, asked)
                if preferred is not None:
                    return preferred
            file_range = self._read_range(partition, asked, bytes_left)
            aborted = aborted_transactions(partition, asked, file_range) if self.is_read_committed else None
        except KafkaError as error:
            return self._error_data(asked, self._error_for_consumer(partition, error.error), is_served=True)
        except AssertionError:  # one damaged partition must not fail the others
            logger.exception("cannot read %s", partition.name)
            return self._error_data(asked, Error.UNKNOWN_SERVER_ERROR, is_served=True)
        except (RebuildNeededError, TransactionIndexWrongError) as needed:
            if self._rebuilds_left == 0:  # rebuild limit reached
                return self._error_data(asked, Error.KAFKA_STORAGE_ERROR, is_served=True)
            self._rebuild = needed
            return None
        partition.traffic.reads += 1
        if file_range is not None:
            self.found_bytes += file_range.length
            self.readable_bytes += file_range.length + file_range.cut_bytes
        elif 0 < self.readable_bytes < self.min_bytes:
            self.readable_bytes += partial_batch_bytes(asked, partition, bytes_left, self.is_read_committed)
        if file_range is None and self.is_incremental and is_current_partition(asked, partition):
            return None
        return PartitionData(
            partition_index=asked.index,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            aborted_transactions=aborted,
            records=NO_RECORDS if file_range is None else file_range,
        )

    def _error_for_consumer(self, partition: Partition, error: Error) -> Error:
        """Replace OFFSET_OUT_OF_RANGE for a consumer without a rack, which treats this follower as the leader and would
        reset its position. In Kafka such a consumer resets; the same happens here with a deposed leader that is not
        informed yet.
        """
        if error is not Error.OFFSET_OUT_OF_RANGE or self.rack or self.replica is not None:
            return error
        is_sure = partition.is_leader and not self.context.broker.must_check_leadership
        return error if is_sure else Error.NOT_LEADER_OR_FOLLOWER

    def _read_range(self, partition: Partition, asked: CachedPartition, bytes_left: int) -> FileRange | None:
        quota = partition.log.settings.quota
        if quota is not None:
            self.quota_charge = self.quota_charge or FetchCharge(self.context, is_client_measured=False)
            bytes_left = self.quota_charge.bytes_left(partition, quota, bytes_left)
            if bytes_left == NOTHING_ALLOWED:
                self.has_error = True  # nothing to wait for
                return None
        return partition.read(asked.fetch_offset, bytes_left, self.found_bytes == 0, self.is_read_committed)

    def _redirect_to_preferred_replica(self, partition: Partition, asked: CachedPartition) -> PartitionData | None:
        """Redirect the consumer to a closer replica (KIP-392)."""
        if not partition.is_leader:
            return None
        context = self.context
        broker_id = preferred_replica(
            partition, asked.fetch_offset, self.rack, context.broker.image, context.listener_name
        )
        if broker_id == NO_PREFERRED_REPLICA:
            return None
        self.has_error = True  # nothing to wait for
        asked.sent_high_watermark = UNKNOWN
        return PartitionData(
            partition_index=asked.index,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            preferred_read_replica=broker_id,
            records=NO_RECORDS,
        )

    def _read_for_replica(
        self, replica: FetchingFollower, partition: Partition, asked: CachedPartition, bytes_left: int
    ) -> PartitionData | None:
        known_watermark = partition.high_watermark
        read = replica.read(partition, asked, bytes_left, self.found_bytes == 0)
        if partition.high_watermark != known_watermark:
            self._has_moved_high_watermark = True
        file_range, high_watermark, log_start_offset, diverging = read
        if file_range is not None:
            self.found_bytes += file_range.length
            self.readable_bytes += file_range.length + file_range.cut_bytes
        elif diverging is None and self.is_incremental and is_current_partition(asked, partition):
            return None
        data = PartitionData(
            partition_index=asked.index,
            high_watermark=high_watermark,
            last_stable_offset=-1,
            log_start_offset=log_start_offset,
            records=NO_RECORDS if file_range is None else file_range,
        )
        if diverging is not None:
            self.has_error = True  # it must not wait
            data.diverging_epoch = EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
        return data

    def _error_data(self, asked: CachedPartition, error: Error, is_served: bool) -> PartitionData:
        self.has_error = True
        error = error_for_damaged_batch(asked, error)
        self._count_error(asked, error)
        asked.sent_high_watermark = UNKNOWN
        data = error_data(asked, error)
        if not is_served:
            data.aborted_transactions = []  # as in Kafka, which differs here between errors
        if self.replica is not None and error is Error.OFFSET_OUT_OF_RANGE and asked.partition is not None:
            data.log_start_offset = asked.partition.log.log_start_offset  # a follower continues there
        return data

    def _count_error(self, asked: CachedPartition, error: Error) -> None:
        self.context.broker.counters.note_error(self.context.api_key, error)
        if asked.partition is not None:
            asked.partition.traffic.refuse_read(error)

    def _partition(self, asked: CachedPartition) -> Partition:
        if not is_fetch_authorized(self.context, self.replica, asked, self._last_partition):
            raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED)
        self._last_partition = asked
        partition = asked.partition
        if partition is None or partition.is_deleted:
            partition = asked.partition = get_partition(self.context, asked)
        return partition

    # ---- response

    def _answer_or_prepare(self, results: list[FetchResult]) -> Answer:
        """Respond at once if all bytes are in memory; otherwise a worker thread reads and checks them first."""
        to_prepare = [item for asked, data in results for item in unprepared_ranges(asked, data)]
        if not to_prepare:
            return self._response(results)
        return self.context.responder.run_overlapping(self._prepare(results, to_prepare, TimeSlice()))

    async def _prepare(self, results: list[FetchResult], to_prepare: list[UnpreparedRange], turn: TimeSlice) -> Answer:
        workers = self.context.broker.workers
        jobs = [self._loop.run_in_executor(workers, prepare_range, *item) async for item in in_slices(to_prepare, turn)]
        outcomes = await asyncio.gather(*jobs, return_exceptions=True)
        wrong = [outcome for outcome in outcomes if isinstance(outcome, TransactionIndexWrongError)]
        if wrong and self._rebuilds_left > 0:
            return self._read_after_rebuild(wrong[0], results)
        failed = {
            id(item): outcome for (item, _), outcome in zip(to_prepare, outcomes, strict=True) if outcome is not None
        }
        checked: list[FetchResult] = []
        async for asked, before in in_slices(results, turn):
            after = data_or_error(asked, before, failed.get(id(before.records)))
            if after is not before:
                after.error_code = error_for_damaged_batch(asked, Error(after.error_code))
                self._count_error(asked, Error(after.error_code))
            checked.append((asked, after))
        return await self._response_in_slices(checked, turn)

    async def _response_in_slices(self, results: list[FetchResult], turn: TimeSlice) -> FetchResponse:
        """Return the response.

        Empties `results`, so that the caller that frees the response releases the last references.
        """
        topics: Topics = {}
        results.reverse()
        while results:
            self._add_to_response(*results.pop(), topics)
            if turn.is_used_up:
                await turn.yield_to_loop()
        return self._response_of(topics)

    def _response(self, results: list[FetchResult]) -> FetchResponse:
        topics: Topics = {}
        for asked, data in results:
            self._add_to_response(asked, data, topics)
        return self._response_of(topics)

    def _add_to_response(self, asked: CachedPartition, data: PartitionData, topics: Topics) -> None:
        topic = topics.get((asked.topic, asked.topic_id))
        if topic is None:
            topic = FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=[])
            topics[asked.topic, asked.topic_id] = topic
        topic.partitions.append(data)
        if self.quota_charge is not None and asked.partition is not None:
            self.quota_charge.charge_partition(asked.partition, data)
        remember_sent_values(asked, data, is_replicated=self.replica is not None)
        session = self.session
        if session is not None:
            asked.sent_high_watermark = data.high_watermark
            asked.sent_log_start_offset = data.log_start_offset
            if self.is_incremental and data.records is not NO_RECORDS:
                session.move_to_end(asked)
        if self.has_error and data.error_code in FETCH_ERRORS and self.context.api_version >= FETCH_SINCE:
            self._current_leaders.add(set_current_leader_for_consumer(data, asked.topic, asked.topic_id, self.context))

    def _response_of(self, topics: Topics) -> FetchResponse:
        session_id = self.session.id if self.session is not None else 0
        response = FetchResponse(session_id=session_id, responses=list(topics.values()))
        if self._current_leaders:
            add_node_endpoints_for_consumer(response, self._current_leaders, self.context)
        if self.quota_charge is not None:
            self.quota_charge.finish(response)
        return response

    def __repr__(self) -> str:
        return f"<DelayedFetch {len(self.partitions)} partitions, {self.readable_bytes} of {self.min_bytes} bytes>"
