"""Leaders by request and by the clock."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.controller.decisions.liveness import Liveness, Rules
from ottla.controller.decisions.machine import NewTopic, TopicDefaults
from ottla.controller.decisions.preferred import ElectionType, decide_balance, decide_elections
from ottla.controller.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from unit.controller.stand import Stand, broker

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
    decision = decide_elections(image, kind, names, Liveness(), Rules(2))
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


def test_of_all_partitions_only_those_are_told_that_needed_an_election() -> None:
    image = image_of(GOOD, STRAYED, STRAYED._replace(isr=(2, 3)))
    decision = decide_elections(image, PREFERRED, None, Liveness(), Rules())
    assert [(result.partition.partition, result.error) for result in decision.reply] == [
        (1, Error.NONE),
        (2, Error.PREFERRED_LEADER_NOT_AVAILABLE),
    ]
    assert len(decision.operations) == 1


def test_what_does_not_exist_is_told() -> None:
    wanted = [TopicPartition("orders", 7), TopicPartition("none", 0)]
    results = decide_elections(image_of(GOOD), PREFERRED, wanted, Liveness(), Rules()).reply
    assert [result.error for result in results] == [Error.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert [result.message for result in results] == ["No such partition as orders-7", "No such topic as none"]


def test_an_unclean_election_takes_the_first_replica_that_lives_and_forgets_the_others() -> None:
    short = HEADLESS._replace(isr=(9,), eligible=(8,), last_known_eligible=(7,))
    errors, (after,) = elect(image_of(short, alive=(2, 3)), UNCLEAN, 0)
    assert errors == [Error.NONE]
    assert (after.leader, after.isr, after.leader_epoch) == (2, (2,), 4)
    assert (after.leader_recovery_state, after.eligible, after.last_known_eligible) == (1, (), ())


def test_an_unclean_election_prefers_whoever_has_everything() -> None:
    _, (in_sync,) = elect(image_of(HEADLESS), UNCLEAN, 0)
    assert (in_sync.leader, in_sync.isr, in_sync.leader_recovery_state) == (3, (3,), 0)
    _, (eligible,) = elect(image_of(HEADLESS._replace(isr=(), eligible=(3, 2))), UNCLEAN, 0)
    assert (eligible.leader, eligible.isr, eligible.eligible, eligible.leader_recovery_state) == (2, (2,), (3,), 0)


def test_when_an_unclean_election_is_not_needed_or_not_possible() -> None:
    assert elect(image_of(STRAYED), UNCLEAN, 0)[0] == [Error.ELECTION_NOT_NEEDED]
    assert elect(image_of(HEADLESS, alive=()), UNCLEAN, 0)[0] == [Error.ELIGIBLE_LEADERS_NOT_AVAILABLE]


def test_a_leader_that_died_unnoticed_is_no_leader() -> None:
    errors, (after,) = elect(image_of(GOOD, alive=(2, 3)), UNCLEAN, 0)
    assert (errors, after.leader, after.isr) == ([Error.NONE], 2, (1, 2, 3))


# ---- by the clock


def test_balance_is_restored_where_too_many_have_strayed() -> None:
    decision = decide_balance(image_of(*[STRAYED] * 2, *[GOOD] * 8), 10, Liveness())
    assert decision.reply == 2
    assert [partition.leader for partition in decision.image.topics["orders"].partitions] == [1] * 10


def test_a_few_that_have_strayed_are_left_alone() -> None:
    image = image_of(STRAYED, *[GOOD] * 9)
    assert decide_balance(image, 10, Liveness()).operations == ()
    assert decide_balance(image, 9, Liveness()).reply == 1


def test_only_partitions_whose_preferred_replica_is_in_sync_and_at_rest_go_back() -> None:
    behind = STRAYED._replace(isr=(2, 3))
    moving = STRAYED._replace(replicas=(1, 2, 3, 4), removing_replicas=(4,))
    decision = decide_balance(image_of(STRAYED, behind, moving), 10, Liveness())
    assert [partition.leader for partition in decision.image.topics["orders"].partitions] == [1, 2, 2]


def test_nothing_goes_back_to_a_broker_that_is_down() -> None:
    assert decide_balance(image_of(STRAYED, alive=(2, 3)), 10, Liveness()).operations == ()


def test_an_election_is_what_a_new_controller_loads() -> None:
    stand = Stand(brokers=3, defaults=TopicDefaults(6, 3))
    stand.create(NewTopic("orders"))
    topic = stand.image.topics["orders"]
    reversed_rows = tuple(p._replace(leader=p.replicas[-1]) for p in topic.partitions)
    strayed = stand.image.with_topics([topic._replace(partitions=reversed_rows)])
    decision = decide_elections(strayed, PREFERRED, None, Liveness(), Rules())
    assert len(decision.reply) == 6
    stand.run(decision)
    assert all(p.leader == p.replicas[0] for p in stand.image.topics["orders"].partitions)


def test_nothing_goes_back_to_a_broker_that_is_about_to_stop() -> None:
    assert decide_balance(image_of(STRAYED), 10, Liveness(frozenset({1}))).operations == ()
