"""CreateTopics, DeleteTopics and CreatePartitions. Pure, by the rules of decision.py.

Error codes and messages are those of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.base.names import topic_name_collision_key, topic_name_problem
from ottla.base.placement.new_partitions import check_manual_replicas, place_replicas
from ottla.controller import tree
from ottla.controller.decisions.decision import Decision, check_readable, config_operations, encode_state
from ottla.controller.image import MISSING_EPOCH, MetadataImage, PartitionImage, TopicImage
from ottla.controller.stores.store import CreateNode, DeleteNode, SetNode, StoreOperation

USE_DEFAULT: Final = -1
PARTITIONS_PER_REQUEST_MAX: Final = 10_000
METADATA_LOG_TOPIC: Final = "__cluster_metadata"  # Kafka's metadata log: a topic of this name cannot be created

ConfigCheck = Callable[[Mapping[str, str]], None]  # raises KafkaError(INVALID_CONFIG) with Kafka's message


class NewTopic(NamedTuple):
    """A topic to create; -1 is the broker's default."""

    name: str
    partition_count: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()  # manual: (partition, replicas)
    configs: tuple[tuple[str, str | None], ...] = ()


class NewPartitions(NamedTuple):
    """The new total number of partitions of a topic; `assignments` has the replicas of the new ones."""

    name: str
    partition_count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


class TopicDefaults(NamedTuple):
    """The broker's defaults for new topics."""

    partition_count: int = 1
    replication_factor: int = 1


class NewTopicSeed(NamedTuple):
    """The random values of one new topic: its id, and the start and shift of its replica placement."""

    topic_id: UUID
    start_index: int
    replica_shift: int


class TopicResult(NamedTuple):
    """The result for one topic of a request; without an error it has the topic after the change."""

    name: str | None
    error: Error = Error.NONE
    message: str | None = None
    topic: TopicImage | None = None
    configs: Mapping[str, str] | None = None
    topic_id: UUID | None = None


def decide_create_topics(
    image: MetadataImage,
    topics: Sequence[NewTopic],
    defaults: TopicDefaults,
    seeds: Sequence[NewTopicSeed],
    check_configs: ConfigCheck,
) -> Decision[list[TopicResult]]:
    """Create topics; names must be unique, and there is one seed for each."""
    if count_requested_partitions(topics, defaults) > PARTITIONS_PER_REQUEST_MAX:
        message = "Excessively large number of partitions per request."
        refused = [TopicResult(topic.name, Error.POLICY_VIOLATION, message) for topic in topics]
        return Decision((), image, refused)
    results = []
    for new, seed in zip(topics, seeds, strict=True):
        try:
            results.append(plan_topic(image, new, defaults, seed, check_configs))
        except KafkaError as refusal:
            results.append(TopicResult(new.name, refusal.error, refusal.message))
    made = [result for result in results if result.topic is not None]
    operations = tuple(operation for result in made for operation in create_operations(image, result))
    created = [result.topic for result in made if result.topic is not None]
    after = image.with_topics(created, configs={result.name or "": result.configs or {} for result in made})
    return Decision(operations, after, results)


def decide_delete_topics(
    image: MetadataImage, wanted: Sequence[tuple[str | None, UUID | None]], *, is_enabled: bool = True
) -> Decision[list[TopicResult]]:
    """Delete topics by name or by id; each occurs once."""
    if not is_enabled:
        refused = [TopicResult(name, Error.TOPIC_DELETION_DISABLED, topic_id=topic_id) for name, topic_id in wanted]
        return Decision((), image, refused)
    results = [find_topic_to_delete(image, name, topic_id) for name, topic_id in wanted]
    topics = {result.topic.name: result.topic for result in results if result.topic is not None}
    operations = tuple(operation for topic in topics.values() for operation in delete_operations(image, topic))
    return Decision(operations, image.with_topics(removed=topics), results)


def decide_create_partitions(
    image: MetadataImage, wanted: Sequence[NewPartitions], seeds: Sequence[NewTopicSeed]
) -> Decision[list[TopicResult]]:
    """Add partitions to topics; names must be unique, and there is one seed for each."""
    results = []
    for more, seed in zip(wanted, seeds, strict=True):
        try:
            results.append(plan_partitions(image, more, seed))
        except KafkaError as refusal:
            results.append(TopicResult(more.name, refusal.error, refusal.message))
    grown = [result.topic for result in results if result.topic is not None]
    operations = tuple(operation for topic in grown for operation in create_partitions_operations(image, topic))
    return Decision(operations, image.with_topics(grown), results)


# ---- creating


def count_requested_partitions(wanted: Iterable[NewTopic], defaults: TopicDefaults) -> int:
    total = 0
    for topic in wanted:
        if topic.assignments:
            total += len(topic.assignments)
        else:
            total += defaults.partition_count if topic.partition_count == USE_DEFAULT else max(0, topic.partition_count)
    return total


def plan_topic(
    image: MetadataImage, new: NewTopic, defaults: TopicDefaults, seed: NewTopicSeed, check_configs: ConfigCheck
) -> TopicResult:
    """Plan a new topic. Raises KafkaError.

    The checks run in Kafka's order, because the first failure determines the error.
    """
    check_new_name(image, new.name)
    configs = requested_configs(new)
    check_configs(configs)
    rows = manual_assignments(image, new) if new.assignments else automatic_assignments(image, new, defaults, seed)
    topic = TopicImage(new.name, seed.topic_id, make_partitions(image, rows))
    return TopicResult(new.name, topic=topic, configs=configs, topic_id=seed.topic_id)


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


def requested_configs(new: NewTopic) -> dict[str, str]:
    """Return the requested settings. Of a repeated setting the last value is used, as in Kafka."""
    nulls = [key for key, value in new.configs if value is None]
    if nulls:
        raise KafkaError(Error.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    return {key: value for key, value in new.configs if value is not None}


def manual_assignments(image: MetadataImage, new: NewTopic) -> list[tuple[int, ...]]:
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


def automatic_assignments(
    image: MetadataImage, new: NewTopic, defaults: TopicDefaults, seed: NewTopicSeed
) -> list[tuple[int, ...]]:
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
        return place_replicas(
            list(image.brokers), count, factor, start=seed.start_index, shift=seed.replica_shift, racks=image.racks()
        )
    except KafkaError as refusal:
        message = f"Unable to replicate the partition {factor} time(s): {refusal.message}"
        raise KafkaError(refusal.error, message) from refusal


def make_partitions(image: MetadataImage, rows: Iterable[tuple[int, ...]]) -> tuple[PartitionImage, ...]:
    """Return new partitions:

    live replicas are in sync and the first of them leads; equal partitions share one value.
    """
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
    yield from partition_operations(image, topic, 0)


def partition_operations(image: MetadataImage, topic: TopicImage, first: int) -> Iterator[StoreOperation]:
    """Yield the nodes of partitions from index `first`."""
    encoded: dict[PartitionImage, bytes] = {}
    for index in range(first, len(topic.partitions)):
        partition = topic.partitions[index]
        data = encoded.get(partition)
        if data is None:
            data = encoded[partition] = encode_state(image, partition)
        yield CreateNode(tree.partition_path(topic.name, index))
        yield CreateNode(tree.partition_state_path(topic.name, index), data)


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
    """Yield deletions of children before parents, because the store does not delete nodes with children."""
    for index, partition in enumerate(topic.partitions):
        if partition.partition_epoch != MISSING_EPOCH:
            yield DeleteNode(tree.partition_state_path(topic.name, index))
            yield DeleteNode(tree.partition_path(topic.name, index))
    yield DeleteNode(tree.partitions_path(topic.name))
    yield DeleteNode(tree.topic_path(topic.name))
    if topic.name in image.topic_configs:
        yield DeleteNode(tree.config_path(tree.TOPIC_CONFIG, topic.name))


# ---- growing


def plan_partitions(image: MetadataImage, more: NewPartitions, seed: NewTopicSeed) -> TopicResult:
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
    rows = new_assignments(image, topic, more, seed)
    grown = topic._replace(partitions=topic.partitions + make_partitions(image, rows))
    return TopicResult(more.name, topic=grown)


def new_assignments(
    image: MetadataImage, topic: TopicImage, more: NewPartitions, seed: NewTopicSeed
) -> list[tuple[int, ...]]:
    added = more.partition_count - len(topic.partitions)
    factor = len(topic.partitions[0].replicas) - len(topic.partitions[0].removing_replicas)
    if more.assignments is None:
        first = len(topic.partitions)
        brokers, racks = list(image.brokers), image.racks()
        return place_replicas(
            brokers, added, factor, start=seed.start_index, shift=seed.replica_shift, first_partition=first, racks=racks
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


def create_partitions_operations(image: MetadataImage, grown: TopicImage) -> Iterator[StoreOperation]:
    first = len(image.topics[grown.name].partitions)
    yield SetNode(tree.topic_path(grown.name), tree.encode_topic(grown.topic_id, grown.partitions))
    yield from partition_operations(image, grown, first)
