"""Leader eligibility: which replicas of a partition can lead it, and by which rules. Pure.

A broker is alive while it is in the image. Only the active controller has the other state. Brokers that shut down and
offline replicas are reported again to the next controller, which also detects demoted brokers again.

Eligible leader replicas (KIP-966) depend on min.insync.replicas, so all brokers must use the same value. While the
feature is enabled, which is the default, the cluster has one value that can be changed but not removed, and brokers
cannot override it. A cluster without a value gets that of the controller's file. Messages are Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.controller import tree
from ottla.controller.decisions.decision import Decision, config_operations
from ottla.controller.image import MetadataImage, PartitionImage
from ottla.controller.stores.store import StoreOperation

NO_EPOCH_BOUNDS: Mapping[int, int] = {}
NO_OFFLINE: Mapping[int, frozenset[tuple[UUID, int]]] = {}
ELR_FEATURE: Final = "eligible.leader.replicas.version"
ELR_LEVEL_MAX: Final = 1
MIN_ISR_KEY: Final = "min.insync.replicas"
ALL_BROKERS: Final = ""


class BrokerAvailability(NamedTuple):
    """The availability of brokers, as far as it is not in the image."""

    shutting_down: frozenset[int] = frozenset()  # they do not become leaders, and leave the ISRs
    offline_replicas: Mapping[int, frozenset[tuple[UUID, int]]] = NO_OFFLINE  # broker -> offline replicas
    broker_epoch_bounds: Mapping[int, int] = (
        NO_EPOCH_BOUNDS  # broker -> bound below which its epoch is the one that the ISRs refer to
    )
    demoted: frozenset[int] = frozenset()  # demoted brokers

    def has_offline(self, broker: int, topic_id: UUID, index: int) -> bool:
        return (topic_id, index) in self.offline_replicas.get(broker, ())

    def with_offline(self, broker: int, replicas: frozenset[tuple[UUID, int]]) -> BrokerAvailability:
        """Replace the offline replicas of a broker."""
        others = {id_: names for id_, names in self.offline_replicas.items() if id_ != broker}
        return self._replace(offline_replicas={**others, broker: replicas} if replicas else others)


class ElectionRules(NamedTuple):
    """The settings of a topic that affect its leaders."""

    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    is_elr_enabled: bool = True  # eligible.leader.replicas.version


def rules_from_settings(settings: BrokerSettings) -> ElectionRules:
    return ElectionRules(settings.min_insync_replicas, settings.unclean_leader_election_enable)


def topic_rules(image: MetadataImage, topic: str, defaults: ElectionRules) -> ElectionRules:
    """Return the rules of one topic; its own settings override the defaults. An invalid value is ignored."""
    if defaults.is_elr_enabled != is_elr_enabled(image):
        defaults = defaults._replace(is_elr_enabled=is_elr_enabled(image))
    own = image.topic_configs.get(topic)
    if not own:
        return defaults
    minimum = own.get("min.insync.replicas", "")
    unclean = own.get("unclean.leader.election.enable", "").strip().lower()
    return ElectionRules(
        int(minimum) if minimum.strip().isdigit() else defaults.min_insync_replicas,
        unclean == "true" if unclean in ("true", "false") else defaults.unclean_leader_election,
        defaults.is_elr_enabled,
    )


def with_isr(partition: PartitionImage, isr: tuple[int, ...], rules: ElectionRules) -> PartitionImage:
    """Return the partition with another ISR, and with its eligible leader replicas (KIP-966).

    A replica that leaves an ISR below min.insync.replicas has all committed records, and nothing more is committed
    while the ISR is that small. So it stays eligible until the ISR is large enough again.
    """
    if len(isr) >= min(rules.min_insync_replicas, len(partition.replicas)):
        return partition._replace(isr=isr, elr=(), last_known_elr=())
    had_all = dict.fromkeys((*partition.elr, *partition.isr) if rules.is_elr_enabled else ())
    eligible = tuple(broker for broker in had_all if broker not in isr and broker in partition.replicas)
    known = tuple(broker for broker in partition.last_known_elr if broker not in (*isr, *eligible))
    return partition._replace(isr=isr, elr=eligible, last_known_elr=known)


def is_elr_enabled(image: MetadataImage) -> bool:
    return image.features.get(ELR_FEATURE, ELR_LEVEL_MAX) > 0


def decide_cluster_min_isr(image: MetadataImage, minimum: int) -> Decision[None]:
    """Ensure that the cluster has a value of min.insync.replicas and no broker overrides it."""
    operations: list[StoreOperation] = []
    after = image
    wanted = {} if ALL_BROKERS in image.broker_configs else {ALL_BROKERS: with_min_isr({}, minimum)}
    for broker, config in image.broker_configs.items():
        if broker == ALL_BROKERS:
            wanted[broker] = with_min_isr(config, minimum)
        else:
            wanted[broker] = {key: value for key, value in config.items() if key != MIN_ISR_KEY}
    for broker, config in wanted.items():
        exists = broker in image.broker_configs
        path = tree.config_path(tree.BROKER_CONFIG, broker)
        if not is_elr_enabled(image) or path in image.damaged or (exists and config == image.broker_configs[broker]):
            continue
        operations.extend(config_operations(tree.BROKER_CONFIG, broker, config, exists=exists))
        after = after.with_broker_config(broker, config)
    return Decision(tuple(operations), after, None)


def with_min_isr(config: Mapping[str, str], minimum: int) -> Mapping[str, str]:
    return config if MIN_ISR_KEY in config else {**config, MIN_ISR_KEY: str(minimum)}


def check_min_isr_change(image: MetadataImage, broker: str, named: frozenset[str], new: Mapping[str, str]) -> None:
    """Check a change of a broker's settings, or of the defaults of all brokers (""). Raises KafkaError(INVALID_CONFIG).

    `named` are the keys in the change, `new` the settings after it.
    """
    if not is_elr_enabled(image):
        return
    if broker != ALL_BROKERS and MIN_ISR_KEY in named:
        raise KafkaError(Error.INVALID_CONFIG, f"Broker-level {MIN_ISR_KEY} cannot be altered while ELR is enabled.")
    if broker == ALL_BROKERS and MIN_ISR_KEY in image.broker_configs.get(ALL_BROKERS, {}) and MIN_ISR_KEY not in new:
        raise KafkaError(Error.INVALID_CONFIG, f"Cluster-level {MIN_ISR_KEY} cannot be removed while ELR is enabled.")


def excluding(brokers: Iterable[int], excluded: Iterable[int]) -> tuple[int, ...]:
    """Return the brokers in their order, without the excluded ones."""
    dropped = set(excluded)
    return tuple(broker for broker in brokers if broker not in dropped)


class LeaderCandidates:
    """The brokers that can become leader of a partition: alive, not shutting down, and the replica not offline."""

    def __init__(self, image: MetadataImage, liveness: BrokerAvailability) -> None:
        self._image = image
        self._liveness = liveness
        self._brokers = frozenset(image.brokers) - liveness.shutting_down

    def for_partition(self, name: TopicPartition) -> frozenset[int]:
        topic_id = self._image.topics[name.topic].topic_id
        offline = self._liveness.offline_replicas
        failed = [broker for broker in offline if self._liveness.has_offline(broker, topic_id, name.partition)]
        return self._brokers.difference(failed) if failed else self._brokers
