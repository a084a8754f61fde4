"""Preferred and unclean elections, and the leader rebalance."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.unit.controller.controller_harness import ControllerHarness, broker

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.controller.decisions.elect_leaders import ElectionType, decide_elections
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, ElectionRules
from ottla.controller.decisions.leader_rebalance import decide_leader_rebalance
from ottla.controller.decisions.topic_changes import NewTopic, TopicDefaults
from ottla.controller.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage

PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN
GOOD = PartitionImage(leader=1, leader_epoch=3, isr=(1, 2, 3), replicas=(1, 2, 3), partition_epoch=5)
STRAYED = GOOD._replace(leader=2)
HEADLESS = PartitionImage(leader=NO_LEADER, leader_epoch=3, isr=(3,), replicas=(1, 2, 3), partition_epoch=5)


def image_of(*partitions: PartitionImage, alive: tuple[int, ...] = (1, 2, 3)) -> MetadataImage:
    topic = TopicImage("orders", UUID(int=1), partitions)
    return MetadataImage(
        brokers={number: broker(number) for number in alive}, topics={"orders": topic}, topic_configs={"orders": {}}
    )


def elect(image: MetadataImage, kind: ElectionType, *numbers: int) -> tuple[list[Error], tuple[PartitionImage, ...]]:
    names = [TopicPartition("orders", number) for number in numbers] if numbers else None
    decision = decide_elections(image, kind, names, BrokerAvailability(), ElectionRules(2))
    return [result.error for result in decision.reply], decision.image.topics["orders"].partitions


def test_the_preferred_replica_leads_under_a_new_epoch() -> None:
    errors, (after,) = elect(image_of(STRAYED), PREFERRED, 0)
    assert errors == [Error.NONE]
    assert after == STRAYED._replace(leader=1, leader_epoch=4, partition_epoch=6)


@pytest.mark.parametrize(
    ("partition", "alive", "error"),
    [
        (GOOD, (1, 2, 3), Error.ELECTION_NOT_NEEDED),
        (GOOD, (2, 3), Error.PREFERRED_LEADER_NOT_AVAILABLE),
        (STRAYED, (2, 3), Error.PREFERRED_LEADER_NOT_AVAILABLE),
        (STRAYED._replace(isr=(2, 3)), (1, 2, 3), Error.PREFERRED_LEADER_NOT_AVAILABLE),
        (
            STRAYED._replace(replicas=(4, 1, 2, 3), adding_replicas=(4,)),
            (1, 2, 3, 4),
            Error.PREFERRED_LEADER_NOT_AVAILABLE,
        ),
    ],
)
def test_when_the_preferred_replica_cannot_lead(
    partition: PartitionImage, alive: tuple[int, ...], error: Error
) -> None:
    errors, (after,) = elect(image_of(partition, alive=alive), PREFERRED, 0)
    assert (errors, after) == ([error], partition)


def test_reply_for_all_partitions_has_only_those_that_needed_an_election() -> None:
    image = image_of(GOOD, STRAYED, STRAYED._replace(isr=(2, 3)))
    decision = decide_elections(image, PREFERRED, None, BrokerAvailability(), ElectionRules())
    assert [(result.partition.partition, result.error) for result in decision.reply] == [
        (1, Error.NONE),
        (2, Error.PREFERRED_LEADER_NOT_AVAILABLE),
    ]
    assert len(decision.operations) == 1


def test_unknown_partitions_are_reported() -> None:
    wanted = [TopicPartition("orders", 7), TopicPartition("none", 0)]
    results = decide_elections(image_of(GOOD), PREFERRED, wanted, BrokerAvailability(), ElectionRules()).reply
    assert [result.error for result in results] == [Error.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert [result.message for result in results] == ["No such partition as orders-7", "No such topic as none"]


def test_unclean_election_elects_the_first_live_replica_and_clears_isr_and_elr() -> None:
    short = HEADLESS._replace(isr=(9,), elr=(8,), last_known_elr=(7,))
    errors, (after,) = elect(image_of(short, alive=(2, 3)), UNCLEAN, 0)
    assert errors == [Error.NONE]
    assert (after.leader, after.isr, after.leader_epoch) == (2, (2,), 4)
    assert (after.leader_recovery_state, after.elr, after.last_known_elr) == (1, (), ())


def test_unclean_election_prefers_replicas_with_all_records() -> None:
    _, (in_sync,) = elect(image_of(HEADLESS), UNCLEAN, 0)
    assert (in_sync.leader, in_sync.isr, in_sync.leader_recovery_state) == (3, (3,), 0)
    _, (eligible,) = elect(image_of(HEADLESS._replace(isr=(), elr=(3, 2))), UNCLEAN, 0)
    assert (eligible.leader, eligible.isr, eligible.elr, eligible.leader_recovery_state) == (2, (2,), (3,), 0)


def test_when_an_unclean_election_is_not_needed_or_not_possible() -> None:
    assert elect(image_of(STRAYED), UNCLEAN, 0)[0] == [Error.ELECTION_NOT_NEEDED]
    assert elect(image_of(HEADLESS, alive=()), UNCLEAN, 0)[0] == [Error.ELIGIBLE_LEADERS_NOT_AVAILABLE]


def test_a_leader_that_died_unnoticed_is_no_leader() -> None:
    errors, (after,) = elect(image_of(GOOD, alive=(2, 3)), UNCLEAN, 0)
    assert (errors, after.leader, after.isr) == ([Error.NONE], 2, (1, 2, 3))


# ---- by the clock


def test_balance_is_restored_where_too_many_have_strayed() -> None:
    decision = decide_leader_rebalance(image_of(*[STRAYED] * 2, *[GOOD] * 8), 10, BrokerAvailability())
    assert decision.reply == 2
    assert [partition.leader for partition in decision.image.topics["orders"].partitions] == [1] * 10


def test_small_imbalance_changes_nothing() -> None:
    image = image_of(STRAYED, *[GOOD] * 9)
    assert decide_leader_rebalance(image, 10, BrokerAvailability()).operations == ()
    assert decide_leader_rebalance(image, 9, BrokerAvailability()).reply == 1


def test_leadership_returns_only_to_preferred_replicas_in_sync_without_reassignment() -> None:
    behind = STRAYED._replace(isr=(2, 3))
    moving = STRAYED._replace(replicas=(1, 2, 3, 4), removing_replicas=(4,))
    decision = decide_leader_rebalance(image_of(STRAYED, behind, moving), 10, BrokerAvailability())
    assert [partition.leader for partition in decision.image.topics["orders"].partitions] == [1, 2, 2]


def test_leadership_does_not_return_to_a_dead_broker() -> None:
    assert decide_leader_rebalance(image_of(STRAYED, alive=(2, 3)), 10, BrokerAvailability()).operations == ()


def test_new_controller_loads_the_result_of_an_election() -> None:
    stand = ControllerHarness(brokers=3, defaults=TopicDefaults(6, 3))
    stand.create(NewTopic("orders"))
    topic = stand.image.topics["orders"]
    reversed_rows = tuple(p._replace(leader=p.replicas[-1]) for p in topic.partitions)
    strayed = stand.image.with_topics([topic._replace(partitions=reversed_rows)])
    decision = decide_elections(strayed, PREFERRED, None, BrokerAvailability(), ElectionRules())
    assert len(decision.reply) == 6
    stand.run(decision)
    assert all(p.leader == p.replicas[0] for p in stand.image.topics["orders"].partitions)


def test_leadership_does_not_return_to_a_broker_that_shuts_down() -> None:
    assert decide_leader_rebalance(image_of(STRAYED), 10, BrokerAvailability(frozenset({1}))).operations == ()
