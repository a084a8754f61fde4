"""The controller's decisions: what becomes of a request to create, delete or grow topics.

Rule 1: everything that decides about topics and partitions lives in this file, in placement.py and in leaders.py.
Rule 2: no await, no clock, no socket, no random. Ids and random numbers are arguments.
Rule 3: a decision changes nothing. It returns the operations for the store, the image that is true once the store has
        committed them, and the reply. Whoever runs it commits first, then takes the image, then replies.
Rule 4: an item of a request that is refused leaves no operation behind; the others go on.

Codes and messages are those of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.base.names import topic_name_collision_key, topic_name_problem
from ottla.base.placement.new_partitions import check_manual_replicas, place_replicas
from ottla.controller import tree
from ottla.controller.image import MISSING_EPOCH, MetadataImage, PartitionImage, TopicImage
from ottla.controller.stores.store import CreateNode, DeleteNode, SetNode, StoreOperation

USE_DEFAULT: Final = -1
PARTITIONS_PER_REQUEST_MAX: Final = 10_000
METADATA_LOG_TOPIC: Final = "__cluster_metadata"  # Kafka's own log of metadata: nobody may create a topic of this name

R = TypeVar("R")
ConfigCheck = Callable[[Mapping[str, str]], None]  # raises KafkaError(INVALID_CONFIG) with Kafka's message


class Decision(NamedTuple, Generic[R]):
    """What to write, what is true afterwards, what to answer."""

    operations: tuple[StoreOperation, ...]
    image: MetadataImage
    reply: R


class NewTopic(NamedTuple):
    """A topic that somebody wants; -1 stands for the broker's default."""

    name: str
    partition_count: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()  # (partition, replicas), by hand
    configs: tuple[tuple[str, str | None], ...] = ()


class MorePartitions(NamedTuple):
    """A topic that shall have so many partitions from now on; `assignments` has the replicas of the new ones."""

    name: str
    partition_count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


class TopicDefaults(NamedTuple):
    """What a topic gets when its maker does not say."""

    partition_count: int = 1
    replication_factor: int = 1


class Lot(NamedTuple):
    """The random part of one new topic: its id and where the placement of its replicas starts."""

    topic_id: UUID
    start: int
    shift: int


class TopicResult(NamedTuple):
    """What became of one topic of a request; without an error, `topic` is the topic as it is (or would be) then."""

    name: str | None
    error: Error = Error.NONE
    message: str | None = None
    topic: TopicImage | None = None
    configs: Mapping[str, str] | None = None
    topic_id: UUID | None = None


def decide_create_topics(
    image: MetadataImage,
    wanted: Sequence[NewTopic],
    defaults: TopicDefaults,
    lots: Sequence[Lot],
    check_configs: ConfigCheck,
) -> Decision[list[TopicResult]]:
    """Create what can be created; names must be unique. One lot is drawn for each wanted topic."""
    if requested_partitions(wanted, defaults) > PARTITIONS_PER_REQUEST_MAX:
        message = "Excessively large number of partitions per request."
        refused = [TopicResult(topic.name, Error.POLICY_VIOLATION, message) for topic in wanted]
        return Decision((), image, refused)
    results = []
    for new, lot in zip(wanted, lots, strict=True):
        try:
            results.append(plan_topic(image, new, defaults, lot, check_configs))
        except KafkaError as refusal:
            results.append(TopicResult(new.name, refusal.error, refusal.message))
    made = [result for result in results if result.topic is not None]
    operations = tuple(operation for result in made for operation in create_operations(image, result))
    topics = [result.topic for result in made if result.topic is not None]
    after = image.with_topics(topics, configs={result.name or "": result.configs or {} for result in made})
    return Decision(operations, after, results)


def decide_delete_topics(
    image: MetadataImage, wanted: Sequence[tuple[str | None, UUID | None]], *, is_enabled: bool = True
) -> Decision[list[TopicResult]]:
    """Delete topics by name or by id (each of them once)."""
    if not is_enabled:
        refused = [TopicResult(name, Error.TOPIC_DELETION_DISABLED, topic_id=topic_id) for name, topic_id in wanted]
        return Decision((), image, refused)
    results = [find_topic_to_delete(image, name, topic_id) for name, topic_id in wanted]
    topics = {result.topic.name: result.topic for result in results if result.topic is not None}
    operations = tuple(operation for topic in topics.values() for operation in delete_operations(image, topic))
    return Decision(operations, image.with_topics(removed=topics), results)


def decide_create_partitions(
    image: MetadataImage, wanted: Sequence[MorePartitions], lots: Sequence[Lot]
) -> Decision[list[TopicResult]]:
    """Give topics more partitions; names must be unique. One lot is drawn for each."""
    results = []
    for more, lot in zip(wanted, lots, strict=True):
        try:
            results.append(plan_partitions(image, more, lot))
        except KafkaError as refusal:
            results.append(TopicResult(more.name, refusal.error, refusal.message))
    grown = [result.topic for result in results if result.topic is not None]
    operations = tuple(operation for topic in grown for operation in grow_operations(image, topic))
    return Decision(operations, image.with_topics(grown), results)


# ---- creating


def requested_partitions(wanted: Iterable[NewTopic], defaults: TopicDefaults) -> int:
    total = 0
    for topic in wanted:
        if topic.assignments:
            total += len(topic.assignments)
        else:
            total += defaults.partition_count if topic.partition_count == USE_DEFAULT else max(0, topic.partition_count)
    return total


def plan_topic(
    image: MetadataImage, new: NewTopic, defaults: TopicDefaults, lot: Lot, check_configs: ConfigCheck
) -> TopicResult:
    """The topic as it will be, or a KafkaError. The order of the checks is Kafka's: it decides which error is told."""
    check_new_name(image, new.name)
    configs = wanted_configs(new)
    check_configs(configs)
    rows = manual_rows(image, new) if new.assignments else automatic_rows(image, new, defaults, lot)
    topic = TopicImage(new.name, lot.topic_id, new_partitions(image, rows))
    return TopicResult(new.name, topic=topic, configs=configs, topic_id=lot.topic_id)


def check_new_name(image: MetadataImage, name: str) -> None:
    if name == METADATA_LOG_TOPIC:
        raise KafkaError(Error.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in image.topics or tree.topic_path(name) in image.damaged:
        raise KafkaError(Error.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    problem = topic_name_problem(name)
    if problem is not None:
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, problem)
    others = image.names_by_collision_key.get(topic_name_collision_key(name))
    if others and ("." in name or "_" in name):
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {others[0]}")


def wanted_configs(new: NewTopic) -> dict[str, str]:
    """A setting that is given twice has its last value, as in Kafka."""
    nulls = [key for key, value in new.configs if value is None]
    if nulls:
        raise KafkaError(Error.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    return {key: value for key, value in new.configs if value is not None}


def manual_rows(image: MetadataImage, new: NewTopic) -> list[tuple[int, ...]]:
    if new.replication_factor != USE_DEFAULT:
        raise KafkaError(
            Error.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if new.partition_count != USE_DEFAULT:
        raise KafkaError(
            Error.INVALID_REQUEST, "A manual partition assignment was specified, but numPartitions was not set to -1."
        )
    rows: dict[int, tuple[int, ...]] = {}
    replication_factor = None
    for index, replicas in new.assignments:
        if index in rows:
            message = f"Found multiple manual partition assignments for partition {index}"
            raise KafkaError(Error.INVALID_REPLICA_ASSIGNMENT, message)
        check_manual_replicas(image.brokers, replicas, replication_factor)
        replication_factor = len(replicas)
        rows[index] = replicas
    if sorted(rows) != list(range(len(rows))):
        message = "partitions should be a consecutive 0-based integer sequence"
        raise KafkaError(Error.INVALID_REPLICA_ASSIGNMENT, message)
    return [rows[index] for index in range(len(rows))]


def automatic_rows(image: MetadataImage, new: NewTopic, defaults: TopicDefaults, lot: Lot) -> list[tuple[int, ...]]:
    factor, count = new.replication_factor, new.partition_count
    if factor < USE_DEFAULT or factor == 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        raise KafkaError(Error.INVALID_REPLICATION_FACTOR, message)
    if count < USE_DEFAULT or count == 0:
        message = "Number of partitions was set to an invalid non-positive value."
        raise KafkaError(Error.INVALID_PARTITIONS, message)
    factor = defaults.replication_factor if factor == USE_DEFAULT else factor
    count = defaults.partition_count if count == USE_DEFAULT else count
    try:
        return place_replicas(list(image.brokers), count, factor, start=lot.start, shift=lot.shift, racks=image.racks())
    except KafkaError as refusal:
        message = f"Unable to replicate the partition {factor} time(s): {refusal.message}"
        raise KafkaError(refusal.error, message) from refusal


def new_partitions(image: MetadataImage, rows: Iterable[tuple[int, ...]]) -> tuple[PartitionImage, ...]:
    """Replicas that are alive are in sync at birth and the first of them leads; equal partitions share one value."""
    shared: dict[tuple[int, ...], PartitionImage] = {}
    partitions = []
    for replicas in rows:
        if replicas not in shared:
            alive = tuple(broker for broker in replicas if broker in image.brokers)
            shared[replicas] = PartitionImage(alive[0], 0, alive if alive != replicas else replicas, replicas)
        partitions.append(shared[replicas])
    return tuple(partitions)


def create_operations(image: MetadataImage, result: TopicResult) -> Iterator[StoreOperation]:
    topic = result.topic
    assert topic is not None
    configs = result.configs or {}
    yield from config_operations(tree.TOPIC_CONFIG, topic.name, configs, exists=topic.name in image.topic_configs)
    yield CreateNode(tree.topic_path(topic.name), tree.encode_topic(topic.topic_id, topic.partitions))
    yield CreateNode(tree.partitions_path(topic.name))
    yield from state_operations(image, topic, 0)


def state_operations(image: MetadataImage, topic: TopicImage, first: int) -> Iterator[StoreOperation]:
    """The nodes of partitions `first` and up."""
    encoded: dict[PartitionImage, bytes] = {}
    for index in range(first, len(topic.partitions)):
        partition = topic.partitions[index]
        data = encoded.get(partition)
        if data is None:
            data = encoded[partition] = encode_state(image, partition)
        yield CreateNode(tree.partition_path(topic.name, index))
        yield CreateNode(tree.partition_state_path(topic.name, index), data)


def encode_state(image: MetadataImage, partition: PartitionImage) -> bytes:
    return tree.encode_partition_state(
        tree.PartitionState(
            partition.leader,
            partition.leader_epoch,
            partition.isr,
            image.controller_epoch,
            partition.leader_recovery_state,
            partition.eligible,
            partition.last_known_eligible,
            known_life(image, partition),
        )
    )


def known_life(image: MetadataImage, partition: PartitionImage) -> int:
    """Which registrations the decision was made with; of no interest where a broker holds the only copy."""
    return image.newest_broker_epoch if len(partition.replicas) > 1 else -1


def config_operations(
    entity_type: str, entity: str, config: Mapping[str, str], *, exists: bool
) -> tuple[StoreOperation, ...]:
    path, data = tree.config_path(entity_type, entity), tree.encode_config(config)
    return (SetNode(path, data),) if exists else (CreateNode(path, data),)


def check_readable(image: MetadataImage, *paths: str) -> None:
    """What cannot be read is not overwritten. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
    for path in paths:
        if path in image.damaged:
            message = f"The node {path} in the metadata store cannot be read. Restore it first."
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, message)


# ---- deleting


def find_topic_to_delete(image: MetadataImage, name: str | None, topic_id: UUID | None) -> TopicResult:
    if topic_id is not None:
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            message = "This server does not host this topic ID."
            return TopicResult(None, Error.UNKNOWN_TOPIC_ID, message, topic_id=topic_id)
    else:
        topic = image.topics.get(name or "")
        if topic is None:
            message = "This server does not host this topic-partition."
            return TopicResult(name, Error.UNKNOWN_TOPIC_OR_PARTITION, message)
    return TopicResult(topic.name, topic=topic, topic_id=topic.topic_id)


def delete_operations(image: MetadataImage, topic: TopicImage) -> Iterator[StoreOperation]:
    """Children before parents: the store deletes no node that has children."""
    for index, partition in enumerate(topic.partitions):
        if partition.partition_epoch != MISSING_EPOCH:
            yield DeleteNode(tree.partition_state_path(topic.name, index))
            yield DeleteNode(tree.partition_path(topic.name, index))
    yield DeleteNode(tree.partitions_path(topic.name))
    yield DeleteNode(tree.topic_path(topic.name))
    if topic.name in image.topic_configs:
        yield DeleteNode(tree.config_path(tree.TOPIC_CONFIG, topic.name))


# ---- growing


def plan_partitions(image: MetadataImage, more: MorePartitions, lot: Lot) -> TopicResult:
    topic = image.topics.get(more.name)
    if topic is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
    check_readable(image, tree.topic_path(more.name))
    have = len(topic.partitions)
    if more.partition_count == have:
        raise KafkaError(Error.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
    if more.partition_count < have:
        message = (
            f"The topic {more.name} currently has {have} partition(s); {more.partition_count} would not be an increase."
        )
        raise KafkaError(Error.INVALID_PARTITIONS, message)
    if more.partition_count - have > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(Error.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    rows = added_rows(image, topic, more, lot)
    grown = topic._replace(partitions=topic.partitions + new_partitions(image, rows))
    return TopicResult(more.name, topic=grown)


def added_rows(image: MetadataImage, topic: TopicImage, more: MorePartitions, lot: Lot) -> list[tuple[int, ...]]:
    added = more.partition_count - len(topic.partitions)
    factor = len(topic.partitions[0].replicas) - len(topic.partitions[0].removing_replicas)
    if more.assignments is None:
        first = len(topic.partitions)
        brokers, racks = list(image.brokers), image.racks()
        return place_replicas(
            brokers, added, factor, start=lot.start, shift=lot.shift, first_partition=first, racks=racks
        )
    if len(more.assignments) != added:
        message = (
            f"Attempted to add {added} additional partition(s), but only {len(more.assignments)} assignment(s) "
            "were specified."
        )
        raise KafkaError(Error.INVALID_REPLICA_ASSIGNMENT, message)
    for replicas in more.assignments:
        check_manual_replicas(image.brokers, replicas, factor)
    return list(more.assignments)


def grow_operations(image: MetadataImage, grown: TopicImage) -> Iterator[StoreOperation]:
    first = len(image.topics[grown.name].partitions)
    yield SetNode(tree.topic_path(grown.name), tree.encode_topic(grown.topic_id, grown.partitions))
    yield from state_operations(image, grown, first)
