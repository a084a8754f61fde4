"""Reassignments: every step, every refusal, and their state in the store."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from tests.unit.controller.controller_harness import ControllerHarness, broker

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, ElectionRules
from ottla.controller.decisions.reassignment import (
    OngoingReassignment,
    ReassignmentRequest,
    complete_if_caught_up,
    decide_completed_reassignments,
    decide_reassignments,
    is_reassigning,
    ongoing_reassignments,
)
from ottla.controller.decisions.topic_changes import NewPartitions, NewTopic, TopicDefaults
from ottla.controller.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from ottla.controller.stores.store import SetNode

ORDERS = TopicPartition("orders", 0)
LAX = ElectionRules()
AT_REST = PartitionImage(leader=1, leader_epoch=4, isr=(1, 2, 3), replicas=(1, 2, 3), partition_epoch=7)


def image_of(*partitions: PartitionImage, alive: tuple[int, ...] = (1, 2, 3, 4, 5, 6)) -> MetadataImage:
    topic = TopicImage("orders", UUID(int=1), partitions)
    return MetadataImage(
        brokers={number: broker(number) for number in alive}, topics={"orders": topic}, topic_configs={"orders": {}}
    )


def wish(*replicas: int) -> ReassignmentRequest:
    return ReassignmentRequest(ORDERS, replicas)


def ask(image: MetadataImage, *wishes: ReassignmentRequest, rules: ElectionRules = LAX) -> MetadataImage:
    """The decision for requests that are all accepted."""
    decision = decide_reassignments(image, wishes, BrokerAvailability(), rules)
    assert [result.error for result in decision.reply] == [Error.NONE] * len(wishes)
    return decision.image


def refusal(
    image: MetadataImage, asked: ReassignmentRequest, *, may_change_factor: bool = True, rules: ElectionRules = LAX
) -> tuple[Error, str | None]:
    decision = decide_reassignments(image, [asked], BrokerAvailability(), rules, may_change_factor=may_change_factor)
    assert decision.operations == ()
    (result,) = decision.reply
    assert result.error is not Error.NONE
    return result.error, result.message


def first(image: MetadataImage) -> PartitionImage:
    return image.topics["orders"].partitions[0]


def with_isr(image: MetadataImage, *isr: int) -> MetadataImage:
    """Change the ISR, as the leader does."""
    topic = image.topics["orders"]
    changed = first(image)._replace(isr=isr, partition_epoch=first(image).partition_epoch + 1)
    return image.with_topics([topic._replace(partitions=(changed, *topic.partitions[1:]))])


def step(image: MetadataImage, min_isr: int = 1) -> tuple[MetadataImage, int]:
    decision = decide_completed_reassignments(image, ["orders"], BrokerAvailability(), ElectionRules(min_isr))
    return decision.image, decision.reply


def test_a_wish_adds_replicas_and_keeps_the_old_ones_behind_the_target() -> None:
    moving = first(ask(image_of(AT_REST), wish(4, 2, 5)))
    assert moving.replicas == (4, 2, 5, 1, 3)
    assert (moving.adding_replicas, moving.removing_replicas) == ((4, 5), (1, 3))
    assert (moving.leader, moving.isr, moving.leader_epoch) == (1, (1, 2, 3), 4)
    assert moving.partition_epoch == 8


def test_the_switch_waits_until_everything_that_is_added_is_in_sync() -> None:
    image = ask(image_of(AT_REST), wish(4, 2, 5))
    assert step(image)[1] == 0
    half = with_isr(image, 1, 2, 3, 5)
    assert step(half)[1] == 0
    done, count = step(with_isr(half, 1, 2, 3, 5, 4))
    assert count == 1
    after = first(done)
    assert (after.replicas, after.isr) == ((4, 2, 5), (2, 5, 4))
    assert (after.adding_replicas, after.removing_replicas) == ((), ())
    assert (after.leader, after.leader_epoch) == (4, 5), "the old leader goes, the first of the target leads"


def test_unchanged_leader_gets_a_new_epoch() -> None:
    done, _ = step(with_isr(ask(image_of(AT_REST), wish(4, 1)), 1, 2, 3, 4))
    assert (first(done).leader, first(done).leader_epoch, first(done).replicas) == (1, 5, (4, 1))


def test_fewer_replicas_need_no_copying_and_are_there_at_once() -> None:
    after = first(ask(image_of(AT_REST), wish(2, 1)))
    assert (after.replicas, after.isr, after.leader, after.leader_epoch) == ((2, 1), (1, 2), 1, 5)
    assert not is_reassigning(after)


def test_another_order_is_written_at_once_and_changes_nothing_else() -> None:
    after = first(ask(image_of(AT_REST), wish(3, 1, 2)))
    assert after == AT_REST._replace(replicas=(3, 1, 2), partition_epoch=8)


def test_request_of_the_current_replicas_writes_nothing() -> None:
    decision = decide_reassignments(image_of(AT_REST), [wish(1, 2, 3)], BrokerAvailability(), LAX)
    assert (decision.operations, decision.reply[0].error) == ((), Error.NONE)


def test_completion_keeps_enough_replicas_in_sync_for_writers() -> None:
    """2 and 3 are down: with only 4 in sync, acks=all would be refused, though 1 and 4 together are enough."""
    image = with_isr(ask(image_of(AT_REST), wish(4, 2, 3)), 1, 4)
    assert step(image, min_isr=2)[1] == 0
    assert step(image, min_isr=1)[1] == 1
    assert step(with_isr(image, 1, 4, 2), min_isr=2)[1] == 1


def test_a_topic_that_shall_have_fewer_replicas_than_writers_need_gets_them() -> None:
    assert first(ask(image_of(AT_REST), wish(2), rules=ElectionRules(2))).replicas == (2,)


def test_the_switch_waits_for_a_leader_that_is_alive() -> None:
    image = with_isr(ask(image_of(AT_REST), wish(4)), 1, 2, 3, 4)
    gone = image.with_brokers({number: broker(number) for number in (1, 2, 3)})
    assert step(gone)[1] == 0
    assert first(step(gone.with_brokers(image.brokers))[0]).leader == 4


def test_new_request_removes_replicas_added_for_the_old_target() -> None:
    image = with_isr(ask(image_of(AT_REST), wish(4, 5, 6)), 1, 2, 3, 4)
    after = first(ask(image, wish(1, 2, 6)))
    assert (after.replicas, after.adding_replicas, after.removing_replicas) == ((1, 2, 6, 3), (6,), (3,))
    assert (after.isr, after.leader_epoch) == ((1, 2, 3), 5)


def test_second_request_can_be_complete_already() -> None:
    """Broker 4 was added for the first request and has caught up, so the second one is complete."""
    image = with_isr(ask(image_of(AT_REST), wish(4, 5, 6)), 1, 2, 3, 4)
    after = first(ask(image, wish(4, 1)))
    assert (after.replicas, after.isr) == ((4, 1), (1, 4))
    assert not is_reassigning(after)


def test_cancellation_restores_the_old_replicas() -> None:
    image = with_isr(ask(image_of(AT_REST), wish(4, 2, 5)), 1, 2, 3, 4)
    after = first(ask(image, ReassignmentRequest(ORDERS, None)))
    assert after.replicas == (2, 1, 3), "as Kafka: the part of the target that was there stays in front"
    assert (after.isr, after.leader, after.leader_epoch) == ((1, 2, 3), 1, 5)
    assert not is_reassigning(after)


def test_cancellation_moves_the_leader_from_a_removed_replica() -> None:
    image = with_isr(ask(image_of(AT_REST), wish(4, 2, 5)), 2, 3, 4)
    topic = image.topics["orders"]
    led = image.with_topics([topic._replace(partitions=(first(image)._replace(leader=4),))])
    after = first(ask(led, ReassignmentRequest(ORDERS, None)))
    assert (after.leader, after.isr) == (2, (2, 3))


def test_cancellation_without_a_replica_in_sync_is_refused_unless_unclean_elections_are_enabled() -> None:
    image = with_isr(ask(image_of(AT_REST), wish(4, 2, 5)), 4)
    error, message = refusal(image, ReassignmentRequest(ORDERS, None))
    assert error is Error.INVALID_REPLICA_ASSIGNMENT
    assert message == (
        "Unable to revert partition assignment for orders:0 because it would require an unclean leader election."
    )
    after = first(ask(image, ReassignmentRequest(ORDERS, None), rules=ElectionRules(1, unclean_leader_election=True)))
    assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), 1)


def test_cancelling_a_removal_that_waits() -> None:
    waiting = AT_REST._replace(isr=(1,), replicas=(2, 3, 1), removing_replicas=(1,))
    after = first(ask(image_of(waiting), ReassignmentRequest(ORDERS, None)))
    assert after == waiting._replace(removing_replicas=(), partition_epoch=8)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (ReassignmentRequest(ORDERS, None), (Error.NO_REASSIGNMENT_IN_PROGRESS, None)),
        (
            ReassignmentRequest(TopicPartition("none", 0), (1,)),
            (Error.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named none."),
        ),
        (
            ReassignmentRequest(TopicPartition("orders", 9), (1,)),
            (Error.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition orders:9."),
        ),
        (
            wish(),
            (
                Error.INVALID_REPLICA_ASSIGNMENT,
                "The manual partition assignment includes an empty replica list.",
            ),
        ),
        (
            wish(1, 9),
            (
                Error.INVALID_REPLICA_ASSIGNMENT,
                "The manual partition assignment includes broker 9, but no such broker is registered.",
            ),
        ),
        (
            wish(2, 1, 2),
            (
                Error.INVALID_REPLICA_ASSIGNMENT,
                "The manual partition assignment includes the broker 2 more than once.",
            ),
        ),
    ],
)
def test_refusals(asked: ReassignmentRequest, expected: tuple[Error, str | None]) -> None:
    assert refusal(image_of(AT_REST), asked) == expected


def test_the_number_of_replicas_can_be_held() -> None:
    error = (Error.INVALID_REPLICATION_FACTOR, "The replication factor is changed from 3 to 2")
    assert refusal(image_of(AT_REST), wish(4, 5), may_change_factor=False) == error
    moving = ask(image_of(AT_REST), wish(4, 5, 6))
    assert refusal(moving, wish(4, 5), may_change_factor=False) == error


def test_dead_broker_keeps_its_replicas_and_gets_no_new_ones() -> None:
    image = image_of(AT_REST._replace(isr=(1, 2)), alive=(1, 2, 4))
    assert first(ask(image, wish(4, 2, 3))).adding_replicas == (4,)
    assert refusal(image, wish(5, 2, 3))[0] is Error.INVALID_REPLICA_ASSIGNMENT


def test_one_refusal_does_not_stop_the_others() -> None:
    image = image_of(AT_REST, AT_REST)
    decision = decide_reassignments(
        image, [wish(9), ReassignmentRequest(TopicPartition("orders", 1), (4, 1))], BrokerAvailability(), LAX
    )
    assert [result.error for result in decision.reply] == [Error.INVALID_REPLICA_ASSIGNMENT, Error.NONE]
    assert decision.image.topics["orders"].partitions[0] == AT_REST
    assert [operation.path for operation in decision.operations] == [
        "/brokers/topics/orders",
        "/brokers/topics/orders/partitions/1/state",
    ]
    state = decision.operations[1]
    assert isinstance(state, SetNode)
    assert state.expected_version == 7


def test_moves_are_listed() -> None:
    image = ask(image_of(AT_REST, AT_REST), wish(4, 2, 5))
    (move,) = ongoing_reassignments(image)
    assert move == OngoingReassignment(ORDERS, (4, 2, 5, 1, 3), (4, 5), (1, 3))
    assert move.target == (4, 2, 5)
    assert list(ongoing_reassignments(image, ["orders", "unknown"])) == [move]


def test_removed_replicas_leave_the_elr() -> None:
    short = AT_REST._replace(isr=(1,), elr=(2, 3), last_known_elr=(3,))
    after = first(ask(image_of(short), wish(1, 2), rules=ElectionRules(2)))
    assert (after.elr, after.last_known_elr) == ((2,), ())


def test_new_controller_loads_every_step() -> None:
    stand = ControllerHarness(brokers=4, defaults=TopicDefaults(2, 3))
    stand.create(NewTopic("orders"))
    target = (4, *stand.image.topics["orders"].partitions[0].replicas[:2])
    ids = {1, 2, 3, 4} - set(stand.image.topics["orders"].partitions[0].replicas)
    target = (ids.pop(), *stand.image.topics["orders"].partitions[0].replicas[:2])
    stand.run(decide_reassignments(stand.image, [wish(*target)], BrokerAvailability(), LAX))
    assert [move.target for move in ongoing_reassignments(stand.image)] == [target]
    stand.grow(NewPartitions("orders", 3))
    assert len(stand.image.topics["orders"].partitions[2].replicas) == 3, "new partitions get the factor of the target"
    stand.run(decide_reassignments(stand.image, [ReassignmentRequest(ORDERS, None)], BrokerAvailability(), LAX))
    assert list(ongoing_reassignments(stand.image)) == []


def test_no_sequence_of_requests_and_failures_loses_the_last_replica_in_sync() -> None:
    """Random requests, ISR changes and failures: replicas in sync after a step were in sync before it."""
    for seed in range(300):
        chance = random.Random(seed)
        image = image_of(AT_REST)
        for _ in range(30):
            before = first(image)
            match chance.randrange(4):
                case 0:
                    target = tuple(chance.sample(range(1, 7), chance.randrange(1, 5)))
                    image = decide_reassignments(image, [wish(*target)], BrokerAvailability(), ElectionRules(2)).image
                case 1:
                    image = decide_reassignments(
                        image, [ReassignmentRequest(ORDERS, None)], BrokerAvailability(), ElectionRules(2)
                    ).image
                case 2:
                    image = step(image, min_isr=2)[0]
                case 3:
                    others = [replica for replica in before.replicas if replica != before.leader]
                    isr = (before.leader, *chance.sample(others, chance.randrange(len(others) + 1)))
                    image = with_isr(image, *isr)
                    continue
            after = first(image)
            assert after.isr, seed
            assert set(after.isr) <= set(before.isr), seed
            assert set(after.isr) <= set(after.replicas), seed
            assert len(set(after.replicas)) == len(after.replicas), seed
            assert after.leader in after.isr, seed
            assert set(after.adding_replicas) | set(after.removing_replicas) <= set(after.replicas), seed
            assert not set(after.adding_replicas) & set(after.removing_replicas), seed
            if set(before.replicas) - set(after.replicas) or after.leader != before.leader:
                assert after.leader_epoch > before.leader_epoch, seed


def test_a_partition_without_a_leader_is_switched_over_without_one() -> None:
    dead = AT_REST._replace(leader=NO_LEADER, isr=(9,), replicas=(9, 1), removing_replicas=(1,))
    assert complete_if_caught_up(dead, {1}, LAX) == dead._replace(
        leader=NO_LEADER, leader_epoch=5, replicas=(9,), removing_replicas=()
    )


def test_broker_that_shuts_down_or_lost_the_directory_does_not_become_leader() -> None:
    image = with_isr(ask(image_of(AT_REST), wish(4, 5, 6)), 1, 2, 3, 4, 5, 6)
    liveness = BrokerAvailability(frozenset({4}), {5: frozenset({(UUID(int=1), 0)})})
    decision = decide_completed_reassignments(image, ["orders"], liveness, LAX)
    assert first(decision.image).leader == 6
