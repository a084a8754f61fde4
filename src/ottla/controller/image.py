"""The metadata image: everything a broker knows about the cluster, as one immutable value.

Whoever holds an image sees one moment of the cluster. A change makes a new image that shares all that did not change;
it also remembers which topics differ from the image before, so that listeners need not compare thousands of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ottla.base.names import INTERNAL_TOPICS
from ottla.controller.collisions import collisions, forget_collision, note_collision
from ottla.controller.mappings import differing, kept, sharable, with_changes, without_empty
from ottla.security.acls import Acls, Entries, ResourcePattern
from ottla.security.delegation_tokens import DelegationToken

NO_LEADER: Final = -1
NO_CONTROLLER: Final = -1
MISSING_EPOCH: Final = -1  # the partition epoch of a partition that has no state node yet
DAMAGED_EPOCH: Final = -2  # and of one whose state node cannot be read: nobody writes it until somebody has restored it
NO_FEATURES: Final[Mapping[str, tuple[int, int]]] = {}
NO_NAMES: Final[frozenset[str]] = frozenset()
GENERATIONS_MAX: Final = 256  # before an image of which it knows which topics they changed


class Endpoint(NamedTuple):
    """Where a listener of a broker can be reached, as told to clients."""

    host: str
    port: int
    protocol: str = "PLAINTEXT"


class BrokerImage(NamedTuple):
    """A broker that is alive."""

    id: int
    endpoints: Mapping[str, Endpoint]  # by listener name
    rack: str | None
    epoch: int
    jmx_port: int = -1  # where its metrics are; -1: nowhere
    previous_epoch: int = -1  # of the life that it goes on with all its records; -1: some may be lost
    features: Mapping[str, tuple[int, int]] = NO_FEATURES  # the levels that it supports; only its registration tells


class PartitionImage(NamedTuple):
    """One partition: who leads, who is in sync, who holds a copy."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int = 0  # the version of its state node
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    eligible: tuple[int, ...] = ()  # out of sync, but with all that was committed (KIP-966)
    last_known_eligible: tuple[int, ...] = ()  # who was, before all of them were lost

    @property
    def is_damaged(self) -> bool:
        return self.partition_epoch == DAMAGED_EPOCH


class TopicImage(NamedTuple):
    """A topic with all its partitions; the place in the tuple is the partition's number."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class MetadataImage:
    """One moment of the cluster. Never change what it holds: derive a new one with `with_*`."""

    __slots__ = (
        "acl_versions",
        "acls",
        "broker_configs",
        "brokers",
        "changed_acls",
        "changed_quotas",
        "changed_users",
        "client_metrics_configs",
        "cluster_id",
        "controller_epoch",
        "controller_id",
        "damaged",
        "delegation_tokens",
        "features",
        "features_epoch",
        "generation",
        "group_configs",
        "lineage",
        "names_by_collision_key",
        "newest_broker_epoch",
        "origin",
        "partition_count",
        "predecessor",
        "quota_configs",
        "recent_topics",
        "topic_configs",
        "topics",
        "topics_by_id",
        "user_configs",
    )

    def __init__(
        self,
        *,
        cluster_id: str = "",
        controller_id: int = NO_CONTROLLER,
        controller_epoch: int = 0,
        brokers: Mapping[int, BrokerImage] | None = None,
        topics: Mapping[str, TopicImage] | None = None,
        topic_configs: Mapping[str, Mapping[str, str]] | None = None,
        broker_configs: Mapping[str, Mapping[str, str]] | None = None,
        group_configs: Mapping[str, Mapping[str, str]] | None = None,
        client_metrics_configs: Mapping[str, Mapping[str, str]] | None = None,
        acls: Acls | None = None,
        acl_versions: Mapping[ResourcePattern, int] | None = None,
        user_configs: Mapping[str, Mapping[str, str]] | None = None,
        quota_configs: Mapping[str, Mapping[str, str]] | None = None,
        delegation_tokens: Mapping[str, DelegationToken] | None = None,
        features: Mapping[str, int] | None = None,
        features_epoch: int = 0,
        damaged: Iterable[str] = (),
    ) -> None:
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
        self.brokers: Mapping[int, BrokerImage] = brokers or {}
        self.newest_broker_epoch = max((broker.epoch for broker in self.brokers.values()), default=-1)
        self.topics: Mapping[str, TopicImage] = sharable(topics or {})
        self.topics_by_id: Mapping[UUID, TopicImage] = sharable({each.topic_id: each for each in self.topics.values()})
        self.partition_count = sum(len(topic.partitions) for topic in self.topics.values())
        self.topic_configs: Mapping[str, Mapping[str, str]] = sharable(topic_configs or {})  # of every topic
        self.broker_configs: Mapping[str, Mapping[str, str]] = broker_configs or {}  # "" is the default of all brokers
        self.group_configs: Mapping[str, Mapping[str, str]] = group_configs or {}
        self.client_metrics_configs: Mapping[str, Mapping[str, str]] = client_metrics_configs or {}  # by subscription
        self.acls: Acls = acls or {}  # access rules; no resource without any
        self.acl_versions = acl_versions or {}  # of their nodes; known to the controller only
        self.user_configs: Mapping[str, Mapping[str, str]] = sharable(
            user_configs or {}
        )  # passwords among them: never told
        self.quota_configs: Mapping[str, Mapping[str, str]] = sharable(quota_configs or {})  # by path
        self.delegation_tokens: Mapping[str, DelegationToken] = delegation_tokens or {}  # by id
        self.names_by_collision_key: Mapping[str, tuple[str, ...]] = sharable(collisions(self.topics))
        self.features: Mapping[str, int] = features or {}  # finalized features and their levels (KIP-584)
        self.features_epoch = features_epoch  # the version of the node that holds them
        self.damaged = frozenset(damaged)  # nodes that cannot be read: what they stand for is as it was last known
        self.lineage = object()  # images that derive from one another share it
        self.generation = 0  # +1 with every change within a lineage
        self.predecessor: MetadataImage | None = None  # if it is of another lineage, but what has changed is known
        self.origin: MetadataImage | None = None  # the predecessor of the first one of this lineage
        self.recent_topics: tuple[frozenset[str], ...] = ()  # changed by this generation, by the one before, ...
        self.changed_acls: frozenset[ResourcePattern] = frozenset()  # against the image of the generation before
        self.changed_users: frozenset[str] = frozenset()
        self.changed_quotas: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return (
            f"<MetadataImage generation={self.generation} brokers={len(self.brokers)} topics={len(self.topics)} "
            f"controller={self.controller_id}>"
        )

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def partition_leader(self, topic: str, index: int) -> int:
        partition = self.partition(topic, index)
        return partition.leader if partition is not None else NO_LEADER

    def racks(self) -> dict[int, str | None]:
        """The rack of each broker that is alive."""
        return {broker.id: broker.rack for broker in self.brokers.values()}

    def count_partitions(self, names: Iterable[str | None]) -> int:
        """The partitions that these topics have together; unknown names have none."""
        found = (self.topics.get(name or "") for name in names)
        return sum(len(topic.partitions) for topic in found if topic is not None)

    def with_topics(
        self,
        changed: Iterable[TopicImage] = (),
        removed: Iterable[str] = (),
        configs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> MetadataImage:
        """New and changed topics, removed ones, and new settings of topics (whole sets, by topic)."""
        topics: dict[str, TopicImage | None] = {}
        by_id: dict[UUID, TopicImage | None] = {}
        topic_configs: dict[str, Mapping[str, str] | None] = {}
        colliding: dict[str, tuple[str, ...] | None] = {}
        new = self._next()
        for name in removed:
            gone = self.topics[name]
            topics[name] = by_id[gone.topic_id] = None
            new.partition_count -= len(gone.partitions)
            forget_collision(self.names_by_collision_key, colliding, name)
            if name in self.topic_configs:
                topic_configs[name] = None
        for topic in changed:
            before = topics[topic.name] if topic.name in topics else self.topics.get(topic.name)
            if before is None:
                note_collision(self.names_by_collision_key, colliding, topic.name)
            new.partition_count += len(topic.partitions) - (len(before.partitions) if before is not None else 0)
            topics[topic.name] = by_id[topic.topic_id] = topic
        topic_configs.update(configs or {})
        new.topics, new.topics_by_id = with_changes(self.topics, topics), with_changes(self.topics_by_id, by_id)
        new.topic_configs = with_changes(self.topic_configs, topic_configs)
        new.names_by_collision_key = with_changes(self.names_by_collision_key, colliding)
        new.recent_topics = (frozenset([*topics, *topic_configs]), *new.recent_topics[1:])
        return new

    def without_leader(self, broker: int) -> MetadataImage:
        """The same, but nobody is known to lead what this broker leads and others could lead."""
        changed = [
            topic._replace(
                partitions=tuple(
                    each._replace(leader=NO_LEADER) if each.leader == broker and len(each.replicas) > 1 else each
                    for each in topic.partitions
                )
            )
            for topic in self.topics.values()
            if any(each.leader == broker and len(each.replicas) > 1 for each in topic.partitions)
        ]
        return self.with_topics(changed) if changed else self

    def with_broker_config(self, broker: str, config: Mapping[str, str]) -> MetadataImage:
        """The whole new set of dynamic settings of one broker, or of all brokers ("")."""
        new = self._next()
        new.broker_configs = {**self.broker_configs, broker: config}
        return new

    def with_group_configs(self, changed: Mapping[str, Mapping[str, str]]) -> MetadataImage:
        """Whole new sets of settings by group; an empty one removes what the group has."""
        new = self._next()
        new.group_configs = without_empty({**self.group_configs, **changed})
        return new

    def with_client_metrics_configs(self, changed: Mapping[str, Mapping[str, str]]) -> MetadataImage:
        """Whole new subscriptions to client metrics by name; an empty one is removed."""
        new = self._next()
        new.client_metrics_configs = without_empty({**self.client_metrics_configs, **changed})
        return new

    def with_acls(
        self, changed: Mapping[ResourcePattern, Entries], versions: Mapping[ResourcePattern, int] | None = None
    ) -> MetadataImage:
        """Whole new sets of access rules by resource; an empty one removes what the resource has.

        `versions` has those of their nodes, for as many as have one.
        """
        acls = {**self.acls, **changed}
        for pattern, entries in changed.items():
            if not entries:
                acls.pop(pattern, None)
        new = self._next()
        new.acls, new.changed_acls = acls, frozenset(changed)
        if versions is not None:
            known = {**self.acl_versions, **versions}
            for pattern in changed:  # those alone: to look at all of them takes long where there are many
                if pattern not in versions:
                    known.pop(pattern, None)
            new.acl_versions = known
        return new

    def with_user_configs(self, changed: Mapping[str, Mapping[str, str] | None]) -> MetadataImage:
        """Whole new sets of settings by user, None for one that is gone. An empty one stays, as its node does."""
        new = self._next()
        new.user_configs = with_changes(self.user_configs, changed)
        new.changed_users = frozenset(changed)
        return new

    def with_quota_configs(self, changed: Mapping[str, Mapping[str, str] | None]) -> MetadataImage:
        """The same for clients, clients of users and addresses, by path."""
        new = self._next()
        new.quota_configs = with_changes(self.quota_configs, changed)
        new.changed_quotas = frozenset(changed)
        return new

    def with_delegation_tokens(self, changed: Mapping[str, DelegationToken | None]) -> MetadataImage:
        """New and changed tokens by id, None for one that is gone."""
        new = self._next()
        merged = {**self.delegation_tokens, **changed}
        new.delegation_tokens = {token_id: token for token_id, token in merged.items() if token is not None}
        return new

    def with_damaged(self, damaged: Iterable[str]) -> MetadataImage:
        new = self._next()
        new.damaged = frozenset(damaged)
        return new

    def with_features(self, features: Mapping[str, int], features_epoch: int) -> MetadataImage:
        new = self._next()
        new.features, new.features_epoch = features, features_epoch
        return new

    def with_brokers(self, brokers: Mapping[int, BrokerImage]) -> MetadataImage:
        new = self._next()
        new.brokers = brokers
        new.newest_broker_epoch = max((broker.epoch for broker in brokers.values()), default=-1)
        return new

    def with_cluster_id(self, cluster_id: str) -> MetadataImage:
        new = self._next()
        new.cluster_id = cluster_id
        return new

    def with_controller(self, controller_id: int, controller_epoch: int) -> MetadataImage:
        new = self._next()
        new.controller_id, new.controller_epoch = controller_id, controller_epoch
        return new

    @property
    def changed_topics(self) -> frozenset[str]:
        """Those of the last change."""
        return self.recent_topics[0] if self.recent_topics else NO_NAMES

    def changed_topics_since(self, old: MetadataImage) -> frozenset[str]:
        """Names of the topics that were added, removed or changed (settings too) between two images."""
        if self._follows(old):
            return self.changed_topics
        generations = self.generation - old.generation if old is not self.origin else len(self.recent_topics)
        if (old.lineage is self.lineage or old is self.origin) and 0 <= generations <= len(self.recent_topics):
            return NO_NAMES.union(*self.recent_topics[:generations])
        names = self.topics.keys() | old.topics.keys()
        return frozenset(name for name in names if self._differs(old, name))

    def changed_acls_since(self, old: MetadataImage) -> frozenset[ResourcePattern]:
        """The resources whose access rules differ between two images."""
        if old.acls is self.acls:
            return frozenset()
        if self._follows(old):
            return self.changed_acls
        changed = {pattern for pattern, entries in self.acls.items() if old.acls.get(pattern) is not entries}
        return frozenset(changed.union(pattern for pattern in old.acls if pattern not in self.acls))

    def changed_users_since(self, old: MetadataImage) -> frozenset[str]:
        """The users whose settings differ between two images."""
        if old.user_configs is self.user_configs:
            return frozenset()
        if self._follows(old):
            return self.changed_users
        return differing(old.user_configs, self.user_configs)

    def changed_quotas_since(self, old: MetadataImage) -> frozenset[str]:
        """The same for paths of `quota_configs`."""
        if old.quota_configs is self.quota_configs:
            return frozenset()
        if self._follows(old):
            return self.changed_quotas
        return differing(old.quota_configs, self.quota_configs)

    def as_next_of(self, old: MetadataImage) -> MetadataImage:
        """The same, and what differs from `old` is known to it: to look for that takes long where there is much.

        What is equal is the very same as in `old` afterwards.
        """
        new = self._next()
        new.lineage, new.predecessor, new.origin = object(), old, old
        new.topics, changed = kept(old.topics, self.topics)
        new.topic_configs, reconfigured = kept(old.topic_configs, self.topic_configs)
        new.topics_by_id = sharable({topic.topic_id: topic for topic in new.topics.values()})
        new.recent_topics = (changed | reconfigured,)
        new.acls, new.changed_acls = kept(old.acls, self.acls)
        new.user_configs, new.changed_users = kept(old.user_configs, self.user_configs)
        new.quota_configs, new.changed_quotas = kept(old.quota_configs, self.quota_configs)
        new.delegation_tokens, _ = kept(old.delegation_tokens, self.delegation_tokens)
        return new

    def _follows(self, old: MetadataImage) -> bool:
        """Whether `changed_*` are against this one."""
        return old is self.predecessor or (old.lineage is self.lineage and old.generation == self.generation - 1)

    def _differs(self, old: MetadataImage, name: str) -> bool:
        return self.topics.get(name) != old.topics.get(name) or self.topic_configs.get(name) != old.topic_configs.get(
            name
        )

    def _next(self) -> MetadataImage:
        new = MetadataImage.__new__(MetadataImage)
        for slot in MetadataImage.__slots__:
            setattr(new, slot, getattr(self, slot))
        new.generation = self.generation + 1
        new.predecessor = None
        new.origin = self.origin if len(self.recent_topics) < GENERATIONS_MAX else None
        new.recent_topics = (NO_NAMES, *self.recent_topics[: GENERATIONS_MAX - 1])
        new.changed_acls = frozenset()
        new.changed_users = new.changed_quotas = frozenset()
        return new
