"""The start of a standalone broker, and the leaders of its partitions. Pure, by the rules of decision.py.

Registration, controller election and leader elections are one transaction: either all of them happen or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.base.names import TopicPartition
from ottla.controller import acl_nodes, token_nodes, tree
from ottla.controller.decisions import ottla_version
from ottla.controller.decisions.decision import Decision, partition_state_operations
from ottla.controller.decisions.external_changes import stale_mark_deletions
from ottla.controller.decisions.leader_eligibility import decide_cluster_min_isr
from ottla.controller.image import NO_LEADER, BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.controller.stores.store import CreateNode, Node, SetNode, StoreOperation, StoreUnusableError


def check_store(image: MetadataImage, cluster_id: str | None) -> None:
    """Check the cluster and the level of the store. Raises StoreUnusableError."""
    problem = ottla_version.unsupported_level_problem(ottla_version.cluster_level(image))
    if cluster_id and image.cluster_id and image.cluster_id != cluster_id:
        problem = (
            f"the metadata store belongs to cluster {image.cluster_id}, but the log directories to cluster "
            f"{cluster_id}. Give this broker the folders that belong together."
        )
    if problem is not None:
        raise StoreUnusableError(problem)


def decide_registration(
    image: MetadataImage,
    nodes: Mapping[str, Node],
    broker: BrokerImage,
    *,
    new_cluster_id: str,
    now_ms: int,
    minimum: int = 1,
) -> Decision[int]:
    """Register, become the controller and elect leaders; the reply is the number of partitions with new leader epochs.

    The epoch inside `broker` is not known yet: it is the id of this transaction. `minimum` is min.insync.replicas of
    the broker's file.
    """
    operations: list[StoreOperation] = [
        CreateNode(path)
        for path in (*tree.SKELETON, *acl_nodes.PERSISTENT_PATHS, *token_nodes.PERSISTENT_PATHS)
        if path not in nodes
    ]
    is_new = tree.CLUSTER_ID not in nodes
    if is_new:
        image = image.with_cluster_id(new_cluster_id)
        operations.append(CreateNode(tree.CLUSTER_ID, tree.encode_cluster_id(new_cluster_id)))
    if tree.FEATURE not in nodes:
        features = ottla_version.NEW_CLUSTER_FEATURES if is_new else {}
        image = image.with_features(features, 0)
        operations.append(CreateNode(tree.FEATURE, tree.encode_feature(features)))
    epoch = image.controller_epoch + 1
    operations.append(CreateNode(tree.broker_path(broker.id), tree.encode_broker(broker, now_ms), is_ephemeral=True))
    operations.append(CreateNode(tree.CONTROLLER, tree.encode_controller(broker.id, now_ms), is_ephemeral=True))
    operations.append(controller_epoch_operation(nodes.get(tree.CONTROLLER_EPOCH), epoch))
    operations.extend(stale_mark_deletions(nodes))
    alive = image.with_brokers({**image.brokers, broker.id: broker}).with_controller(broker.id, epoch)
    settled = decide_cluster_min_isr(alive, minimum)
    leaders = decide_local_leaders(settled.image, broker.id)
    return Decision((*operations, *settled.operations, *leaders.operations), leaders.image, leaders.reply)


def controller_epoch_operation(node: Node | None, epoch: int) -> StoreOperation:
    if node is None:
        return CreateNode(tree.CONTROLLER_EPOCH, tree.encode_number(epoch))
    return SetNode(tree.CONTROLLER_EPOCH, tree.encode_number(epoch), node.version)


def decide_local_leaders(image: MetadataImage, broker: int) -> Decision[int]:
    """Make a broker that starts the leader of the partitions that only it can lead; the reply is their number.

    Partitions that it led before also get a new leader epoch: after a crash the log may have lost its tail, and without
    a new epoch clients could not detect that the same offsets have other records (KIP-320).
    """
    operations: list[StoreOperation] = []
    topics = []
    count = 0
    elections: dict[PartitionImage, PartitionImage] = {}  # equal partitions keep sharing one value
    for topic in image.topics.values():
        for partition in topic.partitions:
            if partition not in elections:
                is_needed = needs_leader(image, partition, broker)
                elections[partition] = elect(partition, broker) if is_needed else partition
        partitions = tuple(elections[partition] for partition in topic.partitions)
        changed = [i for i, (old, new) in enumerate(zip(topic.partitions, partitions, strict=True)) if old != new]
        if not changed:
            continue
        count += len(changed)
        topics.append(topic._replace(partitions=partitions))
        for index in changed:
            operations.extend(partition_state_operations(image, topic, index, partitions[index]))
    return Decision(tuple(operations), image.with_topics(topics), count)


def needs_leader(image: MetadataImage, partition: PartitionImage, broker: int) -> bool:
    if broker not in partition.isr and not (partition.partition_epoch < 0 and broker in partition.replicas):
        return False
    return partition.leader in (broker, NO_LEADER) or partition.leader not in image.brokers


def elect(partition: PartitionImage, broker: int) -> PartitionImage:
    return partition._replace(
        leader=broker,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
        isr=partition.isr or partition.replicas,
    )


def decide_offline(image: MetadataImage, broker: int, names: Iterable[TopicPartition]) -> Decision[int]:
    """Remove the leader of partitions in a failed log directory; the reply is the number of changed partitions.

    The broker stays in the ISR, because its replicas are complete: it leads again when the directory is repaired.
    """
    operations: list[StoreOperation] = []
    changed: dict[str, TopicImage] = {}
    count = 0
    for name in names:
        topic = changed.get(name.topic) or image.topics.get(name.topic)
        old = image.partition(*name)
        if topic is None or old is None or old.leader != broker:
            continue
        new = old._replace(leader=NO_LEADER, leader_epoch=old.leader_epoch + 1, partition_epoch=old.partition_epoch + 1)
        operations.extend(partition_state_operations(image, image.topics[name.topic], name.partition, new))
        partitions = (*topic.partitions[: name.partition], new, *topic.partitions[name.partition + 1 :])
        changed[name.topic] = topic._replace(partitions=partitions)
        count += 1
    return Decision(tuple(operations), image.with_topics(changed.values()), count)
