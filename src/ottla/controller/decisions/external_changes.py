"""Topics, settings and deletion marks that other tools have written into the store. Pure, by the rules of decision.py.

Tools of Kafka 3.x write topics, settings and deletion marks directly into ZooKeeper. The controller loads them and
continues with them; a topic that was changed in the store is accepted as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.controller import tree
from ottla.controller.decisions.decision import Decision
from ottla.controller.decisions.topic_changes import delete_operations
from ottla.controller.image import MetadataImage, TopicImage
from ottla.controller.image_loader import (
    NodeReader,
    PartitionLoader,
    load_config,
    load_configs,
    load_topics,
    to_topic_node,
    topic_nodes,
)
from ottla.controller.quota_nodes import is_quota_path, load_quota_config, parent_paths
from ottla.controller.stores.store import CreateNode, DeleteNode, Node, SetNode, StoreOperation

NO_TOPIC_ID: Final = UUID(int=0)
QUOTAS: Final = "quotas"  # the entity type of quotas, whose entities are paths below /config instead of names
ENTITY_TYPES: Final = (
    tree.TOPIC_CONFIG,
    tree.BROKER_CONFIG,
    tree.GROUP_CONFIG,
    tree.CLIENT_METRICS_CONFIG,
    tree.USER_CONFIG,
)


class MarkedDeletions(NamedTuple):
    """The result for topics with deletion marks."""

    deleted: tuple[str, ...]
    kept: tuple[str, ...]  # with their marks, because deletion is disabled


class ExternalTopicChanges(NamedTuple):
    """The topics that differ from the image."""

    changed: tuple[str, ...]
    gone: tuple[str, ...]


def is_unchanged(topic: TopicImage | None, data: bytes | None) -> bool:
    """Return whether the topic node is equal to the image; partition states are not compared."""
    if topic is None or data is None:
        return topic is None and data is None
    try:
        return tree.decode_topic(topic.name, data) == to_topic_node(topic)
    except tree.DamagedNodeError:
        return False


def decide_external_topics(
    image: MetadataImage, names: Iterable[str], nodes: Mapping[str, Node], new_ids: Iterator[UUID]
) -> Decision[ExternalTopicChanges]:
    """Load these topics from the store; `nodes` has their nodes, all nodes below them, and their settings."""
    reader = NodeReader(image)
    found = load_topics(nodes, reader)
    configs = load_configs(nodes, tree.TOPIC_CONFIG, reader)
    operations: list[StoreOperation] = []
    changed: list[TopicImage] = []
    gone = []
    replaced = []
    new_configs: dict[str, Mapping[str, str]] = {}
    others = image.damaged
    for name in names:
        others = others.difference(damaged_nodes(image, name))
        topic, known = found.get(name), image.topics.get(name)
        if topic is None:  # deleted; for a damaged node this is the last known topic
            gone += [name] if known is not None else []
            continue
        if topic.topic_id == NO_TOPIC_ID:
            topic = assign_topic_id(topic, next(new_ids), nodes, operations)
        operations.extend(missing_parent_operations(name, len(topic.partitions), nodes))
        if topic != known:
            changed.append(topic)
            if known is not None and known.topic_id != topic.topic_id:
                replaced.append(name)
        if name in configs and configs[name] != image.topic_configs.get(name):
            new_configs[name] = configs[name]
    reply = ExternalTopicChanges(tuple(topic.name for topic in changed), tuple(gone))
    damaged = others | reader.damaged.keys()
    after = image if damaged == image.damaged else image.with_damaged(damaged)
    if changed or gone or new_configs or operations:
        after = after.with_topics(changed, removed=[*gone, *replaced], configs=new_configs)
    return Decision(tuple(operations), after, reply)


def damaged_nodes(image: MetadataImage, topic: str) -> list[str]:
    """Return the damaged nodes of a topic."""
    path = tree.topic_path(topic)
    own = (path, tree.config_path(tree.TOPIC_CONFIG, topic))
    return [damaged for damaged in image.damaged if damaged in own or damaged.startswith(f"{path}/")]


def repair_operations(nodes: Mapping[str, Node], new_ids: Iterator[UUID]) -> list[StoreOperation]:
    """Complete topics for a new controller: missing topic ids (of old Kafka versions) and parents of states.

    Afterwards the controller can write the state of every partition in the same way. Deletion marks of topics that do
    not exist are removed: otherwise a new topic with that name would be deleted.
    """
    operations: list[StoreOperation] = []
    shared = PartitionLoader(NodeReader(MetadataImage()))
    for name, node in topic_nodes(nodes):
        topic = shared.topic(name, node)
        if topic is None:
            continue
        if topic.topic_id in (None, NO_TOPIC_ID):  # only then the states are decoded: there may be a million of them
            assign_topic_id(
                TopicImage(name, NO_TOPIC_ID, shared.partitions(name, topic, nodes)), next(new_ids), nodes, operations
            )
        operations.extend(missing_parent_operations(name, len(topic.replicas), nodes))
    return [*operations, *stale_mark_deletions(nodes)]


def stale_mark_deletions(nodes: Mapping[str, Node]) -> list[StoreOperation]:
    """Remove deletion marks of topics that do not exist; other marks are processed by the deletion."""
    prefix = f"{tree.DELETE_TOPICS}/"
    marked = [path.removeprefix(prefix) for path in nodes if path.startswith(prefix)]
    return [DeleteNode(tree.delete_topic_path(topic)) for topic in marked if tree.topic_path(topic) not in nodes]


def missing_parent_operations(topic: str, partitions: int, nodes: Mapping[str, Node]) -> Iterator[StoreOperation]:
    if tree.partitions_path(topic) not in nodes:
        yield CreateNode(tree.partitions_path(topic))
    for index in range(partitions):
        if tree.partition_state_path(topic, index) not in nodes and tree.partition_path(topic, index) in nodes:
            yield DeleteNode(tree.partition_path(topic, index))  # it is created together with its state


def assign_topic_id(
    topic: TopicImage, topic_id: UUID, nodes: Mapping[str, Node], operations: list[StoreOperation]
) -> TopicImage:
    path = tree.topic_path(topic.name)
    operations.append(SetNode(path, tree.encode_topic(topic_id, topic.partitions), nodes[path].version))
    return topic._replace(topic_id=topic_id)


def decide_marked_deletions(
    image: MetadataImage, marked: Iterable[str], *, is_enabled: bool
) -> Decision[MarkedDeletions]:
    """Delete topics with deletion marks, and the marks.

    If deletion is disabled, the marks stay for a controller that deletes (docs/decisions/topics-and-metadata.md). Marks
    of topics that do not exist are always removed.
    """
    operations: list[StoreOperation] = []
    deleted, kept = [], []
    for name in marked:
        topic = image.topics.get(name)
        if topic is not None and not is_enabled:
            kept.append(name)
            continue
        if topic is not None:
            operations.extend(delete_operations(image, topic))
            deleted.append(name)
        operations.append(DeleteNode(tree.delete_topic_path(name)))
    after = image.with_topics(removed=deleted) if deleted else image
    return Decision(tuple(operations), after, MarkedDeletions(tuple(deleted), tuple(sorted(kept))))


def decide_external_configs(
    image: MetadataImage, changed: Iterable[tuple[str, str]], nodes: Mapping[str, Node]
) -> Decision[int]:
    """Load settings from the store; `changed` has (type, entity) of each, from the notifications."""
    after = image
    count = 0
    reader = NodeReader(image)
    paths = set()
    for entity_type, entity in changed:
        if entity_type not in (*ENTITY_TYPES, QUOTAS):
            continue
        path = node_path(entity_type, entity)
        paths.add(path)
        if entity_type == QUOTAS:
            node = nodes.get(path)
            known = image.quota_configs
            quotas = load_quota_config(entity, node, reader.read, known) if node is not None else None
            if known.get(entity) != quotas:
                after = after.with_quota_configs({entity: quotas})
                count += 1
            continue
        config = load_config(path, nodes[path], entity_type, entity, reader) if path in nodes else {}
        if entity_type == tree.USER_CONFIG:
            new = with_user(after, entity, config if path in nodes else None)
        else:
            new = with_config(after, entity_type, entity, config)
        count += new is not after
        after = new
    return Decision((), reader.record_damage(after, paths), count)


def node_path(entity_type: str, entity: str) -> str:
    return f"{tree.CONFIG}/{entity}" if entity_type == QUOTAS else tree.config_path(entity_type, entity)


def with_parents(entities: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the entities and the parents of clients of users, which the writer may also have created."""
    found: dict[tuple[str, str], None] = {}
    for entity_type, entity in entities:
        if entity_type == QUOTAS and (parents := parent_paths(entity)):
            found[tree.USER_CONFIG, tree.config_entity(tree.USER_CONFIG, parents[0].partition("/")[2])] = None
            found[QUOTAS, parents[1]] = None
        found[entity_type, entity] = None
    return list(found)


def with_config(image: MetadataImage, entity_type: str, entity: str, config: Mapping[str, str]) -> MetadataImage:
    if entity_type == tree.TOPIC_CONFIG:
        if entity not in image.topics or image.topic_configs.get(entity) == config:
            return image
        return image.with_topics(configs={entity: config})
    if entity_type == tree.BROKER_CONFIG:
        return image if image.broker_configs.get(entity, {}) == config else image.with_broker_config(entity, config)
    if entity_type == tree.GROUP_CONFIG:
        return image if image.group_configs.get(entity, {}) == config else image.with_group_configs({entity: config})
    if image.client_metrics_configs.get(entity, {}) == config:
        return image
    return image.with_client_metrics_configs({entity: config})


def with_user(image: MetadataImage, user: str, config: Mapping[str, str] | None) -> MetadataImage:
    return image if image.user_configs.get(user) == config else image.with_user_configs({user: config})


def decode_changed_entity(data: bytes) -> tuple[str, str] | None:
    """Decode a notification of changed settings; None if it cannot be read."""
    fields = decode_json_object(data)
    path = fields.get("entity_path")
    if isinstance(path, str):
        entity_type, _, name = path.partition("/")
    else:  # version 1
        entity_type, name = fields.get("entity_type"), fields.get("entity_name")  # type: ignore[assignment]
    if isinstance(entity_type, str) and isinstance(name, str) and is_quota_path(f"{entity_type}/{name}"):
        return QUOTAS, f"{entity_type}/{name}"
    if not isinstance(entity_type, str) or not isinstance(name, str) or "/" in name:
        return None
    return entity_type, tree.config_entity(entity_type, name)


def decode_notified_topics(data: bytes) -> set[str]:
    """Decode the topics of a notification of changed ISRs."""
    partitions = decode_json_object(data).get("partitions", ())
    if not isinstance(partitions, list):
        return set()
    return {str(each["topic"]) for each in partitions if isinstance(each, dict) and "topic" in each}


def decode_json_object(data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
