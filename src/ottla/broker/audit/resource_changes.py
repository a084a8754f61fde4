"""Changes of resources by administrative requests, as changes of the audit trail.

Rules:
1. Pure: takes a request, its response, and the metadata before and after; yields one change per resource.
2. A refused change has an error and the requested state. Changes without effect are omitted; requests that only
   validate (validate_only) do not get here.
3. Partitions are combined into one change per topic and error.
4. No secrets: passwords, salts, keys and tokens are omitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from ottla.base.broker_settings import BrokerSettings, find_key
from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, PatternType, Permission, ResourceType, pascal_name
from ottla.base.topic_keys import TopicKeys
from ottla.broker.audit.event import Change, ResourceState
from ottla.controller.decisions.config_changes import (
    ConfigOperation,
    ConfigResourceChange,
    ConfigResourceType,
    OperationType,
    apply_operations,
    configs_of,
)
from ottla.controller.decisions.quota_changes import EntityParts, current_config
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.protocol.schema import ZERO_UUID
from ottla.quotas.entities import KEYS, read_entity
from ottla.security.scram_credentials import MECHANISMS

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

USER: Final = "user"
TOKEN: Final = "token"  # noqa: S105 (a resource type)
DEFAULT_ENTITY: Final = "<default>"
ITERATIONS: Final = "iterations="


class AuditedRequest(NamedTuple):
    """A request with its response."""

    request: Any
    response: Any
    before: MetadataImage
    after: MetadataImage
    settings: BrokerSettings
    state: Any = None  # state that was read before the request, in addition to the metadata


Describe = Callable[[AuditedRequest], Iterable[Change]]


# ---- topics


def topics_created(asked: AuditedRequest) -> Iterator[Change]:
    wanted = {topic.name: topic for topic in asked.request.topics}
    for row in asked.response.topics:
        topic = wanted.get(row.name)
        made = asked.after.topics.get(row.name)
        if row.error_code == Error.NONE and made is not None:
            after = describe_topic(asked.after, made)
        else:  # it was rejected, or its metadata have not arrived yet
            after = describe_requested_topic(topic) if topic is not None else None
        yield Change(TOPIC, row.name, None, after, row.error_code, row.error_message)


def describe_requested_topic(topic: Any) -> ResourceState:
    """Return the topic as requested; -1 means the broker's default."""
    assigned = topic.assignments
    return {
        "partitions": len(assigned) or topic.num_partitions,
        "replication_factor": len(assigned[0].broker_ids) if assigned else topic.replication_factor,
        "configs": {config.name: redact_topic_value(config.name, config.value) for config in topic.configs},
    }


def topics_auto_created(asked: AuditedRequest) -> Iterator[Change]:
    """Yield automatically created topics; `request` has their names, there is no response."""
    for name in asked.request:
        made = asked.after.topics.get(name)
        if made is not None and name not in asked.before.topics:
            yield Change(TOPIC, name, None, describe_topic(asked.after, made))


def topics_deleted(asked: AuditedRequest) -> Iterator[Change]:
    for row in asked.response.responses:
        topic = asked.before.topics_by_id.get(row.topic_id) if row.topic_id != ZERO_UUID else None
        topic = topic or asked.before.topics.get(row.name or "")
        before = describe_topic(asked.before, topic) if topic is not None else None
        name = row.name or (topic.name if topic is not None else str(row.topic_id))
        yield Change(TOPIC, name, before, None, row.error_code, row.error_message)


def describe_topic(image: MetadataImage, topic: TopicImage) -> ResourceState:
    return {
        "id": str(topic.topic_id),
        "partitions": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas) if topic.partitions else 0,
        "configs": dict(image.topic_configs.get(topic.name, {})),
    }


def partitions_created(asked: AuditedRequest) -> Iterator[Change]:
    counts = {topic.name: topic.count for topic in asked.request.topics}
    for row in asked.response.results:
        topic = asked.before.topics.get(row.name)
        before = {"partitions": len(topic.partitions)} if topic is not None else None
        yield Change(TOPIC, row.name, before, {"partitions": counts[row.name]}, row.error_code, row.error_message)


# ---- partitions


def records_deleted(asked: AuditedRequest) -> Iterator[Change]:
    wanted = {
        topic.name: {row.partition_index: row.offset for row in topic.partitions} for topic in asked.request.topics
    }
    for topic in asked.response.topics:
        starts: Mapping[int, int] = asked.state.get(topic.name, {})
        for error, rows in group_by_error(topic.partitions):
            before = {str(row.partition_index): starts.get(row.partition_index) for row in rows}
            after = {
                str(row.partition_index): row.low_watermark
                if error[0] == Error.NONE
                else wanted[topic.name].get(row.partition_index)
                for row in rows
            }
            yield Change(TOPIC, topic.name, {"start_offsets": before}, {"start_offsets": after}, *error)


def replicas_reassigned(asked: AuditedRequest) -> Iterator[Change]:
    targets = {
        topic.name: {row.partition_index: row.replicas for row in topic.partitions} for topic in asked.request.topics
    }
    if not asked.response.responses and asked.response.error_code != Error.NONE:
        yield Change(CLUSTER, None, None, None, asked.response.error_code, asked.response.error_message)
    for topic in asked.response.responses:
        for error, rows in group_by_error(topic.partitions):
            indexes = [row.partition_index for row in rows]
            before = {str(index): describe_replicas(asked.before.partition(topic.name, index)) for index in indexes}
            after = {str(index): targets[topic.name].get(index) for index in indexes}
            yield Change(TOPIC, topic.name, {"replicas": before}, {"replicas": after}, *error)


def describe_replicas(partition: PartitionImage | None) -> Any:
    """Return the replicas of a partition; during a reassignment also the adding and removing replicas."""
    if partition is None:
        return None
    if not partition.adding_replicas and not partition.removing_replicas:
        return list(partition.replicas)
    return {
        "replicas": list(partition.replicas),
        "adding": list(partition.adding_replicas),
        "removing": list(partition.removing_replicas),
    }


def leaders_elected(asked: AuditedRequest) -> Iterator[Change]:
    response = asked.response
    if not response.replica_election_results and response.error_code != Error.NONE:
        yield Change(CLUSTER, None, None, None, response.error_code)
    for topic in response.replica_election_results:
        for error, rows in group_by_error(topic.partition_result):
            if error[0] == Error.ELECTION_NOT_NEEDED:
                continue
            indexes = [row.partition_id for row in rows]
            before = {str(index): asked.before.partition_leader(topic.topic, index) for index in indexes}
            after = {str(index): asked.after.partition_leader(topic.topic, index) for index in indexes}
            kind = "unclean" if asked.request.election_type else "preferred"
            yield Change(TOPIC, topic.topic, {"leaders": before}, {"election": kind, "leaders": after}, *error)


def log_dirs_altered(asked: AuditedRequest) -> Iterator[Change]:
    targets = {
        (topic.name, index): folder.path
        for folder in asked.request.dirs
        for topic in folder.topics
        for index in topic.partitions
    }
    for topic in asked.response.results:
        for error, rows in group_by_error(topic.partitions):
            indexes = [row.partition_index for row in rows]
            before = {str(index): asked.state.get((topic.topic_name, index)) for index in indexes}
            after = {str(index): targets.get((topic.topic_name, index)) for index in indexes}
            yield Change(TOPIC, topic.topic_name, {"log_dirs": before}, {"log_dirs": after}, *error)


def transactions_aborted(asked: AuditedRequest) -> Iterator[Change]:
    """Yield markers that an administrator wrote; markers of coordinators are not changes."""
    results = {row.producer_id: row for row in asked.response.markers}
    for marker in asked.request.markers:
        answered = results.get(marker.producer_id)
        after = {"producer_epoch": marker.producer_epoch, "result": "commit" if marker.transaction_result else "abort"}
        for topic in answered.topics if answered is not None else ():
            for error, rows in group_by_error(topic.partitions):
                partitions = [row.partition_index for row in rows]
                described = {"producer_id": marker.producer_id, **after, "partitions": partitions}
                yield Change(TOPIC, topic.name, None, described, *error)


def group_by_error(rows: Iterable[Any]) -> Iterable[tuple[tuple[int, str | None], list[Any]]]:
    """Group partitions by their result."""
    groups: dict[tuple[int, str | None], list[Any]] = {}
    for row in rows:
        groups.setdefault((row.error_code, getattr(row, "error_message", None)), []).append(row)
    return groups.items()


# ---- settings


def configs_altered(asked: AuditedRequest) -> Iterator[Change]:
    """Only the settings that the request names; for the older AlterConfigs also the settings that it removes."""
    for resource, row in zip(asked.request.resources, asked.response.responses, strict=True):
        kind, name = resource.resource_type, resource.resource_name
        operations = [(getattr(each, "config_operation", None), each.name, each.value) for each in resource.configs]
        own = asked.state if kind == ConfigResourceType.BROKER_LOGGER else configs_of(asked.before, kind).get(name, {})
        names = dict.fromkeys(each.name for each in resource.configs)
        if any(operation is None for operation, _, _ in operations) or not operations:
            names |= dict.fromkeys(own)
        after: Mapping[str, str | None] = {key: value for _, key, value in operations}
        if row.error_code == Error.NONE:
            after = configs_after_change(ConfigResourceChange(kind, name), operations, own, asked.settings)
        described = DESCRIBED_TYPES.get(kind, str(kind))
        yield Change(
            described,
            name,
            {key: redact_value(kind, key, own.get(key)) for key in names},
            {key: redact_value(kind, key, after.get(key)) for key in names},
            row.error_code,
            redact_message(row.error_message, kind, operations),
        )


def redact_message(message: str | None, kind: int, operations: list[tuple[int | None, str, str | None]]) -> str | None:
    """Hide values that error messages quote."""
    for _, name, value in operations:
        if message and value and redact_value(kind, name, value) == HIDDEN:
            message = message.replace(value, HIDDEN)
    return message


def configs_after_change(
    change: ConfigResourceChange,
    operations: list[tuple[int | None, str, str | None]],
    own: Mapping[str, str],
    settings: BrokerSettings,
) -> Mapping[str, str | None]:
    """Return a resource's own settings after an accepted change; the older AlterConfigs has no operations."""
    replaces_all = not operations or any(operation is None for operation, _, _ in operations)
    taken = tuple(
        ConfigOperation(OperationType(operation or OperationType.SET), name, value or "")
        for operation, name, value in operations
    )
    try:
        return apply_operations(change._replace(operations=taken, replaces_all=replaces_all), own, settings)
    except KafkaError:  # not a valid operation: only the requested values are known
        return {name: value for _, name, value in operations}


def redact_value(kind: int, name: str, value: str | None) -> str | None:
    if value is None or kind != ConfigResourceType.BROKER:
        return redact_topic_value(name, value) if kind == ConfigResourceType.TOPIC else value
    key = find_key(name)
    return HIDDEN if key is None or key.is_sensitive else value


def redact_topic_value(name: str, value: str | None) -> str | None:
    """Hide the values of unknown topic keys, which may be secrets."""
    return value if value is None or name in TopicKeys.keys else HIDDEN


def features_updated(asked: AuditedRequest) -> Iterator[Change]:
    for update in asked.request.feature_updates:
        before = {"level": asked.before.features.get(update.feature, 0)}
        after = {"level": update.max_version_level}
        yield Change("feature", update.feature, before, after, asked.response.error_code, asked.response.error_message)


def broker_unregistered(asked: AuditedRequest) -> Iterator[Change]:
    broker = str(asked.request.broker_id)
    yield Change(BROKER, broker, None, None, asked.response.error_code, asked.response.error_message)


# ---- groups


def groups_deleted(asked: AuditedRequest) -> Iterator[Change]:
    for row in asked.response.results:
        yield Change(GROUP, row.group_id, {"offsets": asked.state.get(row.group_id)}, None, row.error_code)


def offsets_altered(asked: AuditedRequest) -> Iterator[Change]:
    wanted = {
        topic.name: {row.partition_index: row.committed_offset for row in topic.partitions}
        for topic in asked.request.topics
    }
    for topic in asked.response.topics:
        known, asked_for = asked.state.get(topic.name, {}), wanted.get(topic.name, {})
        for error, rows in group_by_error(topic.partitions):
            before = {topic.name: {str(row.partition_index): known.get(str(row.partition_index)) for row in rows}}
            after = {topic.name: {str(row.partition_index): asked_for.get(row.partition_index) for row in rows}}
            yield Change(GROUP, asked.request.group_id, {"offsets": before}, {"offsets": after}, *error)


def offsets_deleted(asked: AuditedRequest) -> Iterator[Change]:
    group, response = asked.request.group_id, asked.response
    if response.error_code != Error.NONE:
        wanted = {topic.name: [row.partition_index for row in topic.partitions] for topic in asked.request.topics}
        yield Change(GROUP, group, None, {"partitions": wanted}, response.error_code)
    for topic in response.topics:
        known = asked.state.get(topic.name, {})
        for error, rows in group_by_error(topic.partitions):
            before = {str(row.partition_index): known.get(str(row.partition_index)) for row in rows}
            yield Change(GROUP, group, {"offsets": {topic.name: before}}, None, *error)


def acls_created(asked: AuditedRequest) -> Iterator[Change]:
    for creation, row in zip(asked.request.creations, asked.response.results, strict=True):
        rule = describe_acl(creation, creation.resource_pattern_type)
        yield acl_change(creation, None, rule, row.error_code, row.error_message)


def acls_deleted(asked: AuditedRequest) -> Iterator[Change]:
    for result in asked.response.filter_results:
        if result.error_code != Error.NONE:
            yield Change(CLUSTER, None, None, None, result.error_code, result.error_message)
        for rule in result.matching_acls:
            yield acl_change(rule, describe_acl(rule, rule.pattern_type), None, rule.error_code, rule.error_message)


def acl_change(
    rule: Any, before: Mapping[str, str] | None, after: Mapping[str, str] | None, error: int, message: str | None
) -> Change:
    return Change(
        enum_word(ResourceType, rule.resource_type).lower(), rule.resource_name, before, after, error, message
    )


def describe_acl(rule: Any, pattern_type: int) -> dict[str, str]:
    return {
        "pattern_type": enum_word(PatternType, pattern_type),
        "principal": rule.principal,
        "host": rule.host,
        "operation": enum_word(Operation, rule.operation),
        "permission": enum_word(Permission, rule.permission_type),
    }


def enum_word(kind: type[IntEnum], number: int) -> str:
    try:
        return pascal_name(kind(number))
    except ValueError:
        return str(number)


# ---- users


def users_altered(asked: AuditedRequest) -> Iterator[Change]:
    """Yield one change per user: mechanisms and iterations before and after."""
    taken: dict[str, set[str]] = {}
    given: dict[str, dict[str, int | None]] = {}
    for each in asked.request.deletions:
        taken.setdefault(each.name, set()).add(MECHANISMS.get(each.mechanism, str(each.mechanism)))
    for each in asked.request.upsertions:
        given.setdefault(each.name, {})[MECHANISMS.get(each.mechanism, str(each.mechanism))] = each.iterations
    for row in asked.response.results:
        before = scram_mechanisms(asked.before.user_configs.get(row.user, {}))
        kept = {name: count for name, count in before.items() if name not in taken.get(row.user, ())}
        after = {**kept, **given.get(row.user, {})}
        yield Change(USER, row.user, {"iterations": before}, {"iterations": after}, row.error_code, row.error_message)


def scram_mechanisms(config: Mapping[str, str]) -> dict[str, int | None]:
    """Return the mechanisms of a user with their iterations; the rest of a credential is omitted."""
    found: dict[str, int | None] = {}
    for mechanism in MECHANISMS.values():
        if mechanism in config:
            _, _, number = config[mechanism].rpartition(ITERATIONS)
            found[mechanism] = int(number) if number.isdecimal() else None
    return found


# ---- quotas


def quotas_altered(asked: AuditedRequest) -> Iterator[Change]:
    """The quotas that a request names; null means absent or removed."""
    answers = {frozenset(entity_parts(row.entity)): row for row in asked.response.entries}
    for alteration in asked.request.entries:
        parts = entity_parts(alteration.entity)
        row = answers.get(frozenset(parts))  # a duplicate entity has one response
        if row is not None:
            name = ",".join(f"{kind}={name or DEFAULT_ENTITY}" for kind, name in parts)
            after = {operation.key: None if operation.remove else operation.value for operation in alteration.ops}
            yield Change("quota", name, quotas_before(asked, parts, after), after, row.error_code, row.error_message)


def quotas_before(asked: AuditedRequest, parts: EntityParts, keys: Iterable[str]) -> dict[str, float | None] | None:
    try:
        config = current_config(asked.before, read_entity(parts))
    except KafkaError:  # not a valid entity: it has no quotas
        return None
    return {key: float(config[key]) if key in KEYS and key in config else None for key in keys}


def entity_parts(entity: Iterable[Any]) -> EntityParts:
    return tuple((each.entity_type, each.entity_name) for each in entity)


# ---- delegation tokens


def token_created(asked: AuditedRequest) -> Iterator[Change]:
    request, response = asked.request, asked.response
    after = {
        "owner": f"{response.principal_type}:{response.principal_name}",
        "renewers": [f"{each.principal_type}:{each.principal_name}" for each in request.renewers],
        "expires_ms": response.expiry_timestamp_ms,
        "max_ms": response.max_timestamp_ms,
    }
    yield Change(TOKEN, response.token_id or None, None, after, response.error_code)


def token_renewed(asked: AuditedRequest) -> Iterator[Change]:
    yield token_expiry_change(asked, asked.request.renew_period_ms, is_removed=False)


def token_expired(asked: AuditedRequest) -> Iterator[Change]:
    period_ms = asked.request.expiry_time_period_ms
    yield token_expiry_change(asked, period_ms, is_removed=period_ms < 0)


def token_expiry_change(asked: AuditedRequest, period_ms: int, *, is_removed: bool) -> Change:
    """Return the change of a token.

    A request identifies a token only by its HMAC; `state` has the token id, if there is one.
    """
    token_id, response = asked.state.get("token_id"), asked.response
    token = asked.before.delegation_tokens.get(token_id or "")
    known = {"owner": token.owner} if token is not None else {}
    before = {**known, "expires_ms": token.expiry_ms} if token is not None else None
    after = {**known, "expires_ms": response.expiry_timestamp_ms} if not is_removed else None
    if response.error_code != Error.NONE:
        after = {"period_ms": period_ms}
    return Change(TOKEN, token_id, before, after, response.error_code)
