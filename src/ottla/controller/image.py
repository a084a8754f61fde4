"""The metadata image: everything that a broker knows about the cluster, as one immutable value (as in KRaft).

A change creates a new image that shares all unchanged parts with the old one. It also records which topics differ from
the previous image, so listeners need not compare thousands of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ottla.base.names import INTERNAL_TOPICS, topic_name_collision_key
from ottla.base.tasks import notify_safely
from ottla.controller.mappings import differing, kept, sharable, with_changes, without_empty
from ottla.security.acls import Acls, Entries, ResourcePattern
from ottla.security.delegation_tokens import DelegationToken

NO_LEADER: Final = -1
NO_CONTROLLER: Final = -1
MISSING_EPOCH: Final = -1  # the partition epoch of a partition that has no state node yet
DAMAGED_EPOCH: Final = -2  # and of one whose state node cannot be read: it is not written until it is restored
NO_FEATURES: Final[Mapping[str, tuple[int, int]]] = {}
NO_TOPICS: Final[frozenset[str]] = frozenset()
TRACKED_GENERATIONS_MAX: Final = 256  # the number of previous generations whose changed topics an image keeps


class Endpoint(NamedTuple):
    """The advertised address of a broker's listener."""

    host: str
    port: int
    protocol: str = "PLAINTEXT"


class BrokerImage(NamedTuple):
    """A broker that is alive."""

    id: int
    endpoints: Mapping[str, Endpoint]  # by listener name
    rack: str | None
    epoch: int
    jmx_port: int = -1  # the port of its metrics; -1: none
    previous_epoch: int = -1  # of its clean shutdown, after which it has all its records; -1: some may be lost
    features: Mapping[str, tuple[int, int]] = NO_FEATURES  # supported levels; known from its registration only


class PartitionImage(NamedTuple):
    """One partition: leader, ISR and replicas."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int = 0  # the version of its state node
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    elr: tuple[int, ...] = ()  # not in the ISR, but with all committed records (KIP-966)
    last_known_elr: tuple[int, ...] = ()  # the last members of the ISR or ELR, after all of them were lost

    @property
    def is_damaged(self) -> bool:
        return self.partition_epoch == DAMAGED_EPOCH


class TopicImage(NamedTuple):
    """A topic with all its partitions; the index in the tuple is the partition index."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class MetadataImage:
    """The metadata of the cluster at one moment. Never change its contents: derive a new image with `with_*`."""

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
        self.acls: Acls = acls or {}  # only resources that have rules
        self.acl_versions = acl_versions or {}  # of their nodes; known to the controller only
        self.user_configs: Mapping[str, Mapping[str, str]] = sharable(
            user_configs or {}
        )  # with passwords: never log them
        self.quota_configs: Mapping[str, Mapping[str, str]] = sharable(quota_configs or {})  # by path
        self.delegation_tokens: Mapping[str, DelegationToken] = delegation_tokens or {}  # by id
        self.names_by_collision_key: Mapping[str, tuple[str, ...]] = sharable(find_collisions(self.topics))
        self.features: Mapping[str, int] = features or {}  # finalized features and their levels (KIP-584)
        self.features_epoch = features_epoch  # the version of the node that holds them
        self.damaged = frozenset(damaged)  # nodes that cannot be read: the image keeps their last known contents
        self.lineage = object()  # shared by all images that derive from one another
        self.generation = 0  # +1 with every change within a lineage
        self.predecessor: MetadataImage | None = None  # an image of another lineage that the changes refer to
        self.origin: MetadataImage | None = None  # the predecessor of the first image of this lineage
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
        """Return the rack of each broker that is alive."""
        return {broker.id: broker.rack for broker in self.brokers.values()}

    def count_partitions(self, names: Iterable[str | None]) -> int:
        """Return the total number of partitions of these topics; unknown topics count as 0."""
        found = (self.topics.get(name or "") for name in names)
        return sum(len(topic.partitions) for topic in found if topic is not None)

    def with_topics(
        self,
        changed: Iterable[TopicImage] = (),
        removed: Iterable[str] = (),
        configs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> MetadataImage:
        """Add, change and remove topics, and replace the settings of topics."""
        topics: dict[str, TopicImage | None] = {}
        by_id: dict[UUID, TopicImage | None] = {}
        topic_configs: dict[str, Mapping[str, str] | None] = {}
        colliding: dict[str, tuple[str, ...] | None] = {}
        new = self._copy()
        for name in removed:
            gone = self.topics[name]
            topics[name] = by_id[gone.topic_id] = None
            new.partition_count -= len(gone.partitions)
            remove_collision(self.names_by_collision_key, colliding, name)
            if name in self.topic_configs:
                topic_configs[name] = None
        for topic in changed:
            before = topics[topic.name] if topic.name in topics else self.topics.get(topic.name)
            if before is None:
                add_collision(self.names_by_collision_key, colliding, topic.name)
            new.partition_count += len(topic.partitions) - (len(before.partitions) if before is not None else 0)
            topics[topic.name] = by_id[topic.topic_id] = topic
        topic_configs.update(configs or {})
        new.topics, new.topics_by_id = with_changes(self.topics, topics), with_changes(self.topics_by_id, by_id)
        new.topic_configs = with_changes(self.topic_configs, topic_configs)
        new.names_by_collision_key = with_changes(self.names_by_collision_key, colliding)
        new.recent_topics = (frozenset([*topics, *topic_configs]), *new.recent_topics[1:])
        return new

    def without_leaderships_of(self, broker: int) -> MetadataImage:
        """Return the image without a leader for the partitions that this broker leads and other brokers could lead."""
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
        """Replace the dynamic settings of one broker, or of all brokers ("")."""
        return self._copy(broker_configs={**self.broker_configs, broker: config})

    def with_group_configs(self, changed: Mapping[str, Mapping[str, str]]) -> MetadataImage:
        """Replace the settings of groups; an empty mapping removes those of a group."""
        return self._copy(group_configs=without_empty({**self.group_configs, **changed}))

    def with_client_metrics_configs(self, changed: Mapping[str, Mapping[str, str]]) -> MetadataImage:
        """Replace subscriptions to client metrics by name; an empty mapping removes a subscription."""
        return self._copy(client_metrics_configs=without_empty({**self.client_metrics_configs, **changed}))

    def with_acls(
        self, changed: Mapping[ResourcePattern, Entries], versions: Mapping[ResourcePattern, int] | None = None
    ) -> MetadataImage:
        """Replace the ACLs of resources; an empty set removes those of a resource.

        `versions` are the versions of the nodes that exist.
        """
        acls = {**self.acls, **changed}
        for pattern, entries in changed.items():
            if not entries:
                acls.pop(pattern, None)
        new = self._copy()
        new.acls, new.changed_acls = acls, frozenset(changed)
        if versions is not None:
            known = {**self.acl_versions, **versions}
            for pattern in changed:  # only these: there may be very many others
                if pattern not in versions:
                    known.pop(pattern, None)
            new.acl_versions = known
        return new

    def with_user_configs(self, changed: Mapping[str, Mapping[str, str] | None]) -> MetadataImage:
        """Replace the settings of users; None removes a user. An empty mapping is kept, because its node exists."""
        return self._copy(user_configs=with_changes(self.user_configs, changed), changed_users=frozenset(changed))

    def with_quota_configs(self, changed: Mapping[str, Mapping[str, str] | None]) -> MetadataImage:
        """The same for clients, clients of users, and addresses, by path."""
        return self._copy(quota_configs=with_changes(self.quota_configs, changed), changed_quotas=frozenset(changed))

    def with_delegation_tokens(self, changed: Mapping[str, DelegationToken | None]) -> MetadataImage:
        """Add and change tokens by id; None removes a token."""
        merged = {**self.delegation_tokens, **changed}
        return self._copy(
            delegation_tokens={token_id: token for token_id, token in merged.items() if token is not None}
        )

    def with_damaged(self, damaged: Iterable[str]) -> MetadataImage:
        return self._copy(damaged=frozenset(damaged))

    def with_features(self, features: Mapping[str, int], features_epoch: int) -> MetadataImage:
        return self._copy(features=features, features_epoch=features_epoch)

    def with_brokers(self, brokers: Mapping[int, BrokerImage]) -> MetadataImage:
        newest = max((broker.epoch for broker in brokers.values()), default=-1)
        return self._copy(brokers=brokers, newest_broker_epoch=newest)

    def with_cluster_id(self, cluster_id: str) -> MetadataImage:
        return self._copy(cluster_id=cluster_id)

    def with_controller(self, controller_id: int, controller_epoch: int) -> MetadataImage:
        return self._copy(controller_id=controller_id, controller_epoch=controller_epoch)

    @property
    def changed_topics(self) -> frozenset[str]:
        """The topics that the last change affected."""
        return self.recent_topics[0] if self.recent_topics else NO_TOPICS

    def changed_topics_since(self, old: MetadataImage) -> frozenset[str]:
        """Return the topics that were added, removed or changed, including their settings, between two images."""
        if self._is_direct_successor_of(old):
            return self.changed_topics
        generations = self.generation - old.generation if old is not self.origin else len(self.recent_topics)
        if (old.lineage is self.lineage or old is self.origin) and 0 <= generations <= len(self.recent_topics):
            return NO_TOPICS.union(*self.recent_topics[:generations])
        names = self.topics.keys() | old.topics.keys()
        return frozenset(name for name in names if self._differs(old, name))

    def changed_acls_since(self, old: MetadataImage) -> frozenset[ResourcePattern]:
        """Return the resources whose ACLs differ between two images."""
        if old.acls is self.acls:
            return frozenset()
        if self._is_direct_successor_of(old):
            return self.changed_acls
        changed = {pattern for pattern, entries in self.acls.items() if old.acls.get(pattern) is not entries}
        return frozenset(changed.union(pattern for pattern in old.acls if pattern not in self.acls))

    def changed_users_since(self, old: MetadataImage) -> frozenset[str]:
        """Return the users whose settings differ between two images."""
        if old.user_configs is self.user_configs:
            return frozenset()
        if self._is_direct_successor_of(old):
            return self.changed_users
        return differing(old.user_configs, self.user_configs)

    def changed_quotas_since(self, old: MetadataImage) -> frozenset[str]:
        """Return the paths of `quota_configs` that differ between two images."""
        if old.quota_configs is self.quota_configs:
            return frozenset()
        if self._is_direct_successor_of(old):
            return self.changed_quotas
        return differing(old.quota_configs, self.quota_configs)

    def as_successor_of(self, old: MetadataImage) -> MetadataImage:
        """Return the same image as a successor of `old`: it records the differences and shares all equal objects.

        Without this, every `changed_*_since(old)` would compare both images completely.
        """
        new = self._copy()
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

    def _is_direct_successor_of(self, old: MetadataImage) -> bool:
        """Return whether `changed_*` are the differences from this image."""
        return old is self.predecessor or (old.lineage is self.lineage and old.generation == self.generation - 1)

    def _differs(self, old: MetadataImage, name: str) -> bool:
        return self.topics.get(name) != old.topics.get(name) or self.topic_configs.get(name) != old.topic_configs.get(
            name
        )

    def _copy(self, **changes: object) -> MetadataImage:
        """The image of the next generation, with other values of some slots."""
        new = MetadataImage.__new__(MetadataImage)
        for slot in MetadataImage.__slots__:
            setattr(new, slot, getattr(self, slot))
        new.generation = self.generation + 1
        new.predecessor = None
        new.origin = self.origin if len(self.recent_topics) < TRACKED_GENERATIONS_MAX else None
        new.recent_topics = (NO_TOPICS, *self.recent_topics[: TRACKED_GENERATIONS_MAX - 1])
        new.changed_acls = frozenset()
        new.changed_users = new.changed_quotas = frozenset()
        for slot, value in changes.items():
            setattr(new, slot, value)
        return new


# ---- topic names that differ only in '.' and '_': they collide in metric names, so Kafka rejects the second one

KnownCollisions = Mapping[str, tuple[str, ...]]
CollisionChanges = dict[str, tuple[str, ...] | None]  # None: there is no longer a collision


def find_collisions(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the names with '.' or '_', by a key in which both characters are equal."""
    found: dict[str, tuple[str, ...] | None] = {}
    for name in names:
        add_collision({}, found, name)
    return {key: names for key, names in found.items() if names is not None}


def add_collision(known: KnownCollisions, changes: CollisionChanges, name: str) -> None:
    """Add a name to the changes of the known collisions."""
    if "." in name or "_" in name:
        key = topic_name_collision_key(name)
        others = names_with_key(known, changes, key)
        if name not in others:
            changes[key] = (*others, name)


def remove_collision(known: KnownCollisions, changes: CollisionChanges, name: str) -> None:
    if "." in name or "_" in name:
        key = topic_name_collision_key(name)
        changes[key] = tuple(other for other in names_with_key(known, changes, key) if other != name) or None


def names_with_key(known: KnownCollisions, changes: CollisionChanges, key: str) -> tuple[str, ...]:
    return (changes[key] if key in changes else known.get(key)) or ()


# ---- the current image of a broker

ImageListener = Callable[[MetadataImage, MetadataImage], None]


class MetadataCache:
    """The current image of a broker and its listeners. All calls are made on the event loop.

    The active controller publishes committed images here; the other brokers those from the controller's deltas.
    """

    def __init__(self) -> None:
        self.image = MetadataImage()
        self._listeners: list[ImageListener] = []

    def add_listener(self, listener: ImageListener) -> None:
        """Call `listener(old, new)` with every new image, before the response to the change."""
        self._listeners.append(listener)

    def remove_listener(self, listener: ImageListener) -> None:
        """Remove the listener."""
        self._listeners.remove(listener)

    def publish(self, image: MetadataImage) -> None:
        old, self.image = self.image, image
        for listener in tuple(self._listeners):
            notify_safely(listener, old, image)

    def __repr__(self) -> str:
        return f"<MetadataCache {self.image!r}>"
