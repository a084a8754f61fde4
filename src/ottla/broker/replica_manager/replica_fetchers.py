"""Replica fetchers: `num.replica.fetchers` connections to each leader (Kafka's ReplicaFetcherManager and
ReplicaFetcherThread).

Partitions report their roles (Partition.on_role); nothing else needs to be called.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from ottla.base import tasks
from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.base.errors import Error, KafkaError
from ottla.broker.replica_manager.fetch_plan import FOREVER_MS, FetchPlan, FetchRequestPlan, FollowedPartition, Key
from ottla.broker.replica_manager.replication_quota import ReplicationQuotaManager, throttles
from ottla.controller.image import MetadataImage
from ottla.network.peer import BrokerConnection, PeerError
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ottla.quotas.meter_registry import Windows
from ottla.replication.follower_rules import FetchPosition
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet
from ottla.replication.waiting_requests import WaitingProduce

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.controller.cluster.membership import ClusterMembership


APPEND_BYTES_PER_SLICE: Final = 1 << 20
RESPONSE_SLACK_MS: Final = 5_000  # in addition to the maximum wait; then the connection is replaced
FIRST_RETRY_SECONDS: Final = 0.02
NO_SESSION_ERRORS: Final = (
    Error.FETCH_SESSION_ID_NOT_FOUND,
    Error.INVALID_FETCH_SESSION_EPOCH,
    Error.FETCH_SESSION_TOPIC_ID_ERROR,
)
EXPECTED_ERRORS: Final = (  # while a change of leaders spreads through the cluster
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.UNKNOWN_LEADER_EPOCH,
    Error.FENCED_LEADER_EPOCH,
    Error.UNKNOWN_TOPIC_ID,
    Error.UNKNOWN_TOPIC_OR_PARTITION,
)
NO_RECORDS: Final = memoryview(b"")

logger = logging.getLogger(__name__)

FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"

OpenPeer = Callable[[int, str], BrokerConnection]
"""Opens a separate connection to a broker, for a purpose."""

FetcherKey = tuple[int, int]  # the leader, and the number of the connection to it


class FetcherBroker(Protocol):
    """The part of the broker that a fetcher uses."""

    node_id: int
    clock: Clock
    quota: ReplicationQuotaManager

    @property
    def settings(self) -> BrokerSettings: ...

    @property
    def broker_epoch(self) -> int: ...

    def open(self, leader_id: int, number: int) -> BrokerConnection: ...


class InFlightFetch:
    """A fetch in flight."""

    def __init__(self, ask: FetchRequestPlan, answer: asyncio.Task[FetchResponse]) -> None:
        self.request = ask
        self.response = answer


class ReplicaFetcher:
    """Copies partitions from one leader over one connection.

    Rules:
    1. A partition that cannot be copied now is delayed; the others continue.
    2. A new partition, or one whose delay ended, is requested at once with a second fetch, which completes the delayed
    first one.
    3. Received records are appended in pieces of about a megabyte; other tasks run in between.
    4. Partition checks at each append that the position and the leader epoch of the request still hold.
    """

    def __init__(self, broker: FetcherBroker, leader_id: int, number: int) -> None:
        self.leader_id = leader_id
        self.number = number
        self.plan = FetchPlan()
        self.failures = 0  # of the connection, since the last response
        self.requests = 0
        self._broker = broker
        self._wakeup = asyncio.Event()
        self._calls: deque[InFlightFetch] = deque()
        self._peer: BrokerConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._slice_bytes = 0

    # ---- partitions

    def add_partition(self, partition: Partition) -> None:
        self.plan.add(partition)
        if partition.is_flushing:
            self._wait_for_flush(self.plan.followed[partition.topic_id, partition.name.partition])
        self.wake()
        if self._task is None:
            self._task = tasks.spawn_restarting(self._run, f"copying from broker {self.leader_id}")

    def remove_partition(self, partition: Partition) -> None:
        self.plan.remove((partition.topic_id, partition.name.partition))
        self.wake()

    def wake(self) -> None:
        """Stop waiting, because there is a new partition or the leader has returned."""
        self._wakeup.set()

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
                    await self._on_disconnect(problem)
            self._task = None  # there are no partitions; add_partition() starts a new task
        finally:
            self._drop_calls()
            self.plan.reset_session()
            if self._peer is not None:
                self._peer.close()
                self._peer = None

    async def _step(self) -> None:
        """Send the due request, then wait for a response or a wakeup."""
        self._wakeup.clear()
        self._send_if_due()
        if not self._calls:
            await self._wait_for_wakeup(self._wait_seconds())
            return
        first = self._calls[0]
        news = tasks.spawn_awaited(self._wakeup.wait(), "news for a fetcher")
        try:
            seconds = self._wait_seconds() if self._may_send() else None
            await asyncio.wait((first.response, news), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        if first.response.done():
            self._calls.popleft()
            await self._process_response(first, first.response.result())

    def _send_if_due(self) -> None:
        if not self._may_send():
            return
        now_ms = self._now_ms()
        self._delay_throttled(now_ms)
        under_way = self._calls[0].request if self._calls else None
        ask = self.plan.next_request(now_ms, under_way) if under_way is None or self.plan.has_changes(now_ms) else None
        if ask is not None:  # built here: when its task starts, the plan may have changed
            settings = self._broker.settings
            request = fetch_request(ask, self.plan, settings, self._broker.node_id, self._broker.broker_epoch)
            self._calls.append(InFlightFetch(ask, tasks.spawn_awaited(self._fetch(request), "a replica's fetch")))

    def _delay_throttled(self, now_ms: int) -> None:
        """Delay throttled partitions, including those with a new role, after a flush, or after another delay."""
        quota = self._broker.quota
        if not quota.is_on:
            return
        answer_bytes = self._broker.settings.replica_fetch_max_bytes
        promised = answer_bytes * sum(self._is_charged(key) for call in self._calls for key in call.request.wanted)
        for followed in self.plan.candidates(now_ms):
            partition, is_behind = followed.partition, followed.is_behind
            wait_ms = quota.shared_wait_ms(partition, is_behind, promised == 0, promised + answer_bytes)
            if wait_ms:
                self.plan.delay(followed, now_ms + wait_ms)
            elif quota.is_charged(partition, is_behind):
                promised += answer_bytes

    def _is_charged(self, key: Key) -> bool:
        followed = self.plan.followed.get(key)
        return followed is not None and self._broker.quota.is_charged(followed.partition, followed.is_behind)

    def _may_send(self) -> bool:
        """Return whether a fetch may be sent:

        one at a time, and a second one for changes while the leader delays the first.
        """
        return not self._calls or (len(self._calls) == 1 and self.plan.has_session)

    async def _fetch(self, request: FetchRequest) -> FetchResponse:
        if self._peer is None or self._peer.is_closed:
            self._peer = self._broker.open(self.leader_id, self.number)
        self.requests += 1
        timeout_ms = min(self._broker.settings.replica_socket_timeout_ms, request.max_wait_ms + RESPONSE_SLACK_MS)
        return await self._peer.call(request, FetchResponse, timeout_ms=timeout_ms)

    def _wait_seconds(self) -> float:
        until_ms = self.plan.wakeup_ms()
        return 3600.0 if until_ms == FOREVER_MS else max(0.001, (until_ms - self._now_ms()) / 1000)

    async def _wait_for_wakeup(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wakeup.wait()
        except TimeoutError:
            pass

    async def _on_disconnect(self, problem: PeerError) -> None:
        """Handle a lost connection: start again after a pause or at a wakeup."""
        self._drop_calls()
        self.plan.reset_session()
        longest = self._broker.settings.replica_fetch_backoff_ms / 1000
        seconds = min(longest, FIRST_RETRY_SECONDS * 2 ** min(self.failures, 10))
        if self.failures == 0:
            logger.info("cannot fetch from broker %d: %s", self.leader_id, problem)
        self.failures += 1
        self._wakeup.clear()
        await self._wait_for_wakeup(seconds)

    def _drop_calls(self) -> None:
        while self._calls:
            self._calls.popleft().response.cancel()

    # ---- responses

    async def _process_response(self, call: InFlightFetch, response: FetchResponse) -> None:
        if self.failures:
            logger.info("fetching from broker %d again", self.leader_id)
        self.failures = 0
        error = Error(response.error_code)
        if error is not Error.NONE:
            self._drop_calls()
            self.plan.reset_session()
            if error not in NO_SESSION_ERRORS:
                raise PeerError(f"it answers {error.name}")
            return
        self.plan.update_session(call.request, response.session_id)
        later = self._calls[0].request.wanted if self._calls else {}
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                followed = self.plan.followed.get(key)
                if followed is not None and key not in later:
                    self._process_partition(followed, call.request.wanted.get(key, followed.position), data)
                    if self._slice_bytes >= APPEND_BYTES_PER_SLICE:
                        self._slice_bytes = 0
                        await asyncio.sleep(0)
        self.plan.restore_in_flight(call.request)

    def _process_partition(self, followed: FollowedPartition, position: FetchPosition, data: PartitionData) -> None:
        partition = followed.partition
        try:
            self._process_partition_data(followed, position, data)
        except KafkaError as problem:
            self._on_failure(followed, problem)
            return
        except Exception:  # one damaged partition must not stop the others
            logger.exception("cannot copy %s", partition.name)
            self._on_failure(followed, KafkaError(Error.UNKNOWN_SERVER_ERROR))
            return
        if partition.fetch_position() != position or partition.log.log_start_offset != followed.log_start_offset:
            followed.failures = 0
            self.plan.request_again(followed)
        if partition.is_flushing:
            self._wait_for_flush(followed)
        elif wait_ms := self._broker.quota.wait_ms(partition, followed.is_behind):
            self.plan.delay(followed, self._now_ms() + wait_ms)

    def _process_partition_data(
        self, followed: FollowedPartition, position: FetchPosition, data: PartitionData
    ) -> None:
        partition = followed.partition
        error = Error(data.error_code)
        if error is Error.OFFSET_OUT_OF_RANGE and data.log_start_offset > position.offset:
            if partition.restart_at(position, data.log_start_offset):
                logger.warning(
                    "%s restarts at offset %d, the log start offset of its leader",
                    partition.name,
                    data.log_start_offset,
                )
            return
        if error is not Error.NONE:
            raise KafkaError(error, f"broker {self.leader_id} answers {error.name}")
        if data.diverging_epoch is not None:
            self._truncate(partition, position, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            return
        records = data.records if isinstance(data.records, memoryview) else NO_RECORDS
        if not partition.append_fetched(position, records, data.high_watermark, data.log_start_offset):
            return
        size = len(records)
        self._slice_bytes += size
        partition.traffic.replication_bytes_in += size
        followed.lag = max(0, data.high_watermark - partition.log.end_offset)
        if size:
            self._broker.quota.record(partition, size)

    def _truncate(self, partition: Partition, position: FetchPosition, epoch: int, end_offset: int) -> None:
        before, watermark = partition.log.end_offset, partition.high_watermark
        if not partition.truncate_on_divergence(position, epoch, end_offset):
            if partition.is_response_valid(position):
                raise KafkaError(Error.UNKNOWN_SERVER_ERROR, "its log diverges from the leader's at an unknown offset")
            return
        after = partition.log.end_offset
        logger.info("%s: truncated from %d to %d, where it diverges from its leader", partition.name, before, after)
        if after < watermark:
            logger.warning("%s: offsets %d to %d were committed and are lost", partition.name, after, watermark)

    def _wait_for_flush(self, followed: FollowedPartition) -> None:
        """Delay the next request until the flush, because it reports to the leader that earlier records are on disk."""
        self.plan.delay(followed)

        def on_flushed() -> None:
            self.plan.release(followed.key)
            self.wake()

        followed.partition.wait_for_flush(WaitingProduce(1, on_flushed))

    def _on_failure(self, followed: FollowedPartition, problem: KafkaError) -> None:
        delay_ms = self.plan.delay_after_failure(
            followed, self._broker.settings.replica_fetch_backoff_ms, self._now_ms()
        )
        is_expected = problem.error in EXPECTED_ERRORS
        log = logger.debug if is_expected and delay_ms < self._broker.settings.replica_fetch_backoff_ms else logger.info
        log("cannot copy %s from broker %d now: %s", followed.partition.name, self.leader_id, problem)

    def _now_ms(self) -> int:
        return self._broker.clock.monotonic_ms()

    def __repr__(self) -> str:
        return f"<ReplicaFetcher {self.number} of broker {self.leader_id}, {self.plan!r}>"


def fetch_request(
    ask: FetchRequestPlan, plan: FetchPlan, settings: BrokerSettings, node_id: int, broker_epoch: int
) -> FetchRequest:
    """Return the request.

    The first fetch of a session does not wait: partitions added meanwhile follow with the next one.
    """
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


class ReplicaFetcherManager:
    """All fetchers of this broker."""

    def __init__(self, node: Node, replicas: ReplicaSet, membership: ClusterMembership, open_peer: OpenPeer) -> None:
        self._node = node
        self._replicas = replicas
        self._membership = membership
        self._open_peer = open_peer
        self.node_id = node.id
        self.clock = node.clock
        self.fetchers: dict[FetcherKey, ReplicaFetcher] = {}
        self._fetcher_keys: dict[Partition, FetcherKey] = {}
        self._is_stopped = False
        settings = node.settings
        windows = Windows(settings.replication_quota_window_num, settings.replication_quota_window_size_seconds * 1000)
        self.quota = ReplicationQuotaManager(
            node.clock,
            lambda: self.settings.follower_replication_throttled_rate,
            self._is_throttled_follower,
            windows,
        )
        self.leader_quota = ReplicationQuotaManager(
            node.clock,
            lambda: self.settings.leader_replication_throttled_rate,
            self._is_throttled_leader,
            windows,
        )
        replicas.on_role = self.on_role
        node.images.add_listener(self.on_image)
        node.dynamic_config.on_change(lambda _: self._resize_fetchers())
        for partition in list(replicas.partitions.values()):
            partition.on_state_change = self.on_role
            self.on_role(partition)

    # ---- for fetchers

    @property
    def settings(self) -> BrokerSettings:
        return self._node.settings

    @property
    def broker_epoch(self) -> int:
        return self._membership.broker_epoch

    def open(self, leader_id: int, number: int) -> BrokerConnection:
        return self._open_peer(leader_id, f"fetcher-{number}")

    # ---- roles

    def on_role(self, partition: Partition) -> None:
        """Follow a partition with a new role; stop following a closed one."""
        place = self._fetcher_key(partition)
        before = self._fetcher_keys.get(partition)
        if before is not None and before != place:
            del self._fetcher_keys[partition]
            fetcher = self.fetchers.get(before)
            if fetcher is not None:
                fetcher.remove_partition(partition)
        if place is None or self._is_stopped:
            return
        self._fetcher_keys[partition] = place
        fetcher = self.fetchers.get(place)
        if fetcher is None:
            fetcher = self.fetchers[place] = ReplicaFetcher(self, *place)
        fetcher.add_partition(partition)

    def _fetcher_key(self, partition: Partition) -> FetcherKey | None:
        leader = partition.leader_id
        if partition.is_deleted or leader < 0 or leader == self.node_id:
            return None
        return leader, zlib.crc32(str(partition.name).encode()) % self.settings.num_replica_fetchers

    def _resize_fetchers(self) -> None:
        """Adapt the number of fetchers to the settings."""
        for partition, place in list(self._fetcher_keys.items()):
            if self._fetcher_key(partition) != place:
                self.on_role(partition)

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Wake the fetchers of a broker that has started."""
        if old.brokers is new.brokers:
            return
        for (leader_id, _), fetcher in self.fetchers.items():
            now, before = new.brokers.get(leader_id), old.brokers.get(leader_id)
            if now is not None and (before is None or before.epoch != now.epoch):
                fetcher.wake()

    async def stop(self) -> None:
        """Stop all fetchers."""
        self._is_stopped = True
        self._replicas.on_role = None
        for fetcher in self.fetchers.values():
            fetcher.stop()
        await asyncio.sleep(0)

    # ---- the throttle

    def _is_throttled_follower(self, partition: Partition) -> bool:
        return self._is_throttled(partition, FOLLOWER_REPLICAS)

    def _is_throttled_leader(self, partition: Partition) -> bool:
        return self._is_throttled(partition, LEADER_REPLICAS)

    def _is_throttled(self, partition: Partition, setting: str) -> bool:
        topic, index = partition.name
        value = self._node.image.topic_configs.get(topic, {}).get(setting, "")
        return throttles(tuple(item.strip() for item in value.split(",")), index, self.node_id)

    @property
    def lag_max(self) -> int:
        return max((fetcher.plan.lag_max for fetcher in self.fetchers.values()), default=0)

    def __repr__(self) -> str:
        return f"<ReplicaFetcherManager {len(self._fetcher_keys)} partitions, {len(self.fetchers)} fetchers>"
