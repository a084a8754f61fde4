"""One fetch on its way: read what is there, wait for more if that is too little, answer.

Rules:
1. A fetch that waits holds no file ranges: it reads again when it is woken.
2. Ranges that this process did not write, or that are not in the page cache, are checked and read by a worker thread
   first; the loop never waits for a disk.
3. Each range keeps a file open. When very many are out, a fetch takes one range at a time, like one whose max_bytes
   are used up: the other partitions have their turn with the next fetch.
4. In a session only partitions with something new are answered (KIP-227).
5. Consumers wait for the high watermark, followers for appends: they are what moves it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.base.file_range import FileRange
from ottla.base.uncollected import uncollected
from ottla.broker.context import Context
from ottla.broker.fetch_data import (
    NO_RECORDS,
    Result,
    Unready,
    aborted_in,
    after_damage,
    error_data,
    has_missed,
    is_known,
    left_out,
    look_up,
    note_sent,
    or_error,
    prepare_range,
    release,
    require_replica,
    unready,
)
from ottla.broker.fetch_quota import WITHHELD, FetchMeasure
from ottla.broker.fetch_sessions import UNKNOWN, FetchPartition, FetchSession
from ottla.broker.long_messages import encode_and_free, in_worker, is_long
from ottla.broker.new_leaders import FETCH_ERRORS, FETCH_SINCE, add_addresses_for_consumer, name_leader_to_consumer
from ottla.broker.replicas.replica_reading import FetchingReplica, may_fetch
from ottla.broker.replicas.replica_selection import NONE_PREFERRED, preferred_replica
from ottla.broker.responder import Responder
from ottla.broker.slices import Turn, in_slices
from ottla.protocol.codec import EncodedBody
from ottla.protocol.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from ottla.replication.partition import Partition
from ottla.replication.waiting import WaitingFetch
from ottla.storage.segment import RebuildNeededError
from ottla.storage.transaction_check import TransactionIndexWrongError

logger = logging.getLogger(__name__)

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
PARTITIONS_AT_ONCE: Final = 250
REBUILDS_MAX: Final = 3  # of damaged indexes, beside one for each partition: a fetch may touch two segments of one

Topics = dict[tuple[str, UUID], FetchableTopicResponse]
Answer = FetchResponse | Responder


class Fetch:
    """State of one Fetch request between its arrival and its answer."""

    def __init__(
        self,
        context: Context,
        session: FetchSession | None,
        partitions: list[FetchPartition],
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
        self.replica: FetchingReplica | None = None  # None: a consumer
        self.measure: FetchMeasure | None = None  # once some quota is about what is read
        self.rack = ""  # of a consumer that may be sent to another replica
        self.found_bytes = 0  # to be sent
        self.ready_bytes = 0  # with those that are there, but only a piece of a batch
        self.has_error = False
        self._waiting: WaitingFetch | None = None
        self._before: FetchPartition | None = None  # the one that was looked for last
        self._woken: asyncio.Future[None] | None = None  # the same for one that reads in slices
        self._deadline: asyncio.TimerHandle | None = None
        self._until = 0.0  # by the clock of the loop
        self._leaders: set[int] = set()  # of partitions that were looked for in the wrong place
        self._has_moved = False  # a high watermark, by telling how far a follower is
        self._rebuild: RebuildNeededError | TransactionIndexWrongError | None = None  # what keeps it from answering
        self._rebuilds_left = REBUILDS_MAX + len(partitions)

    # ---- the way of a fetch

    def run(self, max_wait_ms: int) -> Answer:
        """The response, or the responder if it comes later."""
        if self.replica is not None:
            self._end_earlier_waits()
        elif len(self.partitions) > PARTITIONS_AT_ONCE:
            return self.context.responder.run_beside(self._run_in_slices(max_wait_ms))
        results = self._read_all()
        if self._rebuild is not None:
            return self._read_after(self._rebuild, results)
        if self._has_moved and self.ready_bytes < self.min_bytes and has_missed(self.partitions):
            release(results)
            results = self._read_all()
        if self._has_enough or max_wait_ms <= 0 or not self.partitions:
            return self._answer_or_prepare(results)
        if results and self.replica is not None and self.context.broker.replicas.tells_watermark:
            return self._answer_or_prepare(results)  # it does not know the high watermark yet
        release(results)
        if self.replica is not None and self.replica.throttled_ms:
            max_wait_ms = min(max_wait_ms, self.replica.throttled_ms)  # nobody wakes it when the throttle lets go
        self._until = self._loop.time() + max_wait_ms / 1000
        return self._wait()

    async def _run_in_slices(self, max_wait_ms: int) -> Answer | EncodedBody:
        """A consumer of hundreds of partitions: others are served while it reads."""
        turn = Turn()
        until = self._loop.time() + max(0, max_wait_ms) / 1000
        while True:
            # It hangs itself on the partitions before it reads them: something may be written to them meanwhile.
            waiting = WaitingFetch(self.min_bytes, self._wake_long)
            self._woken = self._loop.create_future()
            with uncollected:
                await self._hang_on_partitions(waiting, turn)
                results = await self._read_all_in_slices(turn)
                has_enough = self._has_enough or self._rebuild is not None
                if has_enough or self._loop.time() >= until:
                    await self._leave_partitions(waiting, turn)
                    if not self.context.responder.is_gone and self._rebuild is None:
                        return await self._answer_in_slices(results, turn)
                release(results)
                results.clear()
            if not has_enough:
                await asyncio.wait([self._woken], timeout=until - self._loop.time())
                await self._leave_partitions(waiting, turn)
            if self.context.responder.is_gone:
                return self.context.responder
            if self._rebuild is not None:
                self._rebuilds_left -= 1
                await self.context.broker.index_rebuilds.wait_for(self._rebuild)

    async def _answer_in_slices(self, results: list[Result], turn: Turn) -> Answer | EncodedBody:
        to_prepare = [item async for result in in_slices(results, turn) for item in unready(*result)]
        if to_prepare:
            answer = await self._prepare(results, to_prepare, turn)
        else:
            answer = await self._response_in_slices(results, turn)
        if not isinstance(answer, FetchResponse) or not is_long(answer):
            return answer
        return await in_worker(self.context.broker.workers, encode_and_free, answer, self.context.api_version)

    def _wake_long(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def _hang_on_partitions(self, waiting: WaitingFetch, turn: Turn) -> None:
        self.context.responder.wait(self)
        async for asked in in_slices(self.partitions, turn):
            with suppress(KafkaError):  # told when it is read
                self._partition(asked).wait_for_records(waiting)

    async def _leave_partitions(self, waiting: WaitingFetch, turn: Turn) -> None:
        self.context.responder.stop_waiting(self)
        async for asked in in_slices(self.partitions, turn):
            if asked.partition is not None:
                asked.partition.forget(waiting)

    async def _read_all_in_slices(self, turn: Turn) -> list[Result]:
        self._begin_reading()
        return [result async for asked in in_slices(self.partitions, turn) for result in self._read_one(asked)]

    def _end_earlier_waits(self) -> None:
        """A follower has news while its last fetch is held back: answers keep their order, so that one is due now."""
        for earlier in self.context.responder.waiting_beside():
            if isinstance(earlier, Fetch) and earlier._waiting is not None:
                earlier._waiting.wake()

    def _wait(self) -> Responder:
        self._waiting = WaitingFetch(self.min_bytes - self.ready_bytes, self._on_woken)
        for asked in self.partitions:
            if asked.partition is None:
                continue
            if self.replica is None:
                asked.partition.wait_for_records(self._waiting)
            else:
                asked.partition.wait_for_appends(self._waiting)
        self._deadline = self._loop.call_at(self._until, self._waiting.wake)
        self.context.responder.wait(self)
        return self.context.responder.keep()

    def _on_woken(self) -> None:
        # In the next round of the loop: the producer that woke us is still being answered.
        assert self._waiting is not None
        if self._waiting.bytes_missing > 0:
            self._until = 0.0  # time is up, or a partition changed hands: no second wait
        self._stop_waiting()
        self._loop.call_soon(self._finish)

    def _finish(self) -> None:
        self.context.responder.settle(self._read_on())

    def _read_on(self) -> Answer:
        """What has come to it since it began to wait."""
        if self.context.responder.is_gone:
            return self.context.responder
        results = self._read_all()
        if self._rebuild is not None:
            return self._read_after(self._rebuild, results)
        if not self._has_enough and self._until > self._loop.time():
            release(results)  # how much became visible was only an estimate
            return self._wait()
        return self._answer_or_prepare(results)

    def _read_after(self, needed: RebuildNeededError | TransactionIndexWrongError, results: list[Result]) -> Responder:
        """Read again when a worker has mended the index of a segment that we must look into."""
        release(results)
        self._rebuilds_left -= 1
        return self.context.responder.run_beside(self._read_again(needed))

    async def _read_again(self, needed: RebuildNeededError | TransactionIndexWrongError) -> Answer:
        await self.context.broker.index_rebuilds.wait_for(needed)
        return self._read_on()

    def cancel(self) -> None:
        """The connection is gone: wait no longer."""
        self._wake_long()
        if self._waiting is not None:
            self._waiting.is_done = True
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        assert self._waiting is not None
        if self._deadline is not None:
            self._deadline.cancel()
        for asked in self.partitions:
            if asked.partition is not None:
                asked.partition.forget(self._waiting)
        self._waiting = None
        self.context.responder.stop_waiting(self)

    # ---- reading

    @property
    def _has_enough(self) -> bool:
        return self.ready_bytes >= self.min_bytes or self.has_error

    def _begin_reading(self) -> None:
        self.found_bytes = self.ready_bytes = 0
        self.has_error = False
        self._rebuild = None

    def _read_all(self) -> list[Result]:
        self._begin_reading()
        results: list[Result] = []
        for asked in self.partitions:
            results += self._read_one(asked)
        if self.replica is not None:
            self.replica.has_told = True
        return results

    def _read_one(self, asked: FetchPartition) -> list[Result]:
        is_lent_out = self.context.broker.replicas.log_dirs.pool.is_lent_out
        data = self._read(asked, 0 if is_lent_out else max(0, self.max_bytes - self.found_bytes))
        return [] if data is None else [(asked, data)]

    def _read(self, asked: FetchPartition, bytes_left: int) -> PartitionData | None:
        """What to tell about one partition; None = nothing new in this session."""
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
                preferred = self._preferred(partition, asked)
                if preferred is not None:
                    return preferred
            file_range = self._range(partition, asked, bytes_left)
            aborted = aborted_in(partition, asked, file_range) if self.is_read_committed else None
        except KafkaError as error:
            return self._error_data(asked, self._told(partition, error.error), is_served=True)
        except AssertionError:  # one bad partition must not stop the others
            logger.exception("cannot read %s", partition.name)
            return self._error_data(asked, Error.UNKNOWN_SERVER_ERROR, is_served=True)
        except (RebuildNeededError, TransactionIndexWrongError) as needed:
            if self._rebuilds_left == 0:  # the disk lies faster than we mend
                return self._error_data(asked, Error.KAFKA_STORAGE_ERROR, is_served=True)
            self._rebuild = needed
            return None
        partition.traffic.reads += 1
        if file_range is not None:
            self.found_bytes += file_range.length
            self.ready_bytes += file_range.length + file_range.cut_bytes
        elif 0 < self.ready_bytes < self.min_bytes:
            self.ready_bytes += left_out(asked, partition, bytes_left, self.is_read_committed)
        if file_range is None and self.is_incremental and is_known(asked, partition):
            return None
        return PartitionData(
            partition_index=asked.index,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            aborted_transactions=aborted,
            records=NO_RECORDS if file_range is None else file_range,
        )

    def _told(self, partition: Partition, error: Error) -> Error:
        """A consumer that names no rack takes us for the leader, and would start anew if it were out of range here.

        Kafka's follower lets it do that; so does a leader of yesterday who does not know better yet.
        """
        if error is not Error.OFFSET_OUT_OF_RANGE or self.rack or self.replica is not None:
            return error
        is_sure = partition.is_leader and not self.context.broker.must_check_leadership
        return error if is_sure else Error.NOT_LEADER_OR_FOLLOWER

    def _range(self, partition: Partition, asked: FetchPartition, bytes_left: int) -> FileRange | None:
        quota = partition.log.settings.quota
        if quota is not None:
            self.measure = self.measure or FetchMeasure(self.context, is_client_measured=False)
            bytes_left = self.measure.bytes_left(partition, quota, bytes_left)
            if bytes_left == WITHHELD:
                self.has_error = True  # nothing to wait for
                return None
        return partition.read(asked.fetch_offset, bytes_left, self.found_bytes == 0, self.is_read_committed)

    def _preferred(self, partition: Partition, asked: FetchPartition) -> PartitionData | None:
        """Send the consumer to a replica that is nearer to it."""
        if not partition.is_leader:
            return None
        context = self.context
        broker_id = preferred_replica(
            partition, asked.fetch_offset, self.rack, context.broker.image, context.listener_name
        )
        if broker_id == NONE_PREFERRED:
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
        self, replica: FetchingReplica, partition: Partition, asked: FetchPartition, bytes_left: int
    ) -> PartitionData | None:
        known_watermark = partition.high_watermark
        read = replica.read(partition, asked, bytes_left, self.found_bytes == 0)
        if partition.high_watermark != known_watermark:
            self._has_moved = True
        file_range, high_watermark, log_start_offset, diverging = read
        if file_range is not None:
            self.found_bytes += file_range.length
            self.ready_bytes += file_range.length + file_range.cut_bytes
        elif diverging is None and self.is_incremental and is_known(asked, partition):
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

    def _error_data(self, asked: FetchPartition, error: Error, is_served: bool) -> PartitionData:
        self.has_error = True
        error = after_damage(asked, error)
        self._note_refusal(asked, error)
        asked.sent_high_watermark = UNKNOWN
        data = error_data(asked, error)
        if not is_served:
            data.aborted_transactions = []  # Kafka's answers differ in this detail
        if self.replica is not None and error is Error.OFFSET_OUT_OF_RANGE and asked.partition is not None:
            data.log_start_offset = asked.partition.log.log_start_offset  # a follower goes on there
        return data

    def _note_refusal(self, asked: FetchPartition, error: Error) -> None:
        self.context.broker.counters.note_error(self.context.api_key, error)
        if asked.partition is not None:
            asked.partition.traffic.refuse_read(error)

    def _partition(self, asked: FetchPartition) -> Partition:
        if not may_fetch(self.context, self.replica, asked, self._before):
            raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED)
        self._before = asked
        partition = asked.partition
        if partition is None or partition.is_deleted:
            partition = asked.partition = look_up(self.context, asked)
        return partition

    # ---- answering

    def _answer_or_prepare(self, results: list[Result]) -> Answer:
        """Answer at once if all bytes are at hand; otherwise let a worker fetch and check them first."""
        to_prepare = [item for asked, data in results for item in unready(asked, data)]
        if not to_prepare:
            return self._response(results)
        return self.context.responder.run_beside(self._prepare(results, to_prepare, Turn()))

    async def _prepare(self, results: list[Result], to_prepare: list[Unready], turn: Turn) -> Answer:
        workers = self.context.broker.workers
        jobs = [self._loop.run_in_executor(workers, prepare_range, *item) async for item in in_slices(to_prepare, turn)]
        outcomes = await asyncio.gather(*jobs, return_exceptions=True)
        wrong = [outcome for outcome in outcomes if isinstance(outcome, TransactionIndexWrongError)]
        if wrong and self._rebuilds_left > 0:
            return self._read_after(wrong[0], results)
        failed = {
            id(item): outcome for (item, _), outcome in zip(to_prepare, outcomes, strict=True) if outcome is not None
        }
        checked: list[Result] = []
        async for asked, before in in_slices(results, turn):
            after = or_error(asked, before, failed.get(id(before.records)))
            if after is not before:
                after.error_code = after_damage(asked, Error(after.error_code))
                self._note_refusal(asked, Error(after.error_code))
            checked.append((asked, after))
        return await self._response_in_slices(checked, turn)

    async def _response_in_slices(self, results: list[Result], turn: Turn) -> FetchResponse:
        """Takes the results apart: who frees the response frees the last of them."""
        topics: Topics = {}
        results.reverse()
        while results:
            self._tell(*results.pop(), topics)
            if turn.is_over:
                await turn.give_way()
        return self._response_of(topics)

    def _response(self, results: list[Result]) -> FetchResponse:
        topics: Topics = {}
        for asked, data in results:
            self._tell(asked, data, topics)
        return self._response_of(topics)

    def _tell(self, asked: FetchPartition, data: PartitionData, topics: Topics) -> None:
        topic = topics.get((asked.topic, asked.topic_id))
        if topic is None:
            topic = FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=[])
            topics[asked.topic, asked.topic_id] = topic
        topic.partitions.append(data)
        if self.measure is not None and asked.partition is not None:
            self.measure.tell(asked.partition, data)
        note_sent(asked, data, is_replicated=self.replica is not None)
        session = self.session
        if session is not None:
            asked.sent_high_watermark = data.high_watermark
            asked.sent_log_start_offset = data.log_start_offset
            if self.is_incremental and data.records is not NO_RECORDS:
                session.move_to_end(asked)
        if self.has_error and data.error_code in FETCH_ERRORS and self.context.api_version >= FETCH_SINCE:
            self._leaders.add(name_leader_to_consumer(data, asked.topic, asked.topic_id, self.context))

    def _response_of(self, topics: Topics) -> FetchResponse:
        session_id = self.session.id if self.session is not None else 0
        response = FetchResponse(session_id=session_id, responses=list(topics.values()))
        if self._leaders:
            add_addresses_for_consumer(response, self._leaders, self.context)
        if self.measure is not None:
            self.measure.settle(response)
        return response

    def __repr__(self) -> str:
        return f"<Fetch {len(self.partitions)} partitions, {self.ready_bytes} of {self.min_bytes} bytes>"
