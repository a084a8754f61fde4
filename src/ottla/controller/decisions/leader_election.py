"""What becomes of partitions when brokers come, go, restart, shut down or lose a folder. Pure, rules of machine.py.

One rule for all of it, and it looks at what is, never at what happened: run it again and nothing changes. So a
controller that has just been elected, one that hears of a death, and one that reads a topic which somebody else has
changed all do the same thing.

1. A leader that can go on stays, unless it rests (maintenance.py, slow_brokers.py) and another one in sync does not.
2. Otherwise the first of the assigned replicas that is in sync leads; if none is, the first that is eligible (KIP-966);
   if none is and the topic allows it, the first that is there (unclean: what it lacks is lost). Else nobody. Of those
   in sync, one that rests comes last: better it than nobody.
3. The ISR loses who cannot go on, but never its last member: whoever that is has everything.
4. A new leader has a new epoch. So has an old one that was restarted: its log may have lost its tail (KIP-320).
5. A broker that may have lost records (broker_epochs.py) is neither in sync nor eligible any more. When nobody is
   left who has everything, the one that left last leads, and no other: nobody can have more than it.
6. A partition whose state cannot be read keeps its leader while that lives; nobody else is elected, nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from ottla.base.names import TopicPartition
from ottla.controller.decisions.broker_epochs import Returned, returned, without_lost
from ottla.controller.decisions.liveness import Liveness, Rules, rules_of, with_isr
from ottla.controller.decisions.machine import Decision
from ottla.controller.decisions.single_broker_leaders import leader_operations
from ottla.controller.image import MISSING_EPOCH, NO_LEADER, BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.controller.stores.store import StoreOperation

RECOVERING: Final = 1  # leader_recovery_state after an unclean election, until its leader says that it has recovered
NOBODY: Final = Returned()
TopicsOf = Callable[[Iterable[int]], Iterable[str]]


class Election(NamedTuple):
    """What a decision came to."""

    changed: int = 0  # partitions
    elected: int = 0  # of these with another leader, or a new epoch for the old one
    leaderless: tuple[TopicPartition, ...] = ()  # that have lost their leader and found no other


class Present(NamedTuple):
    """The replicas of one partition: who can go on, and who can be given more to do."""

    there: frozenset[int]  # alive, with a folder that works
    usable: frozenset[int]  # of these not about to stop
    resting: frozenset[int] = frozenset()  # who leads only what nobody else in sync can lead


def decide_brokers(
    image: MetadataImage,
    brokers: Mapping[int, BrokerImage],
    liveness: Liveness,
    defaults: Rules,
    topics_of: TopicsOf | None = None,
) -> Decision[Election]:
    """These brokers are alive now; one with another epoch than before has died and come back.

    `topics_of` tells where brokers occur, if all partitions are in line with those of the image: then only what names
    one that has come or gone is looked at.
    """
    back = returned(image, brokers, liveness.known)
    after = image if dict(image.brokers) == dict(brokers) else image.with_brokers(dict(sorted(brokers.items())))
    if topics_of is None:
        return decide_election(after, liveness, defaults, back=back)
    moved = {id_ for id_ in (*image.brokers, *brokers) if epoch_of(image.brokers, id_) != epoch_of(brokers, id_)}
    return decide_election(after, liveness, defaults, back=back, only=topics_of(moved | back.restarted))


def epoch_of(brokers: Mapping[int, BrokerImage], broker: int) -> int | None:
    return brokers[broker].epoch if broker in brokers else None


def decide_controlled_shutdown(
    image: MetadataImage, broker: int, liveness: Liveness, defaults: Rules, only: Collection[str] | None = None
) -> Decision[list[TopicPartition]]:
    """Take leaderships and ISR memberships from a broker that is about to stop; `only` are the topics it occurs in.

    The reply names what it still leads though there are other replicas: nobody else of those is in sync.
    """
    leaving = liveness._replace(shutting_down=liveness.shutting_down | {broker})
    decision = decide_election(image, leaving, defaults, only=only)
    topics = decision.image.topics
    remaining = [
        TopicPartition(name, index)
        for name in (topics if only is None else only)
        for index, partition in enumerate(topics[name].partitions)
        if partition.leader == broker and len(partition.replicas) > 1
    ]
    return Decision(decision.operations, decision.image, remaining)


def decide_election(
    image: MetadataImage,
    liveness: Liveness,
    defaults: Rules,
    *,
    back: Returned = NOBODY,
    only: Iterable[str] | None = None,
) -> Decision[Election]:
    """Bring all partitions (or those of the topics `only`) in line with who is there."""
    alive = frozenset(image.brokers)
    everywhere = Present(alive, alive - liveness.shutting_down, liveness.resting)
    operations: list[StoreOperation] = []
    topics: list[TopicImage] = []
    elected = changed = 0
    leaderless: list[TopicPartition] = []
    names = list(image.topics) if only is None else [name for name in only if name in image.topics]
    by_rules: dict[Rules, dict[PartitionImage, PartitionImage]] = {}  # equal partitions go on sharing one value
    for name in names:
        topic = image.topics[name]
        rules = rules_of(image, name, defaults)
        shared = by_rules.setdefault(rules, {})
        settle = settler(rules, everywhere, back, shared)
        partitions = tuple(
            settle(partition)
            if not liveness.offline
            else elect_offline(topic, index, partition, liveness, rules, everywhere, back)
            for index, partition in enumerate(topic.partitions)
        )
        if partitions == topic.partitions:
            continue
        topics.append(topic._replace(partitions=partitions))
        for index, (old, new) in enumerate(zip(topic.partitions, partitions, strict=True)):
            if old == new:
                continue
            changed += 1
            operations.extend(leader_operations(image, topic, index, new))
            elected += new.leader_epoch != old.leader_epoch and new.leader != NO_LEADER
            if new.leader == NO_LEADER != old.leader:
                leaderless.append(TopicPartition(name, index))
    after = image.with_topics(topics) if topics else image
    return Decision(tuple(operations), after, Election(changed, elected, tuple(leaderless)))


def settler(
    rules: Rules, present: Present, back: Returned, shared: dict[PartitionImage, PartitionImage]
) -> Callable[[PartitionImage], PartitionImage]:
    def settle(partition: PartitionImage) -> PartitionImage:
        found = shared.get(partition)
        if found is None:
            found = shared[partition] = settled(partition, present, rules, back)
        return found

    return settle


def elect_offline(
    topic: TopicImage,
    index: int,
    partition: PartitionImage,
    liveness: Liveness,
    rules: Rules,
    present: Present,
    back: Returned,
) -> PartitionImage:
    failed = frozenset(id_ for id_ in partition.replicas if liveness.has_offline(id_, topic.topic_id, index))
    working = Present(present.there - failed, present.usable - failed, present.resting)
    return settled(partition, working, rules, back)


def settled(old: PartitionImage, present: Present, rules: Rules, back: Returned = NOBODY) -> PartitionImage:
    """The partition as it has to be, with new epochs if that differs from what it is."""
    if old.is_damaged:  # rule 6
        is_gone = old.leader not in present.there or old.leader in back.restarted
        return old._replace(leader=NO_LEADER) if is_gone else old
    if old.partition_epoch == MISSING_EPOCH:
        return first_state(old, present)
    new = chosen(without_lost(old, back.lost), present, rules)
    is_new_leader = new.leader != old.leader or (old.leader in back.restarted and new.leader != NO_LEADER)
    if not is_new_leader and new == old:
        return old
    return new._replace(
        leader_epoch=old.leader_epoch + 1 if is_new_leader else old.leader_epoch,
        partition_epoch=old.partition_epoch + 1,
    )


def first_state(old: PartitionImage, present: Present) -> PartitionImage:
    """The topic was created, but nobody lived to create the state of this partition; who is there is in sync."""
    isr = tuple(broker for broker in old.replicas if broker in present.usable)
    if not isr:
        return old
    leader = next((broker for broker in isr if broker not in present.resting), isr[0])
    return old._replace(leader=leader, leader_epoch=old.leader_epoch + 1, isr=isr, partition_epoch=0)


def chosen(old: PartitionImage, present: Present, rules: Rules) -> PartitionImage:
    """Who leads and who is in sync; epochs are as they were."""
    isr = (
        tuple(broker for broker in old.isr if broker in present.usable)
        or tuple(broker for broker in old.isr if broker in present.there)
        or old.isr
    )
    kept = with_isr(old, isr, rules)
    rested = first_of(old.replicas, isr, present.usable - present.resting)
    if old.leader in isr and old.leader in present.there:
        is_relieved = old.leader in present.resting and rested != NO_LEADER
        return kept._replace(leader=rested) if is_relieved else kept
    leader = rested if rested != NO_LEADER else first_of(old.replicas, isr, present.there)
    if leader != NO_LEADER:
        return kept._replace(leader=leader)
    leader = first_of(old.replicas, old.eligible, present.usable)
    if leader != NO_LEADER:
        return with_isr(old, (leader,), rules)._replace(leader=leader)
    if not old.isr and not old.eligible and old.last_known_eligible[:1] and old.last_known_eligible[0] in present.there:
        leader = old.last_known_eligible[0]
        return old._replace(leader=leader, isr=(leader,), last_known_eligible=())
    if rules.unclean_leader_election:
        leader = first_of(old.replicas, old.replicas, present.usable)
        if leader != NO_LEADER:
            return old._replace(
                leader=leader,
                isr=(leader,),
                leader_recovery_state=RECOVERING,
                eligible=(),
                last_known_eligible=(),
            )
    return old._replace(leader=NO_LEADER)


def first_of(replicas: Iterable[int], among: Iterable[int], there: frozenset[int]) -> int:
    wanted = frozenset(among) & there
    return next((broker for broker in replicas if broker in wanted), NO_LEADER)
