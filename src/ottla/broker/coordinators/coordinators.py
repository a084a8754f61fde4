"""The coordinators of this broker: their runtimes, their internal topics, and requests that wait for them.

Groups and transactions belong to partitions of internal topics, and whoever leads such a partition coordinates them.
So coordinators move with leaders: after every image in which an internal topic has changed, what is ours is loaded and
what is not ours any more is given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.base import tasks
from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.resource_checks import inherited_by_groups
from ottla.base.resource_keys import GroupResourceKeys
from ottla.broker.context import Context
from ottla.broker.coordinators.deleted_topics import DeletedTopics
from ottla.broker.coordinators.group_topics import ImageCatalog, matching_topics
from ottla.broker.coordinators.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, InternalTopics
from ottla.broker.coordinators.markers import MarkerWriter
from ottla.broker.coordinators.sweeps import Sweeps
from ottla.broker.coordinators.transaction_messages import Call, MarkerMessengers, PartitionMessengers
from ottla.broker.coordinators.transaction_verification import TransactionVerification
from ottla.broker.coordinators.verification_guards import VerificationGuards
from ottla.broker.responder import Responder
from ottla.controller.decisions.machine import NewTopic
from ottla.controller.image import MetadataImage, TopicImage
from ottla.coordination.machine import Decision, ReplyTo
from ottla.coordination.runtime import Runtime
from ottla.coordination.shard import Shard
from ottla.groups.machine import GroupMachine
from ottla.groups.settings import ConsumerTimes, GroupSettings
from ottla.replication.replica_set import ReplicaSet
from ottla.transactions.machine import TransactionMachine, TransactionSettings

if TYPE_CHECKING:
    from ottla.broker.node import Node

MINUTE_MS: Final = 60_000

# What a coordinator that cannot write its records tells its clients.
WRITE_ERRORS: Final = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS: Error.COORDINATOR_NOT_AVAILABLE,
    Error.REQUEST_TIMED_OUT: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_LEADER_OR_FOLLOWER: Error.NOT_COORDINATOR,
    Error.KAFKA_STORAGE_ERROR: Error.NOT_COORDINATOR,
    Error.MESSAGE_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
    Error.RECORD_LIST_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
}


Shape = Callable[[Any], Any]
"""Gives an answer the form that an old version of its API has."""


class Coordinators:
    """Group coordinator and transaction coordinator of one broker."""

    def __init__(
        self,
        node: Node,
        replicas: ReplicaSet,
        internal_topics: InternalTopics,
        call: Call,
        must_check_leadership: Callable[[], bool] | None,
    ) -> None:
        """`call` asks another broker. While leadership has to be checked nobody is told what we believe to know."""
        self._node = node
        self._replicas = replicas
        self.internal_topics = internal_topics
        self._times_of: dict[str, ConsumerTimes] = {}  # of groups that have settings of their own
        self._image_count = 0  # an image that was loaded anew counts its generations anew
        self.groups: Runtime[GroupMachine] = self._runtime(
            OFFSETS_TOPIC,
            node.settings.offsets_commit_timeout_ms,
            self._make_group_machine,
            node.settings.offsets_topic_compression_codec,
        )
        self.transactions: Runtime[TransactionMachine] = self._runtime(
            TRANSACTIONS_TOPIC,
            node.settings.request_timeout_ms,
            lambda: TransactionMachine(transaction_settings(node.settings)),
        )
        self._sweeps = Sweeps(self.groups), Sweeps(self.transactions)
        self._deleted_topics = DeletedTopics(self.groups, self._sweeps[0])
        self.groups.on_taken = self._deleted_topics.on_taken
        self.guards = VerificationGuards()
        self._partition_messengers = PartitionMessengers(call)
        self.verification = TransactionVerification(node, self.transactions, self._partition_messengers)
        self._marker_messengers = MarkerMessengers(call)
        self.markers = MarkerWriter(
            replicas,
            node.clock,
            self.groups,
            self.transactions,
            self._leader_of,
            self._marker_messengers,
            self.guards,
        )
        self.transactions.on_settled = self._on_settled
        self._following: asyncio.Task[None] | None = None
        self.groups.must_check_leadership = self.transactions.must_check_leadership = must_check_leadership
        node.live.on_change(self._change_settings)

    def _runtime(self, topic: str, wait_ms_max: int, make_machine: Callable[[], Any], codec: int = 0) -> Runtime[Any]:
        node = self._node
        return Runtime(topic, self._replicas, node.workers, node.clock, make_machine, refuse, codec, wait_ms_max)

    def _on_settled(self, shard: Shard[TransactionMachine]) -> None:
        self.markers.send_from(shard)
        self.verification.on_settled(shard)

    # ---- other brokers

    def _leader_of(self, topic: str, index: int) -> int | None:
        state = self._node.image.partition(topic, index)
        return None if state is None else state.leader

    # ---- internal topics

    def follow(self) -> None:
        """The publisher has opened what is new: load what we coordinate from now on."""
        self._times_of = group_times(self._node.image, self._node.settings)
        for runtime in (self.groups, self.transactions):
            topic = self._node.image.topics.get(runtime.topic)
            runtime.follow(len(topic.partitions) if topic is not None else 0)

    def on_recovered(self, name: TopicPartition) -> None:
        """A partition is back after a crash. Before the first follow() all of them are yet to be looked at."""
        for runtime in (self.groups, self.transactions):
            if name.topic == runtime.topic and runtime.partition_count:
                runtime.look_at(name.partition)

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Coordinators come and go with leaders; groups get other settings; offsets of deleted topics go."""
        if old.group_configs is not new.group_configs:
            self._change_settings(self._node.settings)
        changed = new.changed_topics_since(old)
        self._image_count += 1
        self._deleted_topics.on_topics_changed(changed, old.topics, new.topics)
        if OFFSETS_TOPIC in changed or TRANSACTIONS_TOPIC in changed:
            self._follow_soon()

    def _follow_soon(self) -> None:
        """The publisher gives partitions their roles in slices: look at once, and when all have theirs."""
        self.follow()
        if self._following is None:
            self._following = tasks.keep_running(self._follow_settled, "following the leaders of internal topics")

    async def _follow_settled(self) -> None:
        await self.internal_topics.settled()
        self._following = None
        self.follow()

    async def ensure_topic(self, wanted: NewTopic) -> TopicImage:
        """Made when the first client asks for its coordinator, as Kafka does."""
        if wanted.name not in self._node.image.topics:
            await self.internal_topics.ensure(wanted)
            self.follow()
        topic = self._node.image.topics.get(wanted.name)
        if topic is None:  # the controller has it, and tells us any moment
            raise KafkaError(Error.COORDINATOR_NOT_AVAILABLE)
        return topic

    def catalog(self, sees: Callable[[str], bool] | None = None) -> ImageCatalog:
        """The topics as they are now, with `sees` as somebody may know of them."""
        return ImageCatalog(self._node.image, self._image_count, sees)

    # ---- asking

    def ask_group(
        self,
        context: Context,
        group_id: str,
        decide: Callable[[GroupMachine, ReplyTo, int], Decision],
        shape: Shape | None = None,
        is_gathered: bool = False,
    ) -> Responder:
        """Let the group's machine decide; the handler returns what this returns."""
        shard = self.groups.shard(group_id, is_gathered)
        responder = context.responder
        reply_to = responder.answer if shape is None else lambda response: responder.answer(shape(response))
        decision = decide(shard.machine, reply_to, self.groups.now_ms())
        if is_gathered:
            self.groups.gather(shard, decision)
        else:
            self.groups.run(shard, decision)
        return responder.keep()

    # ---- settings and the end

    def _change_settings(self, settings: BrokerSettings) -> None:
        self._times_of = group_times(self._node.image, settings)
        for groups in self.groups.loaded():
            groups.machine.change_settings(group_settings(settings))
            self._configured(groups.machine)
        for transactions in self.transactions.loaded():
            transactions.machine.settings = transaction_settings(settings)

    def _make_group_machine(self) -> GroupMachine:
        machine = GroupMachine(group_settings(self._node.settings), matching_topics, self.catalog)
        machine.made_at = self._deleted_topics.count
        return self._configured(machine)

    def _configured(self, machine: GroupMachine) -> GroupMachine:
        machine.consumer.times_of = self._times_of
        return machine

    def close(self) -> None:
        for sweeps in self._sweeps:
            sweeps.close()
        self.groups.close()
        self.transactions.close()
        self._marker_messengers.close()
        self._partition_messengers.close()


def group_settings(settings: BrokerSettings) -> GroupSettings:
    return GroupSettings(
        session_timeout_ms_min=settings.group_min_session_timeout_ms,
        session_timeout_ms_max=settings.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        size_max=settings.group_max_size,
        offset_metadata_bytes_max=settings.offset_metadata_max_bytes,
        offsets_retention_ms=settings.offsets_retention_minutes * MINUTE_MS,
        offsets_check_interval_ms=settings.offsets_retention_check_interval_ms,
        consumer_times=ConsumerTimes(
            settings.group_consumer_session_timeout_ms,
            settings.group_consumer_heartbeat_interval_ms,
            settings.group_consumer_assignment_interval_ms,
        ),
        consumer_size_max=settings.group_consumer_max_size,
        consumer_assignors=settings.group_consumer_assignors,
        migration_policy=settings.group_consumer_migration_policy.lower(),
    )


def group_times(image: MetadataImage, settings: BrokerSettings) -> dict[str, ConsumerTimes]:
    """What groups have of their own, over what the broker has for all."""
    names = [f"consumer.{field.replace('_', '.')}" for field in ConsumerTimes._fields]
    inherited = {name: inherited_by_groups(name, settings) for name in names}
    times = {}
    for group, overrides in image.group_configs.items():
        own = {name: GroupResourceKeys.keys[name].value(overrides[name]) for name in names if name in overrides}
        if own:
            times[group] = ConsumerTimes(*(own.get(name, inherited[name]) for name in names))
    return times


def transaction_settings(settings: BrokerSettings) -> TransactionSettings:
    return TransactionSettings(
        timeout_ms_max=settings.transaction_max_timeout_ms,
        abort_interval_ms=settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        id_expiration_ms=settings.transactional_id_expiration_ms,
        id_expiration_interval_ms=settings.transaction_remove_expired_transaction_cleanup_interval_ms,
    )


def refuse(response: Any, error: Error) -> Any:
    """The same response, saying that its records could not be written."""
    told = WRITE_ERRORS.get(error, error)
    if isinstance(response, Error):
        return told
    if hasattr(response, "_replace"):
        return type(response)(told)
    if hasattr(response, "error_code"):
        response.error_code = told
    for topic in getattr(response, "topics", ()):
        for row in topic.partitions:
            if row.error_code == Error.NONE:
                row.error_code = Error.INVALID_COMMIT_OFFSET_SIZE if told is Error.UNKNOWN_SERVER_ERROR else told
    return response
