"""What administrative requests change in topics, partitions, settings and groups, as changes of the audit trail.

Rules:
1. Pure. A request and its answer, with the metadata before and after, go in; a change for each thing comes out.
2. What the answer refuses is a change with an error, and what was asked for. What was only tried (validate_only) and
   what turned out not to be necessary is no change.
3. What is said about many partitions is one change for each topic and error, not for each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ottla.base.broker_settings import BrokerSettings, find_key
from ottla.base.errors import Error, KafkaError
from ottla.base.topic_keys import TopicKeys
from ottla.broker.audit.event import Change, Details
from ottla.controller.decisions.config_changes import (
    ConfigOperation,
    ConfigResourceChange,
    ConfigResourceType,
    OperationType,
    apply_operations,
    configs_of,
)
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.protocol.schema import ZERO_UUID

HIDDEN: Final = "(hidden)"  # a value that may be a secret
TOPIC: Final = "topic"
GROUP: Final = "group"
BROKER: Final = "broker"
CLUSTER: Final = "cluster"
DESCRIBED_TYPES: Final = {
    ConfigResourceType.TOPIC: TOPIC,
    ConfigResourceType.BROKER: BROKER,
    ConfigResourceType.BROKER_LOGGER: "broker-logger",
    ConfigResourceType.CLIENT_METRICS: "client-metrics",
    ConfigResourceType.GROUP: GROUP,
}


class Asked(NamedTuple):
    """A request that was answered."""

    request: Any
    response: Any
    before: MetadataImage
    after: MetadataImage
    settings: BrokerSettings
    seen: Any = None  # what was looked up before it was answered, beside the metadata (looking.py)


Describe = Callable[[Asked], Iterable[Change]]


# ---- topics


def topics_created(asked: Asked) -> Iterator[Change]:
    if asked.request.validate_only:
        return
    wanted = {topic.name: topic for topic in asked.request.topics}
    for row in asked.response.topics:
        topic = wanted.get(row.name)
        made = asked.after.topics.get(row.name)
        if row.error_code == Error.NONE and made is not None:
            after = described_topic(asked.after, made)
        else:  # it was refused, or the news of it has not come here yet
            after = wanted_topic(topic) if topic is not None else None
        yield Change(TOPIC, row.name, None, after, row.error_code, row.error_message)


def wanted_topic(topic: Any) -> Details:
    """As a request describes it; -1 stands for the brokers' default."""
    assigned = topic.assignments
    return {
        "partitions": len(assigned) or topic.num_partitions,
        "replication_factor": len(assigned[0].broker_ids) if assigned else topic.replication_factor,
        "configs": {config.name: shown_topic_value(config.name, config.value) for config in topic.configs},
    }


def topics_found(asked: Asked) -> Iterator[Change]:
    """Topics that came to be because somebody asked for them; `request` has their names, there is no answer."""
    for name in asked.request:
        made = asked.after.topics.get(name)
        if made is not None and name not in asked.before.topics:
            yield Change(TOPIC, name, None, described_topic(asked.after, made))


def topics_deleted(asked: Asked) -> Iterator[Change]:
    for row in asked.response.responses:
        topic = asked.before.topics_by_id.get(row.topic_id) if row.topic_id != ZERO_UUID else None
        topic = topic or asked.before.topics.get(row.name or "")
        before = described_topic(asked.before, topic) if topic is not None else None
        name = row.name or (topic.name if topic is not None else str(row.topic_id))
        yield Change(TOPIC, name, before, None, row.error_code, row.error_message)


def described_topic(image: MetadataImage, topic: TopicImage) -> Details:
    return {
        "id": str(topic.topic_id),
        "partitions": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas) if topic.partitions else 0,
        "configs": dict(image.topic_configs.get(topic.name, {})),
    }


def partitions_created(asked: Asked) -> Iterator[Change]:
    if asked.request.validate_only:
        return
    counts = {topic.name: topic.count for topic in asked.request.topics}
    for row in asked.response.results:
        topic = asked.before.topics.get(row.name)
        before = {"partitions": len(topic.partitions)} if topic is not None else None
        yield Change(TOPIC, row.name, before, {"partitions": counts[row.name]}, row.error_code, row.error_message)


# ---- partitions


def records_deleted(asked: Asked) -> Iterator[Change]:
    wanted = {
        topic.name: {row.partition_index: row.offset for row in topic.partitions} for topic in asked.request.topics
    }
    for topic in asked.response.topics:
        starts: Mapping[int, int] = asked.seen.get(topic.name, {})
        for error, rows in by_error(topic.partitions):
            before = {str(row.partition_index): starts.get(row.partition_index) for row in rows}
            after = {
                str(row.partition_index): row.low_watermark
                if error[0] == Error.NONE
                else wanted[topic.name].get(row.partition_index)
                for row in rows
            }
            yield Change(TOPIC, topic.name, {"start_offsets": before}, {"start_offsets": after}, *error)


def replicas_reassigned(asked: Asked) -> Iterator[Change]:
    targets = {
        topic.name: {row.partition_index: row.replicas for row in topic.partitions} for topic in asked.request.topics
    }
    if not asked.response.responses and asked.response.error_code != Error.NONE:
        yield Change(CLUSTER, None, None, None, asked.response.error_code, asked.response.error_message)
    for topic in asked.response.responses:
        for error, rows in by_error(topic.partitions):
            indexes = [row.partition_index for row in rows]
            before = {str(index): replicas_of(asked.before.partition(topic.name, index)) for index in indexes}
            after = {str(index): targets[topic.name].get(index) for index in indexes}
            yield Change(TOPIC, topic.name, {"replicas": before}, {"replicas": after}, *error)


def replicas_of(partition: PartitionImage | None) -> Any:
    """Its brokers; of one that is being moved, who comes and who goes as well."""
    if partition is None:
        return None
    if not partition.adding_replicas and not partition.removing_replicas:
        return list(partition.replicas)
    return {
        "replicas": list(partition.replicas),
        "adding": list(partition.adding_replicas),
        "removing": list(partition.removing_replicas),
    }


def leaders_elected(asked: Asked) -> Iterator[Change]:
    response = asked.response
    if not response.replica_election_results and response.error_code != Error.NONE:
        yield Change(CLUSTER, None, None, None, response.error_code)
    for topic in response.replica_election_results:
        for error, rows in by_error(topic.partition_result):
            if error[0] == Error.ELECTION_NOT_NEEDED:
                continue
            indexes = [row.partition_id for row in rows]
            before = {str(index): asked.before.partition_leader(topic.topic, index) for index in indexes}
            after = {str(index): asked.after.partition_leader(topic.topic, index) for index in indexes}
            kind = "unclean" if asked.request.election_type else "preferred"
            yield Change(TOPIC, topic.topic, {"leaders": before}, {"election": kind, "leaders": after}, *error)


def folders_altered(asked: Asked) -> Iterator[Change]:
    targets = {
        (topic.name, index): folder.path
        for folder in asked.request.dirs
        for topic in folder.topics
        for index in topic.partitions
    }
    for topic in asked.response.results:
        for error, rows in by_error(topic.partitions):
            indexes = [row.partition_index for row in rows]
            before = {str(index): asked.seen.get((topic.topic_name, index)) for index in indexes}
            after = {str(index): targets.get((topic.topic_name, index)) for index in indexes}
            yield Change(TOPIC, topic.topic_name, {"log_dirs": before}, {"log_dirs": after}, *error)


def transactions_aborted(asked: Asked) -> Iterator[Change]:
    """Markers that an administrator writes; those of coordinators are no changes of anybody's."""
    results = {row.producer_id: row for row in asked.response.markers}
    for marker in asked.request.markers:
        answered = results.get(marker.producer_id)
        after = {"producer_epoch": marker.producer_epoch, "result": "commit" if marker.transaction_result else "abort"}
        for topic in answered.topics if answered is not None else ():
            for error, rows in by_error(topic.partitions):
                partitions = [row.partition_index for row in rows]
                described = {"producer_id": marker.producer_id, **after, "partitions": partitions}
                yield Change(TOPIC, topic.name, None, described, *error)


def by_error(rows: Iterable[Any]) -> Iterable[tuple[tuple[int, str | None], list[Any]]]:
    """Rows of partitions that were answered alike."""
    groups: dict[tuple[int, str | None], list[Any]] = {}
    for row in rows:
        groups.setdefault((row.error_code, getattr(row, "error_message", None)), []).append(row)
    return groups.items()


# ---- settings


def configs_altered(asked: Asked) -> Iterator[Change]:
    """Only the settings that the request names, and for the older AlterConfigs those that it thereby takes away."""
    if asked.request.validate_only:
        return
    for resource, row in zip(asked.request.resources, asked.response.responses, strict=True):
        kind, name = resource.resource_type, resource.resource_name
        operations = [(getattr(each, "config_operation", None), each.name, each.value) for each in resource.configs]
        own = asked.seen if kind == ConfigResourceType.BROKER_LOGGER else configs_of(asked.before, kind).get(name, {})
        names = dict.fromkeys(each.name for each in resource.configs)
        if any(operation is None for operation, _, _ in operations) or not operations:
            names |= dict.fromkeys(own)
        after: Mapping[str, str | None] = {key: value for _, key, value in operations}
        if row.error_code == Error.NONE:
            after = after_change(ConfigResourceChange(kind, name), operations, own, asked.settings)
        described = DESCRIBED_TYPES.get(kind, str(kind))
        yield Change(
            described,
            name,
            {key: shown_value(kind, key, own.get(key)) for key in names},
            {key: shown_value(kind, key, after.get(key)) for key in names},
            row.error_code,
            without_secrets(row.error_message, kind, operations),
        )


def without_secrets(message: str | None, kind: int, operations: list[tuple[int | None, str, str | None]]) -> str | None:
    """Errors quote what they complain about."""
    for _, name, value in operations:
        if message and value and shown_value(kind, name, value) == HIDDEN:
            message = message.replace(value, HIDDEN)
    return message


def after_change(
    change: ConfigResourceChange,
    operations: list[tuple[int | None, str, str | None]],
    own: Mapping[str, str],
    settings: BrokerSettings,
) -> Mapping[str, str | None]:
    """A resource's own settings after a change that was accepted; the older AlterConfigs has no operations."""
    replaces_all = not operations or any(operation is None for operation, _, _ in operations)
    taken = tuple(
        ConfigOperation(OperationType(operation or OperationType.SET), name, value or "")
        for operation, name, value in operations
    )
    try:
        return apply_operations(change._replace(operations=taken, replaces_all=replaces_all), own, settings)
    except KafkaError:  # nobody has accepted that: what was asked for is all that can be said
        return {name: value for _, name, value in operations}


def shown_value(kind: int, name: str, value: str | None) -> str | None:
    if value is None or kind != ConfigResourceType.BROKER:
        return shown_topic_value(name, value) if kind == ConfigResourceType.TOPIC else value
    key = find_key(name)
    return HIDDEN if key is None or key.is_sensitive else value


def shown_topic_value(name: str, value: str | None) -> str | None:
    """Nobody knows what stands under a key that topics do not have."""
    return value if value is None or name in TopicKeys.keys else HIDDEN


def features_updated(asked: Asked) -> Iterator[Change]:
    if asked.request.validate_only:
        return
    for update in asked.request.feature_updates:
        before = {"level": asked.before.features.get(update.feature, 0)}
        after = {"level": update.max_version_level}
        yield Change("feature", update.feature, before, after, asked.response.error_code, asked.response.error_message)


def broker_unregistered(asked: Asked) -> Iterator[Change]:
    broker = str(asked.request.broker_id)
    yield Change(BROKER, broker, None, None, asked.response.error_code, asked.response.error_message)


# ---- groups


def groups_deleted(asked: Asked) -> Iterator[Change]:
    for row in asked.response.results:
        yield Change(GROUP, row.group_id, {"offsets": asked.seen.get(row.group_id)}, None, row.error_code)


def offsets_altered(asked: Asked) -> Iterator[Change]:
    wanted = {
        topic.name: {row.partition_index: row.committed_offset for row in topic.partitions}
        for topic in asked.request.topics
    }
    for topic in asked.response.topics:
        known, asked_for = asked.seen.get(topic.name, {}), wanted.get(topic.name, {})
        for error, rows in by_error(topic.partitions):
            before = {topic.name: {str(row.partition_index): known.get(str(row.partition_index)) for row in rows}}
            after = {topic.name: {str(row.partition_index): asked_for.get(row.partition_index) for row in rows}}
            yield Change(GROUP, asked.request.group_id, {"offsets": before}, {"offsets": after}, *error)


def offsets_deleted(asked: Asked) -> Iterator[Change]:
    group, response = asked.request.group_id, asked.response
    if response.error_code != Error.NONE:
        wanted = {topic.name: [row.partition_index for row in topic.partitions] for topic in asked.request.topics}
        yield Change(GROUP, group, None, {"partitions": wanted}, response.error_code)
    for topic in response.topics:
        known = asked.seen.get(topic.name, {})
        for error, rows in by_error(topic.partitions):
            before = {str(row.partition_index): known.get(str(row.partition_index)) for row in rows}
            yield Change(GROUP, group, {"offsets": {topic.name: before}}, None, *error)
