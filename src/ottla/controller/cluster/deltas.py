"""Metadata deltas: the differences of two images as protocol messages, and their application to an image. Pure.

The controller numbers its deltas, and brokers apply them in order: `apply_delta(old, difference(old, new))` is equal to
`new`. A delta has only the changes, down to single partitions; a snapshot has a whole image and replaces the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from ottla.base.security import Operation, PatternType, Permission, ResourceType
from ottla.controller.image import BrokerImage, Endpoint, MetadataImage, PartitionImage, TopicImage
from ottla.protocol.messages.inter_broker import (
    DeltaAclEntry,
    DeltaAcls,
    DeltaBroker,
    DeltaConfigs,
    DeltaEndpoint,
    DeltaFeature,
    DeltaPartition,
    DeltaSetting,
    DeltaToken,
    DeltaTopic,
    MetadataDelta,
)
from ottla.security.acls import AccessControlEntry, Entries, ResourcePattern
from ottla.security.delegation_tokens import DelegationToken

TOPIC: Final = 2  # resource types, as in DescribeConfigs
BROKER: Final = 4
CLIENT_METRICS: Final = 16
GROUP: Final = 32
USER: Final = 64  # ottla's own: in Kafka users have separate APIs for each kind of setting
QUOTA: Final = 65  # ottla's own: clients, clients of users, addresses, by path below /config
SORTED_MAX: Final = 5_000
OPERATIONS: Final = frozenset(map(int, Operation))
PERMISSIONS: Final = frozenset(map(int, Permission))
RESOURCE_TYPES: Final = frozenset(map(int, ResourceType))
PATTERN_TYPES: Final = frozenset(map(int, PatternType))

T = TypeVar("T")
Configs = Mapping[str, Mapping[str, str]]
Tokens = Mapping[str, DelegationToken]


class DeltaMismatchError(Exception):
    """A delta does not match the image that it is applied to: a snapshot is needed."""


def difference(old: MetadataImage, new: MetadataImage, sequence: int = 0) -> MetadataDelta:
    """Return the delta that turns `old` into `new`."""
    delta = frame_of(new, sequence)
    if new.brokers is not old.brokers:
        known = old.brokers
        delta.brokers = [to_delta_broker(each) for id_, each in new.brokers.items() if each != known.get(id_)]
        delta.removed_brokers = [id_ for id_ in known if id_ not in new.brokers]
    for name in sorted(new.changed_topics_since(old)):
        before, after = old.topics.get(name), new.topics.get(name)
        if before is not None and (after is None or is_another(before, after)):
            delta.removed_topics.append(before.topic_id)
            before = None
        if after is not None and after != before:
            delta.topics.append(to_delta_topic(before, after))
        elif after is None and name in new.topic_configs:  # settings of a topic that does not exist yet
            delta.configs += changed_configs(TOPIC, {}, {name: new.topic_configs[name]})
        if after is not None:
            before_configs = {name: old.topic_configs[name]} if before is not None and name in old.topic_configs else {}
            delta.configs += changed_configs(TOPIC, before_configs, {name: new.topic_configs.get(name, {})})
    delta.configs += changed_configs(BROKER, old.broker_configs, new.broker_configs)
    delta.configs += changed_configs(GROUP, old.group_configs, new.group_configs)
    delta.configs += changed_configs(CLIENT_METRICS, old.client_metrics_configs, new.client_metrics_configs)
    delta.configs += told_configs(USER, new.user_configs, new.changed_users_since(old))
    delta.configs += told_configs(QUOTA, new.quota_configs, new.changed_quotas_since(old))
    if (old.features, old.features_epoch) != (new.features, new.features_epoch):
        delta.features = to_delta_features(new.features)
    delta.acls = to_delta_acls(old, new)
    if old.delegation_tokens is not new.delegation_tokens:
        delta.tokens, delta.removed_tokens = to_delta_tokens(old.delegation_tokens, new.delegation_tokens)
    if old.damaged != new.damaged:
        delta.damaged = sorted(new.damaged)
    return delta


def snapshot(image: MetadataImage, sequence: int = 0) -> MetadataDelta:
    """Return a snapshot of the image."""
    delta = difference(MetadataImage(), image, sequence)
    delta.is_snapshot = True
    delta.features = to_delta_features(image.features)
    return delta


class Place(NamedTuple):
    """The position of a broker in the feed: controller epoch and sequence number."""

    epoch: int = -1
    sequence: int = -1


def apply_deltas(
    image: MetadataImage, place: Place, epoch: int, deltas: Iterable[MetadataDelta]
) -> tuple[MetadataImage, Place]:
    """Apply deltas of a controller epoch; raises DeltaMismatchError if one is missing before them."""
    for delta in deltas:
        if not delta.is_snapshot and (epoch, delta.sequence) != (place.epoch, place.sequence + 1):
            raise DeltaMismatchError(f"number {delta.sequence} does not follow {place.sequence}")
        image = apply_delta(image, delta)
        place = Place(epoch, delta.sequence)
    return image, place


def apply_delta(image: MetadataImage, delta: MetadataDelta) -> MetadataImage:
    """Return the image after a delta; raises DeltaMismatchError if the delta refers to unknown topics."""
    base = MetadataImage() if delta.is_snapshot else image
    new = base
    if delta.cluster_id != new.cluster_id:
        new = new.with_cluster_id(delta.cluster_id)
    if (delta.controller_id, delta.controller_epoch) != (new.controller_id, new.controller_epoch):
        new = new.with_controller(delta.controller_id, delta.controller_epoch)
    if delta.brokers or delta.removed_brokers:
        new = new.with_brokers(brokers_after(new.brokers, delta))
    if delta.features is not None:
        new = new.with_features({feature.name: feature.level for feature in delta.features}, delta.features_epoch)
    if delta.damaged is not None:
        new = new.with_damaged(delta.damaged)
    if delta.acls:
        new = new.with_acls(to_acls(delta.acls))
    if delta.tokens or delta.removed_tokens:
        new = new.with_delegation_tokens(to_tokens(delta))
    new = apply_other_configs(new, delta.configs)
    return apply_topics(new, delta)


# ---- to the wire


def frame_of(image: MetadataImage, sequence: int) -> MetadataDelta:
    return MetadataDelta(
        sequence=sequence,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        controller_epoch=image.controller_epoch,
        features_epoch=image.features_epoch,
    )


def to_delta_broker(broker: BrokerImage) -> DeltaBroker:
    return DeltaBroker(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        endpoints=[
            DeltaEndpoint(name=name, host=end.host, port=end.port, protocol=end.protocol)
            for name, end in broker.endpoints.items()
        ],
        rack=broker.rack,
        jmx_port=broker.jmx_port,
    )


def is_another(before: TopicImage, after: TopicImage) -> bool:
    """Return whether the topic was replaced or has fewer partitions, which only happens when the store is edited by
    hand.
    """
    return after.topic_id != before.topic_id or len(after.partitions) < len(before.partitions)


def to_delta_topic(before: TopicImage | None, after: TopicImage) -> DeltaTopic:
    old = before.partitions if before is not None else ()
    changed = [
        to_delta_partition(index, partition)
        for index, partition in enumerate(after.partitions)
        if index >= len(old) or old[index] != partition
    ]
    return DeltaTopic(topic_id=after.topic_id, name=after.name, partitions=changed)


def to_delta_partition(index: int, partition: PartitionImage) -> DeltaPartition:
    return DeltaPartition(
        partition_index=index,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        leader_recovery_state=partition.leader_recovery_state,
        isr=list(partition.isr),
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
        eligible=list(partition.elr),
        last_known_eligible=list(partition.last_known_elr),
    )


def changed_configs(resource_type: int, old: Configs, new: Configs) -> list[DeltaConfigs]:
    if old is new:
        return []
    changed = [name for name in new if name not in old or old[name] != new[name]]
    gone = [name for name in old if name not in new]
    return [to_delta_configs(resource_type, name, new[name]) for name in changed] + [
        to_delta_configs(resource_type, name, {}) for name in gone
    ]


def told_configs(resource_type: int, new: Configs, changed: frozenset[str]) -> list[DeltaConfigs]:
    """Return the deltas of settings with known changed names: comparing a hundred thousand would be slow."""
    return [to_delta_configs(resource_type, name, new.get(name, {})) for name in in_order(changed)]


def to_delta_configs(resource_type: int, name: str, settings: Mapping[str, str]) -> DeltaConfigs:
    return DeltaConfigs(
        resource_type=resource_type,
        resource_name=name,
        settings=[DeltaSetting(name=key, value=value) for key, value in settings.items()],
    )


def in_order(changed: frozenset[T]) -> Iterable[T]:
    """Return the names sorted, for reproducible deltas; very many are unsorted, because sorting holds the GIL."""
    return sorted(changed) if len(changed) <= SORTED_MAX else changed  # type: ignore[type-var]


def to_delta_features(features: Mapping[str, int]) -> list[DeltaFeature]:
    return [DeltaFeature(name=name, level=level) for name, level in features.items()]


def to_delta_acls(old: MetadataImage, new: MetadataImage) -> list[DeltaAcls]:
    return [
        DeltaAcls(
            resource_type=pattern.resource_type,
            name=pattern.name,
            pattern_type=pattern.pattern_type,
            entries=[
                DeltaAclEntry(
                    principal=each.principal, host=each.host, operation=each.operation, permission=each.permission
                )
                for each in sorted(new.acls.get(pattern, ()))
            ],
        )
        for pattern in in_order(new.changed_acls_since(old))
    ]


def to_delta_tokens(old: Tokens, new: Tokens) -> tuple[list[DeltaToken], list[str]]:
    """Return new and changed tokens, and the ids of removed ones."""
    changed = [
        DeltaToken(
            token_id=token.token_id,
            owner=token.owner,
            requester=token.token_requester,
            renewers=list(token.renewers),
            issue_ms=token.issue_ms,
            max_ms=token.max_ms,
            expiry_ms=token.expiry_ms,
        )
        for token in new.values()
        if (known := old.get(token.token_id)) is not token and known != token  # usually the same object
    ]
    return changed, [token_id for token_id in old if token_id not in new]


# ---- from the wire


def brokers_after(brokers: Mapping[int, BrokerImage], delta: MetadataDelta) -> dict[int, BrokerImage]:
    after = {id_: broker for id_, broker in brokers.items() if id_ not in set(delta.removed_brokers)}
    after.update((broker.broker_id, to_broker(broker)) for broker in delta.brokers)
    return dict(sorted(after.items()))


def to_broker(broker: DeltaBroker) -> BrokerImage:
    endpoints = {end.name: Endpoint(end.host, end.port, end.protocol) for end in broker.endpoints}
    return BrokerImage(broker.broker_id, endpoints, broker.rack, broker.broker_epoch, broker.jmx_port)


def to_acls(changed: Iterable[DeltaAcls]) -> dict[ResourcePattern, Entries]:
    """Return the ACLs without types of newer versions, which no request to this broker can need."""
    return {
        ResourcePattern(ResourceType(row.resource_type), row.name, PatternType(row.pattern_type)): frozenset(
            AccessControlEntry(each.principal, each.host, Operation(each.operation), Permission(each.permission))
            for each in row.entries
            if each.operation in OPERATIONS and each.permission in PERMISSIONS
        )
        for row in changed
        if row.resource_type in RESOURCE_TYPES and row.pattern_type in PATTERN_TYPES
    }


def to_tokens(delta: MetadataDelta) -> dict[str, DelegationToken | None]:
    changed: dict[str, DelegationToken | None] = dict.fromkeys(delta.removed_tokens)
    for row in delta.tokens:
        changed[row.token_id] = DelegationToken(
            row.token_id, row.owner, row.requester, tuple(row.renewers), row.issue_ms, row.max_ms, row.expiry_ms
        )
    return changed


def apply_other_configs(image: MetadataImage, configs: Iterable[DeltaConfigs]) -> MetadataImage:
    """Apply all settings except those of topics, which are applied with their topics."""
    groups: dict[str, dict[str, str]] = {}
    subscriptions: dict[str, dict[str, str]] = {}
    users: dict[str, dict[str, str]] = {}
    quotas: dict[str, dict[str, str] | None] = {}
    for config in configs:
        settings = {setting.name: setting.value for setting in config.settings}
        if config.resource_type == BROKER:
            image = image.with_broker_config(config.resource_name, settings)
        elif config.resource_type == GROUP:
            groups[config.resource_name] = settings
        elif config.resource_type == CLIENT_METRICS:
            subscriptions[config.resource_name] = settings
        elif config.resource_type == USER:
            users[config.resource_name] = settings
        elif config.resource_type == QUOTA:
            quotas[config.resource_name] = settings or None
    if groups:
        image = image.with_group_configs(groups)
    if users:
        image = image.with_user_configs(users)
    if quotas:
        image = image.with_quota_configs(quotas)
    return image.with_client_metrics_configs(subscriptions) if subscriptions else image


def apply_topics(image: MetadataImage, delta: MetadataDelta) -> MetadataImage:
    configs = {
        config.resource_name: {setting.name: setting.value for setting in config.settings}
        for config in delta.configs
        if config.resource_type == TOPIC
    }
    if not (delta.topics or delta.removed_topics or configs):
        return image
    removed = {topic_id: name_of(image, topic_id) for topic_id in delta.removed_topics}
    shared: dict[PartitionImage, PartitionImage] = {}
    topics = []
    for topic in delta.topics:
        before = image.topics.get(topic.name)
        if before is not None and before.topic_id in removed:
            before = None
        if before is not None and before.topic_id != topic.topic_id:
            raise DeltaMismatchError(f"topic {topic.name} has another id than the one that is known")
        topics.append(apply_topic(before, topic, shared))
    return image.with_topics(topics, removed=list(removed.values()), configs=configs)


def name_of(image: MetadataImage, topic_id: UUID) -> str:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        raise DeltaMismatchError(f"a topic with id {topic_id} is to be removed and is not known")
    return topic.name


def apply_topic(
    before: TopicImage | None, delta: DeltaTopic, shared: dict[PartitionImage, PartitionImage]
) -> TopicImage:
    partitions = list(before.partitions) if before is not None else []
    for change in sorted(delta.partitions, key=lambda change: change.partition_index):
        made = to_partition(change)
        made = shared.setdefault(made, made)  # many partitions are equal and share one value
        if change.partition_index < len(partitions):
            partitions[change.partition_index] = made
        elif change.partition_index == len(partitions):
            partitions.append(made)
        else:
            raise DeltaMismatchError(f"{delta.name} has no partition {len(partitions)} before {change.partition_index}")
    return TopicImage(delta.name, delta.topic_id, tuple(partitions))


def to_partition(change: DeltaPartition) -> PartitionImage:
    return PartitionImage(
        change.leader,
        change.leader_epoch,
        tuple(change.isr),
        tuple(change.replicas),
        change.partition_epoch,
        tuple(change.adding_replicas),
        tuple(change.removing_replicas),
        change.leader_recovery_state,
        tuple(change.eligible),
        tuple(change.last_known_eligible),
    )
