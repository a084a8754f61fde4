"""Copies partitions from one leader over one connection: ask, append, ask again.

Rules:
1. A partition that cannot be copied now waits by itself; the others go on.
2. Whoever is added while the leader holds a fetch back asks at once with a second one: that ends the first. So does
   whoever has waited long enough after a failure.
3. What was received is appended in pieces of about a megabyte; the loop serves others in between.
4. An answer is believed only if the partition still stands where it asked from, under the same leader epoch: that is
   checked by Partition, for each partition and at the moment of its append.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final, Protocol
from uuid import UUID

from ottla.base import tasks
from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.base.errors import Error, KafkaError
from ottla.broker.replicas.fetch_plan import FOREVER_MS, Ask, FetchPlan, Followed
from ottla.broker.replicas.replication_quota import ReplicationQuota
from ottla.network.peer import Peer, PeerError
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ottla.replication.following import FetchPosition
from ottla.replication.partition import Partition
from ottla.replication.waiting import WaitingProduce

logger = logging.getLogger(__name__)

BYTES_PER_TURN: Final = 1 << 20
ANSWER_MS: Final = 5_000  # beyond the longest wait; a leader that is silent for longer is asked over a new connection
FIRST_RETRY_SECONDS: Final = 0.02
NO_SESSION_ERRORS: Final = (
    Error.FETCH_SESSION_ID_NOT_FOUND,
    Error.INVALID_FETCH_SESSION_EPOCH,
    Error.FETCH_SESSION_TOPIC_ID_ERROR,
)
EXPECTED_ERRORS: Final = (  # while a change of leaders makes its way through the cluster
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.UNKNOWN_LEADER_EPOCH,
    Error.FENCED_LEADER_EPOCH,
    Error.UNKNOWN_TOPIC_ID,
    Error.UNKNOWN_TOPIC_OR_PARTITION,
)
NOTHING: Final = memoryview(b"")


class Surroundings(Protocol):
    """What a fetcher needs of its broker."""

    node_id: int
    clock: Clock
    quota: ReplicationQuota

    @property
    def settings(self) -> BrokerSettings: ...

    @property
    def broker_epoch(self) -> int: ...

    def open(self, leader_id: int, number: int) -> Peer: ...


class Call:
    """A fetch under way."""

    def __init__(self, ask: Ask, answer: asyncio.Task[FetchResponse]) -> None:
        self.ask = ask
        self.answer = answer


class ReplicaFetcher:
    """One connection to one leader, and a task that uses it while there are partitions to copy."""

    def __init__(self, broker: Surroundings, leader_id: int, number: int) -> None:
        self.leader_id = leader_id
        self.number = number
        self.plan = FetchPlan()
        self.failures = 0  # of the connection, since the last answer
        self.requests = 0
        self._broker = broker
        self._news = asyncio.Event()
        self._calls: deque[Call] = deque()
        self._peer: Peer | None = None
        self._task: asyncio.Task[None] | None = None
        self._turn_bytes = 0

    # ---- what is to be copied

    def follow(self, partition: Partition) -> None:
        self.plan.add(partition)
        if partition.is_flushing:
            self._wait_for_flush(self.plan.followed[partition.topic_id, partition.name.partition])
        self.wake()
        if self._task is None:
            self._task = tasks.keep_running(self._run, f"copying from broker {self.leader_id}")

    def forget(self, partition: Partition) -> None:
        self.plan.remove((partition.topic_id, partition.name.partition))
        self.wake()

    def wake(self) -> None:
        """Something is new: a partition, or the leader itself. Do not wait any longer."""
        self._news.set()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    # ---- the task

    async def _run(self) -> None:
        try:
            while self.plan.followed:
                try:
                    await self._step()
                except PeerError as problem:
                    await self._on_lost(problem)
            self._task = None  # nothing is left to copy: whoever comes next begins anew
        finally:
            self._drop_calls()
            self.plan.start_anew()
            if self._peer is not None:
                self._peer.close()
                self._peer = None

    async def _step(self) -> None:
        """Send what is due, then wait for an answer or for news."""
        self._news.clear()
        self._send_if_due()
        if not self._calls:
            await self._wait_for_news(self._wait_seconds())
            return
        first = self._calls[0]
        news = tasks.ask(self._news.wait(), "news for a fetcher")
        try:
            seconds = self._wait_seconds() if self._may_send() else None
            await asyncio.wait((first.answer, news), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        if first.answer.done():
            self._calls.popleft()
            await self._take(first, first.answer.result())

    def _send_if_due(self) -> None:
        if not self._may_send():
            return
        now_ms = self._now_ms()
        self._hold_back(now_ms)
        under_way = self._calls[0].ask if self._calls else None
        ask = self.plan.next(now_ms, under_way) if under_way is None or self.plan.has_news(now_ms) else None
        if ask is not None:  # the request is made here: when its task begins, the plan may be another one
            settings = self._broker.settings
            request = fetch_request(ask, self.plan, settings, self._broker.node_id, self._broker.broker_epoch)
            self._calls.append(Call(ask, tasks.ask(self._ask(request), "a replica's fetch")))

    def _hold_back(self, now_ms: int) -> None:
        """Who waits for the throttle goes on waiting while it is used up: else each pause would end with a fetch."""
        quota = self._broker.quota
        for followed in self.plan.due(now_ms):
            wait_ms = quota.wait_ms(followed.partition, followed.lag > 0)
            if wait_ms:
                self.plan.leave_out(followed, now_ms + wait_ms)

    def _may_send(self) -> bool:
        """One fetch at a time; a second one to tell the leader of news while it holds the first one back."""
        return not self._calls or (len(self._calls) == 1 and self.plan.has_session)

    async def _ask(self, request: FetchRequest) -> FetchResponse:
        if self._peer is None or self._peer.is_closed:
            self._peer = self._broker.open(self.leader_id, self.number)
        self.requests += 1
        timeout_ms = min(self._broker.settings.replica_socket_timeout_ms, request.max_wait_ms + ANSWER_MS)
        return await self._peer.call(request, FetchResponse, timeout_ms=timeout_ms)

    def _wait_seconds(self) -> float:
        until_ms = self.plan.wakeup_ms()
        return 3600.0 if until_ms == FOREVER_MS else max(0.001, (until_ms - self._now_ms()) / 1000)

    async def _wait_for_news(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _on_lost(self, problem: PeerError) -> None:
        """The connection is gone: begin anew, after a while or when something changes."""
        self._drop_calls()
        self.plan.start_anew()
        longest = self._broker.settings.replica_fetch_backoff_ms / 1000
        seconds = min(longest, FIRST_RETRY_SECONDS * 2 ** min(self.failures, 10))
        if self.failures == 0:
            logger.info("cannot fetch from broker %d: %s", self.leader_id, problem)
        self.failures += 1
        self._news.clear()
        await self._wait_for_news(seconds)

    def _drop_calls(self) -> None:
        while self._calls:
            self._calls.popleft().answer.cancel()

    # ---- answers

    async def _take(self, call: Call, response: FetchResponse) -> None:
        if self.failures:
            logger.info("fetching from broker %d again", self.leader_id)
        self.failures = 0
        error = Error(response.error_code)
        if error is not Error.NONE:
            self._drop_calls()
            self.plan.start_anew()
            if error not in NO_SESSION_ERRORS:
                raise PeerError(f"it answers {error.name}")
            return
        self.plan.note_session(call.ask, response.session_id)
        later = self._calls[0].ask.wanted if self._calls else {}
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                followed = self.plan.followed.get(key)
                if followed is not None and key not in later:
                    self._take_partition(followed, call.ask.wanted.get(key, followed.position), data)
                    if self._turn_bytes >= BYTES_PER_TURN:
                        self._turn_bytes = 0
                        await asyncio.sleep(0)
        self.plan.take_back(call.ask)

    def _take_partition(self, followed: Followed, position: FetchPosition, data: PartitionData) -> None:
        partition = followed.partition
        try:
            self._take_data(followed, position, data)
        except KafkaError as problem:
            self._on_failure(followed, problem)
            return
        except Exception:  # one bad partition must not stop the others
            logger.exception("cannot copy %s", partition.name)
            self._on_failure(followed, KafkaError(Error.UNKNOWN_SERVER_ERROR))
            return
        if partition.fetch_position() != position or partition.log.log_start_offset != followed.log_start_offset:
            followed.failures = 0
            self.plan.note_progress(followed)
        if partition.is_flushing:
            self._wait_for_flush(followed)
        elif wait_ms := self._broker.quota.wait_ms(partition, followed.lag > 0):
            self.plan.leave_out(followed, self._now_ms() + wait_ms)

    def _take_data(self, followed: Followed, position: FetchPosition, data: PartitionData) -> None:
        partition = followed.partition
        error = Error(data.error_code)
        if error is Error.OFFSET_OUT_OF_RANGE and data.log_start_offset > position.offset:
            if partition.restart_at(position, data.log_start_offset):
                logger.warning("%s starts anew at offset %d, as its leader", partition.name, data.log_start_offset)
            return
        if error is not Error.NONE:
            raise KafkaError(error, f"broker {self.leader_id} answers {error.name}")
        if data.diverging_epoch is not None:
            self._truncate(partition, position, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            return
        records = data.records if isinstance(data.records, memoryview) else NOTHING
        if not partition.append_fetched(position, records, data.high_watermark, data.log_start_offset):
            return
        size = len(records)
        self._turn_bytes += size
        partition.traffic.replication_bytes_in += size
        followed.lag = max(0, data.high_watermark - partition.log.end_offset)
        if size:
            self._broker.quota.note(partition, size)

    def _truncate(self, partition: Partition, position: FetchPosition, epoch: int, end_offset: int) -> None:
        before, watermark = partition.log.end_offset, partition.high_watermark
        if not partition.truncate_on_divergence(position, epoch, end_offset):
            if partition.takes(position):
                raise KafkaError(Error.UNKNOWN_SERVER_ERROR, "its log parts from the leader's, nobody knows where")
            return
        after = partition.log.end_offset
        logger.info("%s: cut from %d to %d, where it parts from its leader", partition.name, before, after)
        if after < watermark:
            logger.warning("%s: offsets %d to %d were committed and are lost", partition.name, after, watermark)

    def _wait_for_flush(self, followed: Followed) -> None:
        """To ask for more tells the leader that we have what came before, also after a power cut."""
        self.plan.leave_out(followed)

        def on_flushed() -> None:
            self.plan.release(followed.key)
            self.wake()

        followed.partition.wait_for_flush(WaitingProduce(1, on_flushed))

    def _on_failure(self, followed: Followed, problem: KafkaError) -> None:
        delay_ms = self.plan.leave_out_after_failure(
            followed, self._broker.settings.replica_fetch_backoff_ms, self._now_ms()
        )
        is_expected = problem.error in EXPECTED_ERRORS
        log = logger.debug if is_expected and delay_ms < self._broker.settings.replica_fetch_backoff_ms else logger.info
        log("cannot copy %s from broker %d now: %s", followed.partition.name, self.leader_id, problem)

    def _now_ms(self) -> int:
        return self._broker.clock.monotonic_ms()

    def __repr__(self) -> str:
        return f"<ReplicaFetcher {self.number} of broker {self.leader_id}, {self.plan!r}>"


def fetch_request(ask: Ask, plan: FetchPlan, settings: BrokerSettings, node_id: int, broker_epoch: int) -> FetchRequest:
    """The first fetch of a session does not wait: what is added meanwhile comes with the next one."""
    topics: dict[UUID, FetchTopic] = {}
    for (topic_id, index), position in ask.wanted.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchTopic(topic_id=topic_id, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.offset,
                last_fetched_epoch=position.last_epoch,
                log_start_offset=plan.followed[topic_id, index].log_start_offset,
                partition_max_bytes=settings.replica_fetch_max_bytes,
            )
        )
    forgotten: dict[UUID, list[int]] = {}
    for topic_id, index in ask.forgotten:
        forgotten.setdefault(topic_id, []).append(index)
    return FetchRequest(
        replica_state=ReplicaState(replica_id=node_id, replica_epoch=broker_epoch),
        max_wait_ms=settings.replica_fetch_wait_max_ms if ask.session_epoch else 0,
        min_bytes=settings.replica_fetch_min_bytes,
        max_bytes=settings.replica_fetch_response_max_bytes,
        session_id=ask.session_id,
        session_epoch=ask.session_epoch,
        topics=list(topics.values()),
        forgotten_topics_data=[ForgottenTopic(topic_id=topic_id, partitions=p) for topic_id, p in forgotten.items()],
    )
