"""Loads the image from the nodes of the store, at the start and again after an error of the store. Pure.

Equal values are shared (most partitions of a cluster are alike), so a partition needs only a few bytes.

A node that cannot be read affects no other data (docs/decisions/damaged-nodes.md). A standalone broker does not start
with one, because only a failing disk can have written it. The controller of a cluster continues without it:

1. The image keeps the last known contents of a damaged node, and `damaged` contains its path: it is not written.
2. Unknown settings delete no data. A topic with an unknown node is not in the image, but its logs are kept.
3. When the state of a partition is readable again, the partition gets a new leader epoch, unless its leader has not
   changed: elections in between are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, TypeVar
from uuid import UUID

from ottla.controller import tree
from ottla.controller.acl_nodes import load_acl_versions, load_acls
from ottla.controller.decisions.broker_epochs import epoch_bound, find_restarted, without_unclean
from ottla.controller.image import (
    DAMAGED_EPOCH,
    MISSING_EPOCH,
    NO_CONTROLLER,
    NO_LEADER,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from ottla.controller.quota_nodes import load_quota_configs
from ottla.controller.stores.store import Node
from ottla.controller.token_nodes import load_tokens

NO_STATE: Final = tree.PartitionState(leader=NO_LEADER, leader_epoch=-1, isr=(), controller_epoch=0)
RETAIN_ALL_CONFIGS: Final[Mapping[str, Mapping[str, str]]] = {
    tree.TOPIC_CONFIG: {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
    tree.BROKER_CONFIG: {"log.retention.ms": "-1", "log.retention.bytes": "-1"},
}

T = TypeVar("T")


class NodeReader:
    """Reads nodes; without a last known image the first damaged node raises DamagedNodeError."""

    def __init__(self, known: MetadataImage | None = None) -> None:
        self._is_strict = known is None
        self.last_known = known if known is not None else MetadataImage()
        self.damaged: dict[str, str] = {}  # path -> problem

    def read(self, path: str, decode: Callable[[], T]) -> T | None:
        try:
            return decode()
        except tree.DamagedNodeError as damage:
            if self._is_strict:
                raise
            self.damaged[path] = str(damage)
            return None

    def record_damage(self, image: MetadataImage, read: Collection[str]) -> MetadataImage:
        """The image after all nodes at the paths `read` were read again: some may be damaged, or no longer."""
        damaged = image.damaged.difference(read) | self.damaged.keys()
        return image if damaged == image.damaged else image.with_damaged(damaged)


def load_image(nodes: Mapping[str, Node]) -> MetadataImage:
    """Return the image of a tree of nodes; raises DamagedNodeError for a node that cannot be read."""
    return _load(nodes, NodeReader())


def load_image_leniently(nodes: Mapping[str, Node], known: MetadataImage) -> MetadataImage:
    """Return the image of a tree of nodes, with the last known contents of nodes that cannot be read."""
    return _load(nodes, NodeReader(known))


def _load(nodes: Mapping[str, Node], reader: NodeReader) -> MetadataImage:
    known = reader.last_known

    def read(path: str, decode: Callable[[bytes], T], missing: T, last_known: T) -> T:
        node = nodes.get(path)
        if node is None:
            return missing
        value = reader.read(path, lambda: decode(node.data))
        return last_known if value is None else value

    feature = nodes.get(tree.FEATURE)
    return MetadataImage(
        cluster_id=read(tree.CLUSTER_ID, tree.decode_cluster_id, "", known.cluster_id),
        controller_id=read(tree.CONTROLLER, tree.decode_controller, NO_CONTROLLER, NO_CONTROLLER),
        controller_epoch=read(tree.CONTROLLER_EPOCH, tree.decode_controller_epoch, 0, known.controller_epoch),
        brokers=load_brokers(nodes, reader),
        topics=load_topics(nodes, reader),
        topic_configs=load_configs(nodes, tree.TOPIC_CONFIG, reader),
        broker_configs=load_configs(nodes, tree.BROKER_CONFIG, reader),
        group_configs=load_configs(nodes, tree.GROUP_CONFIG, reader),
        client_metrics_configs=load_configs(nodes, tree.CLIENT_METRICS_CONFIG, reader),
        acls=load_acls(nodes, reader.read),
        acl_versions=load_acl_versions(nodes),
        user_configs=load_configs(nodes, tree.USER_CONFIG, reader),
        quota_configs=load_quota_configs(nodes, reader.read, known.quota_configs),
        delegation_tokens=load_tokens(nodes, reader.read),
        features=read(tree.FEATURE, tree.decode_feature, {}, dict(known.features)),
        features_epoch=feature.version if feature else 0,
        damaged=reader.damaged.keys() - {tree.CONTROLLER, tree.CONTROLLER_EPOCH},  # an election repairs those
    )


def load_brokers(nodes: Mapping[str, Node], reader: NodeReader | None = None) -> dict[int, BrokerImage]:
    """Return the registered brokers; an unreadable registration is used if its epoch is the last known one."""
    reader = reader or NodeReader()
    prefix = f"{tree.BROKER_IDS}/"
    found: dict[int, BrokerImage] = {}
    for path, node in nodes.items():
        if not path.startswith(prefix):
            continue
        broker = reader.read(path, lambda path=path, node=node: _decode_broker(path, node))  # type: ignore[misc]
        if broker is None:
            name = path.removeprefix(prefix)
            broker = reader.last_known.brokers.get(int(name)) if name.isascii() and name.isdigit() else None
        if broker is not None and broker.epoch == node.created_id:
            found[broker.id] = broker
    return dict(sorted(found.items()))


def _decode_broker(path: str, node: Node) -> BrokerImage:
    with tree.reading(path):
        broker_id = tree.int32(path.removeprefix(f"{tree.BROKER_IDS}/"))
    return tree.decode_broker(broker_id, node.data, node.created_id)


def load_configs(
    nodes: Mapping[str, Node], entity_type: str, reader: NodeReader | None = None
) -> dict[str, Mapping[str, str]]:
    reader = reader or NodeReader()
    prefix = f"{tree.CONFIG}/{entity_type}/"
    configs: dict[str, Mapping[str, str]] = {}
    for path, node in nodes.items():
        if path.startswith(prefix) and "/" not in path[len(prefix) :]:  # clients of users are below these
            entity = tree.config_entity(entity_type, path.removeprefix(prefix))
            configs[entity] = load_config(path, node, entity_type, entity, reader)
    return configs


def load_config(path: str, node: Node, entity_type: str, entity: str, reader: NodeReader) -> Mapping[str, str]:
    config = reader.read(path, lambda: tree.decode_config(path, node.data))
    if config is not None:
        return config
    known = reader.last_known
    last_known = {
        tree.TOPIC_CONFIG: known.topic_configs,
        tree.BROKER_CONFIG: known.broker_configs,
        tree.GROUP_CONFIG: known.group_configs,
        tree.CLIENT_METRICS_CONFIG: known.client_metrics_configs,
        tree.USER_CONFIG: known.user_configs,
    }[entity_type]
    return last_known.get(entity, RETAIN_ALL_CONFIGS.get(entity_type, {}))


def load_topics(nodes: Mapping[str, Node], reader: NodeReader | None = None) -> dict[str, TopicImage]:
    shared = PartitionLoader(reader or NodeReader())
    topics = {}
    for name, node in topic_nodes(nodes):
        topic = shared.topic(name, node)
        if topic is not None:
            topics[name] = TopicImage(name, topic.topic_id or UUID(int=0), shared.partitions(name, topic, nodes))
    return topics


def topic_nodes(nodes: Mapping[str, Node]) -> Iterator[tuple[str, Node]]:
    """Yield the topic nodes, by topic name."""
    prefix = f"{tree.BROKER_TOPICS}/"
    for path, node in nodes.items():
        if path.startswith(prefix) and "/" not in path[len(prefix) :]:
            yield path.removeprefix(prefix), node


class PartitionLoader:
    """Loads partitions; equal states with equal replicas share one object."""

    def __init__(self, reader: NodeReader) -> None:
        self._reader = reader
        self._states: dict[bytes, tree.PartitionState] = {}
        self._partitions: dict[PartitionImage, PartitionImage] = {}

    def topic(self, name: str, node: Node) -> tree.TopicNode | None:
        found = self._reader.read(tree.topic_path(name), lambda: _decode_topic(name, node.data))
        if found is not None:
            return found
        known = self._reader.last_known.topics.get(name)
        return to_topic_node(known) if known is not None else None

    def partitions(self, name: str, topic: tree.TopicNode, nodes: Mapping[str, Node]) -> tuple[PartitionImage, ...]:
        known = self._reader.last_known.topics.get(name)
        before = known.partitions if known is not None and known.topic_id == topic.topic_id else ()
        partitions = []
        for index in range(len(topic.replicas)):
            last_known = before[index] if index < len(before) else None
            partition = self._partition(name, index, topic, nodes, last_known)
            partitions.append(self._partitions.setdefault(partition, partition))
        return tuple(partitions)

    def _partition(
        self, name: str, index: int, topic: tree.TopicNode, nodes: Mapping[str, Node], known: PartitionImage | None
    ) -> PartitionImage:
        path = tree.partition_state_path(name, index)
        node = nodes.get(path)
        replicas = topic.replicas[index]
        adding, removing = topic.adding_replicas.get(index, ()), topic.removing_replicas.get(index, ())
        state = self._reader.read(path, lambda: self._state(path, node.data)) if node is not None else NO_STATE
        if state is None:
            old = known or PartitionImage(NO_LEADER, -1, (), replicas)
            return old._replace(
                replicas=replicas, adding_replicas=adding, removing_replicas=removing, partition_epoch=DAMAGED_EPOCH
            )
        partition = PartitionImage(
            state.leader,
            state.leader_epoch,
            state.isr,
            replicas,
            node.version if node else MISSING_EPOCH,
            adding,
            removing,
            state.leader_recovery_state,
            state.eligible,
            state.last_known_eligible,
        )
        if known is not None and known.is_damaged and node is not None:
            return restore_partition(known, partition, epoch_bound(path, node), self._reader.last_known.brokers)
        return partition

    def _state(self, path: str, data: bytes) -> tree.PartitionState:
        state = self._states.get(data)
        if state is None:
            state = self._states[data] = tree.decode_partition_state(path, data)
        return state


def restore_partition(
    known: PartitionImage, restored: PartitionImage, epoch_bound: int, brokers: Mapping[int, BrokerImage]
) -> PartitionImage:
    """Restore a partition (rule 3).

    `bound` is the epoch bound of the state: brokers that registered later may lack records.
    """
    lives = dict.fromkeys({restored.leader, *restored.isr, *restored.elr}, epoch_bound) if epoch_bound else {}
    back = find_restarted(MetadataImage(), brokers, lives)
    is_same = (known.leader, known.leader_epoch) == (restored.leader, restored.leader_epoch)
    if is_same and not back.unclean & lives.keys() and restored.leader not in back.restarted:
        return restored
    whole = without_unclean(restored, back.unclean)
    return whole._replace(leader=NO_LEADER, leader_epoch=max(known.leader_epoch, restored.leader_epoch))


def _decode_topic(name: str, data: bytes) -> tree.TopicNode:
    topic = tree.decode_topic(name, data)
    with tree.reading(tree.topic_path(name)):
        if not topic.replicas or sorted(topic.replicas) != list(range(len(topic.replicas))):
            raise ValueError("its partitions are not numbered from 0")
        if not all(topic.replicas.values()):
            raise ValueError("a partition has no replicas")
    return topic


def to_topic_node(topic: TopicImage) -> tree.TopicNode:
    """Return the contents of the node of a topic."""
    partitions = dict(enumerate(topic.partitions))
    return tree.TopicNode(
        topic.topic_id,
        {index: each.replicas for index, each in partitions.items()},
        {index: each.adding_replicas for index, each in partitions.items() if each.adding_replicas},
        {index: each.removing_replicas for index, each in partitions.items() if each.removing_replicas},
    )
