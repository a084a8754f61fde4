"""Leader election: leaders and ISRs when brokers start, stop, restart or lose a log directory. Pure, see decision.py.

The election depends only on the current state, never on events, and is idempotent. So a new controller, a controller
that detects a failed broker, and one that loads a topic changed by another tool use the same rules.

1. A usable leader stays, unless it is demoted (demoted_brokers.py) and another replica in sync is not.
2. Otherwise the first assigned replica in the ISR leads; if none is usable, the first in the ELR (KIP-966); if none is
   and the topic permits it, the first live replica (an unclean election, which loses its missing records). Otherwise
   there is no leader. In the ISR, demoted brokers come last.
3. Unusable replicas leave the ISR, but never the last one: it has all committed records.
4. A new leader has a new leader epoch. So has a restarted one: its log may have lost its tail (KIP-320).
5. A broker that may have lost records (broker_epochs.py) leaves ISR and ELR. If no replica with all records remains,
   only the last known leader can be elected, because no other replica can have more records.
6. A partition with a damaged state keeps its leader while that is alive. No other leader is elected, and nothing is
   written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from ottla.base.names import TopicPartition
from ottla.controller.decisions.broker_epochs import RestartedBrokers, find_restarted, without_unclean
from ottla.controller.decisions.decision import Decision, partition_state_operations
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, ElectionRules, topic_rules, with_isr
from ottla.controller.image import MISSING_EPOCH, NO_LEADER, BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.controller.stores.store import StoreOperation

LEADER_RECOVERING: Final = 1  # leader_recovery_state after an unclean election, until the leader reports its recovery
NO_RESTARTS: Final = RestartedBrokers()
TopicsOf = Callable[[Iterable[int]], Iterable[str]]


class ElectionSummary(NamedTuple):
    """The summary of a decision."""

    changed: int = 0  # partitions
    elected: int = 0  # of these with another leader or a new leader epoch
    leaderless: tuple[TopicPartition, ...] = ()  # partitions that have lost their leader without another one


class AvailableReplicas(NamedTuple):
    """The brokers that can keep or get a role in one partition."""

    alive: frozenset[int]  # alive, and the replica is not offline
    electable: frozenset[int]  # of these not shutting down
    demoted: frozenset[int] = frozenset()  # alive, but demoted


def decide_broker_changes(
    image: MetadataImage,
    brokers: Mapping[int, BrokerImage],
    liveness: BrokerAvailability,
    defaults: ElectionRules,
    topics_of: TopicsOf | None = None,
) -> Decision[ElectionSummary]:
    """Reconcile the partitions with these live brokers; a broker with another epoch was restarted.

    `topics_of` returns the topics of brokers. It is given if all partitions are consistent with the brokers of the
    image; then only topics of changed brokers are visited.
    """
    back = find_restarted(image, brokers, liveness.broker_epoch_bounds)
    after = image if dict(image.brokers) == dict(brokers) else image.with_brokers(dict(sorted(brokers.items())))
    if topics_of is None:
        return decide_election(after, liveness, defaults, restarted=back)
    moved = {
        id_
        for id_ in (*image.brokers, *brokers)
        if broker_epoch_of(image.brokers, id_) != broker_epoch_of(brokers, id_)
    }
    return decide_election(after, liveness, defaults, restarted=back, topics=topics_of(moved | back.restarted))


def broker_epoch_of(brokers: Mapping[int, BrokerImage], broker: int) -> int | None:
    return brokers[broker].epoch if broker in brokers else None


def decide_controlled_shutdown(
    image: MetadataImage,
    broker: int,
    liveness: BrokerAvailability,
    defaults: ElectionRules,
    topics: Collection[str] | None = None,
) -> Decision[list[TopicPartition]]:
    """Transfer leadership from a broker that shuts down, and remove it from ISRs; `topics` are those with its replicas.
    The reply has the replicated partitions that it still leads, because no other replica is in sync.
    """
    leaving = liveness._replace(shutting_down=liveness.shutting_down | {broker})
    decision = decide_election(image, leaving, defaults, topics=topics)
    all_topics = decision.image.topics
    remaining = [
        TopicPartition(name, index)
        for name in (all_topics if topics is None else topics)
        for index, partition in enumerate(all_topics[name].partitions)
        if partition.leader == broker and len(partition.replicas) > 1
    ]
    return Decision(decision.operations, decision.image, remaining)


def decide_election(
    image: MetadataImage,
    liveness: BrokerAvailability,
    defaults: ElectionRules,
    *,
    restarted: RestartedBrokers = NO_RESTARTS,
    topics: Iterable[str] | None = None,
) -> Decision[ElectionSummary]:
    """Reconcile all partitions, or those of some topics, with the live brokers."""
    alive = frozenset(image.brokers)
    everywhere = AvailableReplicas(alive, alive - liveness.shutting_down, liveness.demoted)
    operations: list[StoreOperation] = []
    changed_topics: list[TopicImage] = []
    elected = changed = 0
    leaderless: list[TopicPartition] = []
    names = list(image.topics) if topics is None else [name for name in topics if name in image.topics]
    by_rules: dict[ElectionRules, dict[PartitionImage, PartitionImage]] = {}  # equal partitions keep sharing one value
    for name in names:
        topic = image.topics[name]
        rules = topic_rules(image, name, defaults)
        shared = by_rules.setdefault(rules, {})
        settle = cached_elector(rules, everywhere, restarted, shared)
        partitions = tuple(
            settle(partition)
            if not liveness.offline_replicas
            else elect_with_offline_replicas(topic, index, partition, liveness, rules, everywhere, restarted)
            for index, partition in enumerate(topic.partitions)
        )
        if partitions == topic.partitions:
            continue
        changed_topics.append(topic._replace(partitions=partitions))
        for index, (old, new) in enumerate(zip(topic.partitions, partitions, strict=True)):
            if old == new:
                continue
            changed += 1
            operations.extend(partition_state_operations(image, topic, index, new))
            elected += new.leader_epoch != old.leader_epoch and new.leader != NO_LEADER
            if new.leader == NO_LEADER != old.leader:
                leaderless.append(TopicPartition(name, index))
    after = image.with_topics(changed_topics) if changed_topics else image
    return Decision(tuple(operations), after, ElectionSummary(changed, elected, tuple(leaderless)))


def cached_elector(
    rules: ElectionRules,
    present: AvailableReplicas,
    back: RestartedBrokers,
    shared: dict[PartitionImage, PartitionImage],
) -> Callable[[PartitionImage], PartitionImage]:
    def settle(partition: PartitionImage) -> PartitionImage:
        found = shared.get(partition)
        if found is None:
            found = shared[partition] = elect_partition(partition, present, rules, back)
        return found

    return settle


def elect_with_offline_replicas(
    topic: TopicImage,
    index: int,
    partition: PartitionImage,
    liveness: BrokerAvailability,
    rules: ElectionRules,
    present: AvailableReplicas,
    back: RestartedBrokers,
) -> PartitionImage:
    failed = frozenset(id_ for id_ in partition.replicas if liveness.has_offline(id_, topic.topic_id, index))
    working = AvailableReplicas(present.alive - failed, present.electable - failed, present.demoted)
    return elect_partition(partition, working, rules, back)


def elect_partition(
    old: PartitionImage, available: AvailableReplicas, rules: ElectionRules, restarted: RestartedBrokers = NO_RESTARTS
) -> PartitionImage:
    """Return the partition by the rules above, with new epochs if it changes."""
    if old.is_damaged:  # rule 6
        is_gone = old.leader not in available.alive or old.leader in restarted.restarted
        return old._replace(leader=NO_LEADER) if is_gone else old
    if old.partition_epoch == MISSING_EPOCH:
        return initial_state(old, available)
    new = choose_leader_and_isr(without_unclean(old, restarted.unclean), available, rules)
    is_new_leader = new.leader != old.leader or (old.leader in restarted.restarted and new.leader != NO_LEADER)
    if not is_new_leader and new == old:
        return old
    return new._replace(
        leader_epoch=old.leader_epoch + 1 if is_new_leader else old.leader_epoch,
        partition_epoch=old.partition_epoch + 1,
    )


def initial_state(old: PartitionImage, present: AvailableReplicas) -> PartitionImage:
    """Return the first state of a partition whose creation was interrupted: all live replicas are in sync."""
    isr = tuple(broker for broker in old.replicas if broker in present.electable)
    if not isr:
        return old
    leader = next((broker for broker in isr if broker not in present.demoted), isr[0])
    return old._replace(leader=leader, leader_epoch=old.leader_epoch + 1, isr=isr, partition_epoch=0)


def choose_leader_and_isr(old: PartitionImage, present: AvailableReplicas, rules: ElectionRules) -> PartitionImage:
    """Choose leader and ISR, without new epochs."""
    isr = (
        tuple(broker for broker in old.isr if broker in present.electable)
        or tuple(broker for broker in old.isr if broker in present.alive)
        or old.isr
    )
    kept = with_isr(old, isr, rules)
    rested = first_electable(old.replicas, isr, present.electable - present.demoted)
    if old.leader in isr and old.leader in present.alive:
        is_relieved = old.leader in present.demoted and rested != NO_LEADER
        return kept._replace(leader=rested) if is_relieved else kept
    leader = rested if rested != NO_LEADER else first_electable(old.replicas, isr, present.alive)
    if leader != NO_LEADER:
        return kept._replace(leader=leader)
    leader = first_electable(old.replicas, old.elr, present.electable)
    if leader != NO_LEADER:
        return with_isr(old, (leader,), rules)._replace(leader=leader)
    if not old.isr and not old.elr and old.last_known_elr[:1] and old.last_known_elr[0] in present.alive:
        leader = old.last_known_elr[0]
        return old._replace(leader=leader, isr=(leader,), last_known_elr=())
    if rules.unclean_leader_election:
        leader = first_electable(old.replicas, old.replicas, present.electable)
        if leader != NO_LEADER:
            return old._replace(
                leader=leader,
                isr=(leader,),
                leader_recovery_state=LEADER_RECOVERING,
                elr=(),
                last_known_elr=(),
            )
    return old._replace(leader=NO_LEADER)


def first_electable(replicas: Iterable[int], among: Iterable[int], there: frozenset[int]) -> int:
    wanted = frozenset(among) & there
    return next((broker for broker in replicas if broker in wanted), NO_LEADER)
