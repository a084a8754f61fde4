"""From the nodes of the store to the image: run once at start, and again when the store had trouble.

Pure. Equal values are shared (most partitions of a cluster look alike), so that a partition costs a few bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from ottla.controller import tree
from ottla.controller.image import NO_CONTROLLER, NO_LEADER, BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.controller.stores.store import Node

MISSING_STATE = tree.PartitionState(leader=NO_LEADER, leader_epoch=-1, isr=(), controller_epoch=0)
MISSING_EPOCH = -1  # the partition epoch of a partition that has no state node yet


def load_image(nodes: Mapping[str, Node]) -> MetadataImage:
    """The image that a whole tree of nodes stands for; DamagedNodeError names one that cannot be read."""
    feature = nodes.get(tree.FEATURE)
    controller = nodes.get(tree.CONTROLLER)
    epoch = nodes.get(tree.CONTROLLER_EPOCH)
    cluster = nodes.get(tree.CLUSTER_ID)
    return MetadataImage(
        cluster_id=tree.decode_cluster_id(cluster.data) if cluster else "",
        controller_id=tree.decode_controller(controller.data) if controller else NO_CONTROLLER,
        controller_epoch=tree.decode_number(tree.CONTROLLER_EPOCH, epoch.data) if epoch else 0,
        brokers=load_brokers(nodes),
        topics=load_topics(nodes),
        topic_configs=load_configs(nodes, tree.TOPIC_CONFIG),
        broker_configs=load_configs(nodes, tree.BROKER_CONFIG),
        group_configs=load_configs(nodes, tree.GROUP_CONFIG),
        client_metrics_configs=load_configs(nodes, tree.CLIENT_METRICS_CONFIG),
        features=tree.decode_feature(feature.data) if feature else {},
        features_epoch=feature.version if feature else 0,
    )


def load_brokers(nodes: Mapping[str, Node]) -> dict[int, BrokerImage]:
    prefix = f"{tree.BROKER_IDS}/"
    with tree.reading(tree.BROKER_IDS):
        ids = [int(path.removeprefix(prefix)) for path in nodes if path.startswith(prefix)]
    found = [(broker_id, nodes[tree.broker_path(broker_id)]) for broker_id in sorted(ids)]
    return {broker_id: tree.decode_broker(broker_id, node.data, node.created_id) for broker_id, node in found}


def load_configs(nodes: Mapping[str, Node], entity_type: str) -> dict[str, dict[str, str]]:
    prefix = f"{tree.CONFIG}/{entity_type}/"
    configs = {}
    for path, node in nodes.items():
        if path.startswith(prefix):
            configs[tree.config_entity(entity_type, path.removeprefix(prefix))] = tree.decode_config(path, node.data)
    return configs


def load_topics(nodes: Mapping[str, Node]) -> dict[str, TopicImage]:
    prefix = f"{tree.BROKER_TOPICS}/"
    shared = SharedPartitions()
    topics = {}
    for path, node in nodes.items():
        if not path.startswith(prefix) or "/" in path[len(prefix) :]:
            continue
        name = path.removeprefix(prefix)
        topic = tree.decode_topic(name, node.data)
        topics[name] = TopicImage(name, topic.topic_id or UUID(int=0), shared.partitions(name, topic, nodes))
    return topics


class SharedPartitions:
    """Makes partitions; the same bytes and the same replicas give the same object."""

    def __init__(self) -> None:
        self._states: dict[bytes, tree.PartitionState] = {}
        self._partitions: dict[PartitionImage, PartitionImage] = {}

    def partitions(self, name: str, topic: tree.TopicNode, nodes: Mapping[str, Node]) -> tuple[PartitionImage, ...]:
        if sorted(topic.replicas) != list(range(len(topic.replicas))):
            raise tree.DamagedNodeError(
                f"{tree.topic_path(name)} is damaged: its partitions are not numbered from 0 on"
            )
        return tuple(self._partition(name, index, topic, nodes) for index in range(len(topic.replicas)))

    def _partition(self, name: str, index: int, topic: tree.TopicNode, nodes: Mapping[str, Node]) -> PartitionImage:
        path = tree.partition_state_path(name, index)
        node = nodes.get(path)
        state = self._state(path, node.data) if node else MISSING_STATE
        partition = PartitionImage(
            state.leader,
            state.leader_epoch,
            state.isr,
            topic.replicas[index],
            node.version if node else MISSING_EPOCH,
            topic.adding_replicas.get(index, ()),
            topic.removing_replicas.get(index, ()),
            state.leader_recovery_state,
            state.eligible,
            state.last_known_eligible,
        )
        return self._partitions.setdefault(partition, partition)

    def _state(self, path: str, data: bytes) -> tree.PartitionState:
        state = self._states.get(data)
        if state is None:
            state = self._states[data] = tree.decode_partition_state(path, data)
        return state
