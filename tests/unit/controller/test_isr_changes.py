"""AlterPartition: accepted ISRs and refused proposals."""

from typing import Any
from uuid import UUID

import pytest
from tests.unit.controller.controller_harness import ControllerHarness, broker

from ottla.base.errors import Error, KafkaError
from ottla.controller.decisions.isr_changes import ANY_BROKER_EPOCH, IsrChange, IsrChangeResult, decide_alter_partitions
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, ElectionRules
from ottla.controller.decisions.topic_changes import NewTopic
from ottla.controller.image import PartitionImage

RULES = ElectionRules(min_insync_replicas=2)


def stand_with(isr: tuple[int, ...] = (1, 2, 3)) -> ControllerHarness:
    """Brokers 1 to 3 with epochs 10 to 30; topic a, led by 1."""
    stand = ControllerHarness(brokers=3)
    stand.image = stand.image.with_brokers({n: broker(n)._replace(epoch=10 * n) for n in isr})
    stand.create(NewTopic("a", assignments=((0, isr), (1, isr))))
    stand.image = stand.image.with_brokers({n: broker(n)._replace(epoch=10 * n) for n in (1, 2, 3)})
    return stand


def change(stand: ControllerHarness, *isr: int, **fields: Any) -> IsrChange:
    epochs = tuple((member, 10 * member) for member in isr)
    return IsrChange(stand.image.topics["a"].topic_id, 0, 0, 0, epochs)._replace(**fields)


def propose(
    stand: ControllerHarness, *changes: IsrChange, by: int = 1, liveness: BrokerAvailability | None = None
) -> list[IsrChangeResult]:
    return stand.run(
        decide_alter_partitions(stand.image, by, 10 * by, changes, liveness or BrokerAvailability(), RULES)
    )


def error_of(stand: ControllerHarness, wanted: IsrChange, by: int = 1) -> Error:
    before = stand.image
    (answer,) = propose(stand, wanted, by=by)
    assert stand.image is before
    return answer.error


def test_a_smaller_isr_is_taken_over_and_raises_the_partition_epoch_only() -> None:
    stand = stand_with()
    (answer,) = propose(stand, change(stand, 1, 2))
    assert answer.partition == PartitionImage(1, 0, (1, 2), (1, 2, 3), 1)
    assert stand.image.partition("a", 0) == answer.partition


def test_replica_that_leaves_a_small_isr_is_eligible_until_the_isr_has_grown() -> None:
    stand = stand_with()
    propose(stand, change(stand, 1))
    assert stand.image.partition("a", 0) == PartitionImage(1, 0, (1,), (1, 2, 3), 1, elr=(2, 3))
    propose(stand, change(stand, 1, 3, partition_epoch=1))
    assert stand.image.partition("a", 0) == PartitionImage(1, 0, (1, 3), (1, 2, 3), 2)


def test_proposal_of_the_current_isr_changes_nothing_and_is_answered() -> None:
    stand = stand_with()
    before = stand.image
    (answer,) = propose(stand, change(stand, 3, 2, 1))
    assert answer == (change(stand, 3, 2, 1), Error.NONE, before.partition("a", 0))
    assert stand.image is before


def test_two_partitions_of_one_topic_in_one_request() -> None:
    stand = stand_with()
    answers = propose(stand, change(stand, 1, 2), change(stand, 1, 3, partition=1))
    assert [answer.error for answer in answers] == [Error.NONE, Error.NONE]
    assert [each.isr for each in stand.image.topics["a"].partitions] == [(1, 2), (1, 3)]


def test_a_partition_that_is_named_twice_changes_once() -> None:
    stand = stand_with()
    answers = propose(stand, change(stand, 1, 2), change(stand, 1))
    assert [answer.error for answer in answers] == [Error.NONE, Error.INVALID_REQUEST]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"topic_id": UUID(int=99)}, Error.UNKNOWN_TOPIC_ID),
        ({"partition": 2}, Error.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, Error.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 1}, Error.NOT_CONTROLLER),
        ({"partition_epoch": 1}, Error.NOT_CONTROLLER),
        ({"leader_epoch": -1}, Error.FENCED_LEADER_EPOCH),
        ({"partition_epoch": -1}, Error.INVALID_UPDATE_VERSION),
        ({"isr": ((2, 20),)}, Error.INVALID_REQUEST),  # without the leader
        ({"isr": ((1, 10), (4, 40))}, Error.INVALID_REQUEST),  # no replica
        ({"isr": ((1, 10), (1, 10))}, Error.INVALID_REQUEST),
        ({"isr": ()}, Error.INVALID_REQUEST),
        ({"leader_recovery_state": 1}, Error.INVALID_REQUEST),
    ],
)
def test_what_is_refused(fields: dict[str, Any], error: Error) -> None:
    stand = stand_with()
    assert error_of(stand, change(stand, 1, 2, **fields)) is error


def test_only_the_leader_proposes() -> None:
    stand = stand_with()
    assert error_of(stand, change(stand, 1, 2), by=2) is Error.INVALID_REQUEST


@pytest.mark.parametrize("known", [{}, {1: broker(1)._replace(epoch=11)}])
def test_request_with_an_old_broker_epoch_is_refused_completely(known: Any) -> None:
    stand = stand_with()
    with pytest.raises(KafkaError) as caught:
        decide_alter_partitions(stand.image.with_brokers(known), 1, 10, [change(stand, 1)], BrokerAvailability(), RULES)
    assert caught.value.error is Error.STALE_BROKER_EPOCH


def grown(
    isr: tuple[tuple[int, int], ...], liveness: BrokerAvailability | None = None, dead: int | None = None
) -> IsrChangeResult:
    """The result of a proposal when only broker 1 is in sync."""
    stand = stand_with()
    propose(stand, change(stand, 1))
    if dead is not None:
        stand.image = stand.image.with_brokers({n: b for n, b in stand.image.brokers.items() if n != dead})
    (answer,) = propose(stand, change(stand, isr=isr, partition_epoch=1), liveness=liveness)
    return answer


def test_a_replica_that_must_not_be_in_sync_is_refused() -> None:
    assert grown(((1, 10), (2, 20)), dead=2).error is Error.INELIGIBLE_REPLICA
    assert grown(((1, 10), (2, 19))).error is Error.INELIGIBLE_REPLICA, "it was restarted since"
    assert grown(((1, 10), (2, 20)), BrokerAvailability(frozenset({2}))).error is Error.INELIGIBLE_REPLICA
    assert grown(((1, 10), (2, ANY_BROKER_EPOCH))).error is Error.NONE


def test_a_replica_in_a_failed_folder_is_refused() -> None:
    topic_id = stand_with().image.topics["a"].topic_id
    failed = BrokerAvailability(offline_replicas={2: frozenset({(topic_id, 0)})})
    assert grown(((1, 10), (2, 20)), failed).error is Error.INELIGIBLE_REPLICA
    elsewhere = BrokerAvailability(offline_replicas={2: frozenset({(topic_id, 1)})})
    assert grown(((1, 10), (2, 20)), elsewhere).error is Error.NONE


def test_dead_replica_does_not_keep_a_live_one_out_of_the_isr() -> None:
    answer = grown(((1, 10), (2, 20), (3, 30)), dead=2)
    assert answer.error is Error.NONE
    assert answer.partition is not None
    assert answer.partition.isr == (1, 3)


def test_leader_reports_its_recovery() -> None:
    stand = stand_with()
    topic = stand.image.topics["a"]
    recovering = topic.partitions[0]._replace(isr=(1,), leader_recovery_state=1)
    image = stand.image.with_topics([topic._replace(partitions=(recovering, topic.partitions[1]))])
    still = change(stand, 1, 2, leader_recovery_state=1)
    assert (
        decide_alter_partitions(image, 1, 10, [still], BrokerAvailability(), RULES).reply[0].error
        is Error.INVALID_REQUEST
    )
    over = change(stand, 1, leader_recovery_state=0)
    answer = decide_alter_partitions(image, 1, 10, [over], BrokerAvailability(), RULES).reply[0]
    assert answer.partition is not None
    assert (answer.partition.leader_recovery_state, answer.partition.partition_epoch) == (0, 1)
