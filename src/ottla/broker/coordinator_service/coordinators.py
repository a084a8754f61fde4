"""Group coordinator and transaction coordinator of this broker: runtimes, internal topics and pending requests.

Groups and transactions belong to partitions of internal topics; the leader of such a partition is their coordinator.
After every image that changes an internal topic, shards of newly led partitions are loaded and shards of other
partitions unloaded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.base import tasks
from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error, KafkaError
from ottla.base.logs import LogLimiter
from ottla.base.names import TopicPartition
from ottla.base.resource_keys import GroupResourceKeys, inherited_by_groups
from ottla.broker.context import Context
from ottla.broker.coordinator_service.group_topics import RegexResolver, TopicCatalog, TopicPatterns
from ottla.broker.coordinator_service.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, InternalTopicCreator
from ottla.broker.coordinator_service.sweeps import DeletedTopicOffsets, Sweeps
from ottla.broker.coordinator_service.transaction_channels import (
    AddPartitionsToTxnManager,
    SendRequest,
    TransactionMarkerChannelManager,
)
from ottla.broker.coordinator_service.transaction_markers import TxnMarkerWriter
from ottla.broker.coordinator_service.transaction_verification import TransactionVerification, VerificationGuards
from ottla.broker.responder import Responder
from ottla.controller.decisions.topic_changes import NewTopic
from ottla.controller.image import MetadataImage, TopicImage
from ottla.coordination.machine import Decision, Machine, ReplyTo
from ottla.coordination.runtime import CoordinatorRuntime
from ottla.coordination.shard import CoordinatorContext
from ottla.groups.classic_group import join_error_response
from ottla.groups.group_coordinator import GroupCoordinator
from ottla.groups.settings import ConsumerGroupTimes, GroupSettings
from ottla.protocol.messages.consumer_groups import ConsumerGroupHeartbeatResponse
from ottla.protocol.messages.groups import JoinGroupResponse
from ottla.replication.replica_set import ReplicaSet
from ottla.transactions.transaction_coordinator import TransactionCoordinator, TransactionSettings

if TYPE_CHECKING:
    from ottla.broker.node import Node


M = TypeVar("M", bound=Machine)

logger = logging.getLogger(__name__)

MINUTE_MS: Final = 60_000
WARNING_INTERVAL_MS: Final = 10_000

# Errors of clients for append errors of the coordinator.
WRITE_ERRORS: Final = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS: Error.COORDINATOR_NOT_AVAILABLE,
    Error.REQUEST_TIMED_OUT: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_LEADER_OR_FOLLOWER: Error.NOT_COORDINATOR,
    Error.KAFKA_STORAGE_ERROR: Error.NOT_COORDINATOR,
    Error.MESSAGE_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
    Error.RECORD_LIST_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
}

ConvertResponse = Callable[[Any], Any]
"""Converts a response for an old version of its API."""


async def run_decision(runtime: CoordinatorRuntime[M], key: str, decide: Callable[[M, Any, int], Decision]) -> Any:
    """Run a decision on the shard of this key; returns the response after its records are committed."""
    answer = start_decision(runtime, key, decide)
    return answer.result() if answer.done() else await answer


def start_decision(
    runtime: CoordinatorRuntime[M], key: str, decide: Callable[[M, Any, int], Decision]
) -> asyncio.Future[Any]:
    """Start run_decision(); the decision is made and appended when this returns."""
    shard = runtime.shard(key)
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def reply_to(response: Any) -> None:
        if not answer.done():
            answer.set_result(response)

    runtime.execute(shard, decide(shard.machine, reply_to, runtime.now_ms()))
    return answer


class Coordinators:
    """Group coordinator and transaction coordinator of one broker."""

    def __init__(
        self,
        node: Node,
        replicas: ReplicaSet,
        internal_topics: InternalTopicCreator,
        call: SendRequest,
        must_check_leadership: Callable[[], bool] | None,
    ) -> None:
        """`call` sends a request to another broker. While `must_check_leadership` is true, no state is returned."""
        self._node = node
        self._replicas = replicas
        self.internal_topics = internal_topics
        self._group_times: dict[str, ConsumerGroupTimes] = {}  # of groups with their own settings
        self._log_limiter = LogLimiter(WARNING_INTERVAL_MS)
        self._image_count = 0  # number of images: reloaded images restart their own generation
        self._new_topics_count = 0  # the last image with new topics
        self.topic_patterns = TopicPatterns(node.workers)
        self._group_topics = RegexResolver(self.topic_patterns)
        self.groups: CoordinatorRuntime[GroupCoordinator] = self._runtime(
            OFFSETS_TOPIC,
            node.settings.offsets_commit_timeout_ms,
            self._make_group_machine,
            node.settings.offsets_topic_compression_codec,
        )
        self.transactions: CoordinatorRuntime[TransactionCoordinator] = self._runtime(
            TRANSACTIONS_TOPIC,
            node.settings.request_timeout_ms,
            lambda: TransactionCoordinator(transaction_settings(node.settings)),
        )
        self._sweeps = Sweeps(self.groups), Sweeps(self.transactions)
        self._deleted_topics = DeletedTopicOffsets(self.groups, self._sweeps[0])
        self.groups.on_shard_loaded = self._deleted_topics.on_shard_loading
        self.guards = VerificationGuards()
        self._partition_channels = AddPartitionsToTxnManager(call)
        self.verification = TransactionVerification(node, self.transactions, self._partition_channels)
        self._marker_channels = TransactionMarkerChannelManager(call)
        self.markers = TxnMarkerWriter(
            replicas,
            node.clock,
            self.groups,
            self.transactions,
            self._leader_of,
            self._marker_channels,
            self.guards,
        )
        self.transactions.on_machine_changed = self._on_transactions_completed
        self._following: asyncio.Task[None] | None = None
        self.groups.must_check_leadership = self.transactions.must_check_leadership = must_check_leadership
        node.dynamic_config.on_change(self._change_settings)

    def _runtime(
        self, topic: str, wait_ms_max: int, make_machine: Callable[[], Any], codec: int = 0
    ) -> CoordinatorRuntime[Any]:
        node = self._node
        return CoordinatorRuntime(
            topic, self._replicas, node.workers, node.clock, make_machine, with_write_error, codec, wait_ms_max
        )

    def _on_transactions_completed(self, shard: CoordinatorContext[TransactionCoordinator]) -> None:
        self.markers.start_orders(shard)
        self.verification.on_transactions_completed(shard)

    # ---- other brokers

    def _leader_of(self, topic: str, index: int) -> int | None:
        state = self._node.image.partition(topic, index)
        return None if state is None else state.leader

    # ---- internal topics

    def load_led_shards(self) -> None:
        """Load the shards of partitions that the publisher has opened."""
        self._group_times = group_times(self._node.image, self._node.settings)
        for runtime in (self.groups, self.transactions):
            topic = self._node.image.topics.get(runtime.topic)
            runtime.set_partition_count(len(topic.partitions) if topic is not None else 0)

    def on_recovered(self, name: TopicPartition) -> None:
        """Load the shard of a recovered partition. Before the first load_led_shards() no shard is loaded."""
        for runtime in (self.groups, self.transactions):
            if name.topic == runtime.topic and runtime.partition_count:
                runtime.maybe_load(name.partition)

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Load and unload shards, apply group settings, and remove offsets of deleted topics."""
        if old.group_configs is not new.group_configs:
            self._change_settings(self._node.settings)
        changed = new.changed_topics_since(old)
        self._image_count += 1
        if any(name in new.topics and name not in old.topics for name in changed):
            self._new_topics_count = self._image_count
        self._deleted_topics.on_topics_changed(changed, old.topics, new.topics)
        if OFFSETS_TOPIC in changed or TRANSACTIONS_TOPIC in changed:
            self._schedule_loading()

    def _schedule_loading(self) -> None:
        """Check shards at once, and again after the publisher has assigned all roles in slices."""
        self.load_led_shards()
        if self._following is None:
            self._following = tasks.spawn_restarting(self._load_after_roles, "following the leaders of internal topics")

    async def _load_after_roles(self) -> None:
        await self.internal_topics.wait_until_applied()
        self._following = None
        self.load_led_shards()

    async def ensure_topic(self, wanted: NewTopic) -> TopicImage:
        """Create an internal topic when the first client needs its coordinator, as Kafka does."""
        if wanted.name not in self._node.image.topics:
            await self.internal_topics.ensure(wanted)
            self.load_led_shards()
        topic = self._node.image.topics.get(wanted.name)
        if topic is None:  # the controller has created it; the image will arrive
            raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE)
        return topic

    def catalog(self, sees: Callable[[str], bool] | None = None) -> TopicCatalog:
        """Return the topics of the current image; `sees` filters the topics that the client may describe."""
        return TopicCatalog(self._node.image, self._image_count, self._new_topics_count, sees)

    # ---- requests

    def run_group_decision(
        self,
        context: Context,
        group_id: str,
        decide: Callable[[GroupCoordinator, ReplyTo, int], Decision],
        convert: ConvertResponse | None = None,
        is_gathered: bool = False,
    ) -> Responder:
        """Run a decision on the group's shard; the handler returns this result."""
        shard = self.groups.shard(group_id, is_gathered)
        responder = context.responder
        reply_to = responder.answer if convert is None else lambda response: responder.answer(convert(response))
        decision = decide(shard.machine, reply_to, self.groups.now_ms())
        if is_gathered:
            self.groups.execute_batched(shard, decision)
        else:
            self.groups.execute(shard, decision)
            self._group_topics.start(self.groups, shard)
        return responder.defer()

    # ---- settings and shutdown

    def _change_settings(self, settings: BrokerSettings) -> None:
        self._group_times = group_times(self._node.image, settings)
        for groups in self.groups.loaded():
            groups.machine.change_settings(group_settings(settings))
            self._apply_settings(groups.machine)
        for transactions in self.transactions.loaded():
            transactions.machine.settings = transaction_settings(settings)

    def _make_group_machine(self) -> GroupCoordinator:
        machine = GroupCoordinator(group_settings(self._node.settings), self._group_topics.validate, self.catalog)
        machine.topic_change_count = self._deleted_topics.count
        machine.memory.total_bytes = self.metadata_bytes
        machine.memory.on_limit_reached = self._on_metadata_full
        return self._apply_settings(machine)

    def metadata_bytes(self) -> int:
        """Return the memory for metadata of all group members on this broker."""
        return sum(machine.memory.used for machine in self.groups.machines())

    def _on_metadata_full(self, group_id: str) -> None:
        if self._log_limiter.is_due(self._node.clock.monotonic_ms()):
            at_most = self._node.settings.ottla_group_metadata_max_bytes
            logger.warning(
                "a new member of group %s is refused: the members of all groups use %d bytes of metadata, and "
                "ottla.group.metadata.max.bytes is %d. Increase it, or find the groups that are so large",
                group_id,
                self.metadata_bytes(),
                at_most,
            )

    def _apply_settings(self, machine: GroupCoordinator) -> GroupCoordinator:
        machine.consumer.group_overrides = self._group_times
        return machine

    def close(self) -> None:
        for sweeps in self._sweeps:
            sweeps.close()
        self._group_topics.close()
        self.groups.close()
        self.transactions.close()
        self._marker_channels.close()
        self._partition_channels.close()


def group_settings(settings: BrokerSettings) -> GroupSettings:
    return GroupSettings(
        session_timeout_ms_min=settings.group_min_session_timeout_ms,
        session_timeout_ms_max=settings.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        size_max=settings.group_max_size,
        metadata_bytes_max=settings.ottla_group_metadata_max_bytes,
        offset_metadata_bytes_max=settings.offset_metadata_max_bytes,
        offsets_retention_ms=settings.offsets_retention_minutes * MINUTE_MS,
        offsets_check_interval_ms=settings.offsets_retention_check_interval_ms,
        consumer_times=ConsumerGroupTimes(
            settings.group_consumer_session_timeout_ms,
            settings.group_consumer_heartbeat_interval_ms,
            settings.group_consumer_assignment_interval_ms,
        ),
        consumer_size_max=settings.group_consumer_max_size,
        consumer_assignors=settings.group_consumer_assignors,
        migration_policy=settings.group_consumer_migration_policy.lower(),
        regex_refresh_interval_ms=settings.group_consumer_regex_refresh_interval_ms,
    )


def group_times(image: MetadataImage, settings: BrokerSettings) -> dict[str, ConsumerGroupTimes]:
    """Return the settings of groups, combined with the broker's defaults."""
    names = [f"consumer.{field.replace('_', '.')}" for field in ConsumerGroupTimes._fields]
    inherited = {name: inherited_by_groups(name, settings) for name in names}
    times = {}
    for group, overrides in image.group_configs.items():
        own = {name: GroupResourceKeys.keys[name].value(overrides[name]) for name in names if name in overrides}
        if own:
            times[group] = ConsumerGroupTimes(*(own.get(name, inherited[name]) for name in names))
    return times


def transaction_settings(settings: BrokerSettings) -> TransactionSettings:
    return TransactionSettings(
        timeout_ms_max=settings.transaction_max_timeout_ms,
        abort_interval_ms=settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        id_expiration_ms=settings.transactional_id_expiration_ms,
        id_expiration_interval_ms=settings.transaction_remove_expired_transaction_cleanup_interval_ms,
    )


def with_write_error(response: Any, error: Error) -> Any:
    """Return the response with the error of a failed write."""
    told = WRITE_ERRORS.get(error, error)
    if isinstance(response, Error):
        return told
    if hasattr(response, "_replace"):
        return type(response)(told)
    if isinstance(response, JoinGroupResponse):
        return join_error_response("", told)
    if isinstance(response, ConsumerGroupHeartbeatResponse):
        return ConsumerGroupHeartbeatResponse(error_code=told)
    if hasattr(response, "error_code"):
        response.error_code = told
    for topic in getattr(response, "topics", ()):
        for row in topic.partitions:
            if row.error_code == Error.NONE:
                row.error_code = Error.INVALID_COMMIT_OFFSET_SIZE if told is Error.UNKNOWN_SERVER_ERROR else told
    return response
