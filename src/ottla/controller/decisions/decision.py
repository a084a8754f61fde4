"""The result of every decision of the controller, and the store operations that decisions share.

Rule 1: no await, no clock, no socket, no random. Ids and random numbers are arguments.
Rule 2: a decision changes nothing. It returns the operations for the store, the image after their commit, and the
        reply. The caller first commits, then publishes the image, then replies.
Rule 3: if an item of a request is rejected, it has no operations; the other items are processed.

The data of a partition are in two nodes: the topic node has the replicas, the state node has the leader and the ISR.
The state node is written in either case, because its version is the partition epoch: after a change of the replicas, an
ISR proposal with the old epoch must be rejected.

ZooKeeper limits the size of a transaction to about a megabyte, so large changes are split; their order is kept. A
controller may fail between two transactions, so every prefix of the operations must be a valid state: partitions
without a state get it from the next controller, and a topic whose deletion has started has a deletion mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.controller import tree
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.controller.stores.store import CheckNode, CreateNode, DeleteNode, SetNode, StoreOperation

R = TypeVar("R")

TRANSACTION_BYTES_MAX: Final = 800_000
OPERATION_OVERHEAD_BYTES: Final = 64  # the overhead of an operation


class Decision(NamedTuple, Generic[R]):
    """Operations for the store, the image after their commit, and the reply."""

    operations: tuple[StoreOperation, ...]
    image: MetadataImage
    reply: R


def encode_state(image: MetadataImage, partition: PartitionImage) -> bytes:
    return tree.encode_partition_state(
        tree.PartitionState(
            partition.leader,
            partition.leader_epoch,
            partition.isr,
            image.controller_epoch,
            partition.leader_recovery_state,
            partition.elr,
            partition.last_known_elr,
            newest_broker_epoch_for(image, partition),
        )
    )


def newest_broker_epoch_for(image: MetadataImage, partition: PartitionImage) -> int:
    """Return the newest broker epoch at the time of the decision; not needed for partitions with a single replica."""
    return image.newest_broker_epoch if len(partition.replicas) > 1 else -1


def config_operations(
    entity_type: str, entity: str, config: Mapping[str, str], *, exists: bool
) -> tuple[StoreOperation, ...]:
    path, data = tree.config_path(entity_type, entity), tree.encode_config(config)
    return (SetNode(path, data),) if exists else (CreateNode(path, data),)


def check_readable(image: MetadataImage, *paths: str) -> None:
    """Check that nodes are not damaged, because these are not overwritten. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
    for path in paths:
        if path in image.damaged:
            message = f"The node {path} in the metadata store cannot be read. Restore it first."
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, message)


def partition_state_operations(
    image: MetadataImage, topic: TopicImage, index: int, new: PartitionImage
) -> Iterator[StoreOperation]:
    old = topic.partitions[index]
    if old.is_damaged:
        return  # a damaged node is not written; the change is in the image only
    path = tree.partition_state_path(topic.name, index)
    if old.partition_epoch < 0:  # the creation of the topic was interrupted before this state was created
        yield CreateNode(tree.partition_path(topic.name, index))
        yield CreateNode(path, encode_state(image, new))
    else:
        yield SetNode(path, encode_state(image, new), old.partition_epoch)


PartitionChanges = Mapping[TopicPartition, PartitionImage]


COMPARED_FIELDS: Final = (
    *("acls", "brokers", "broker_configs", "group_configs", "client_metrics_configs", "user_configs", "quota_configs"),
    *("delegation_tokens", "features", "cluster_id", "damaged"),
)


def has_changed(old: MetadataImage, new: MetadataImage) -> bool:
    """Return whether the images differ, with or without a write of this controller."""
    return bool(new.changed_topics) or any(getattr(new, part) is not getattr(old, part) for part in COMPARED_FIELDS)


def partition_operations(
    image: MetadataImage, changes: PartitionChanges
) -> tuple[tuple[StoreOperation, ...], MetadataImage]:
    """Return the operations for changed partitions and the image after them; this raises the partition epochs."""
    operations: list[StoreOperation] = []
    topics = []
    for name, partitions in group_by_topic(changes).items():
        old = image.topics[name]
        rows = list(old.partitions)
        for index, partition in partitions.items():
            rows[index] = partition._replace(partition_epoch=old.partitions[index].partition_epoch + 1)
        new = old._replace(partitions=tuple(rows))
        topics.append(new)
        if any(replicas_differ(old.partitions[index], new.partitions[index]) for index in partitions):
            operations.append(SetNode(tree.topic_path(name), tree.encode_topic(new.topic_id, new.partitions)))
        for index in partitions:
            operations.extend(partition_state_operations(image, old, index, new.partitions[index]))
    return tuple(operations), image.with_topics(topics)


def group_by_topic(changes: PartitionChanges) -> dict[str, dict[int, PartitionImage]]:
    grouped: dict[str, dict[int, PartitionImage]] = {}
    for (topic, index), partition in changes.items():
        grouped.setdefault(topic, {})[index] = partition
    return grouped


def replicas_differ(old: PartitionImage, new: PartitionImage) -> bool:
    before = (old.replicas, old.adding_replicas, old.removing_replicas)
    return before != (new.replicas, new.adding_replicas, new.removing_replicas)


# ---- transactions


def split_into_transactions(
    operations: Sequence[StoreOperation], bytes_max: int = TRANSACTION_BYTES_MAX
) -> Iterator[Sequence[StoreOperation]]:
    """Split operations into transactions of at most `bytes_max`."""
    if sum(map(operation_bytes, operations)) > bytes_max:
        operations = with_deletion_marks(operations)
    start = 0
    size = 0
    for index, operation in enumerate(operations):
        needed = operation_bytes(operation)
        if size + needed > bytes_max and index > start:
            yield operations[start:index]
            start, size = index, 0
        size += needed
    if start < len(operations):
        yield operations[start:]


def with_deletion_marks(operations: Sequence[StoreOperation]) -> Sequence[StoreOperation]:
    """Mark topics before a deletion in several transactions, so the next controller can complete it."""
    prefix = f"{tree.BROKER_TOPICS}/"
    topics = [
        operation.path.removeprefix(prefix)
        for operation in operations
        if isinstance(operation, DeleteNode)
        and operation.path.startswith(prefix)
        and "/" not in operation.path[len(prefix) :]
    ]
    there = {operation.path for operation in operations}
    paths = [path for topic in topics if (path := tree.delete_topic_path(topic)) not in there]
    return (*map(CreateNode, paths), *operations, *map(DeleteNode, paths))


def with_fence(fence: CheckNode, piece: Sequence[StoreOperation]) -> tuple[StoreOperation, ...]:
    """Return a transaction that fails if another controller was elected since."""
    return (fence, *piece)


def operation_bytes(operation: StoreOperation) -> int:
    """Return an upper bound of the size of an operation in a request, for a chroot of usual length."""
    data = len(operation.data) if isinstance(operation, CreateNode | SetNode) else 0
    return OPERATION_OVERHEAD_BYTES + 2 * len(operation.path) + data
