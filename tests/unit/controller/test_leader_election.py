"""Leader election when brokers start, stop, restart, shut down or lose a log directory."""

from tests.unit.controller.controller_harness import ControllerHarness, broker

from ottla.base.names import TopicPartition
from ottla.controller.decisions.broker_epochs import RestartedBrokers
from ottla.controller.decisions.leader_election import (
    AvailableReplicas,
    decide_broker_changes,
    decide_controlled_shutdown,
    decide_election,
    elect_partition,
)
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, ElectionRules, topic_rules, with_isr
from ottla.controller.decisions.topic_changes import NewTopic
from ottla.controller.image import MetadataImage, PartitionImage

SAFE = ElectionRules(min_insync_replicas=2)
UNCLEAN = ElectionRules(min_insync_replicas=2, unclean_leader_election=True)


def present(*brokers: int, leaving: tuple[int, ...] = ()) -> AvailableReplicas:
    there = frozenset(brokers)
    return AvailableReplicas(there, there - frozenset(leaving))


def partition(
    leader: int = 1,
    isr: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[int, ...] = (1, 2, 3),
    eligible: tuple[int, ...] = (),
) -> PartitionImage:
    return PartitionImage(leader, 5, isr, replicas, 10, elr=eligible)


def test_usable_leader_stays_and_nothing_is_written() -> None:
    old = partition()
    assert elect_partition(old, present(1, 2, 3), SAFE) is old


def test_a_dead_leader_is_followed_by_the_first_replica_in_sync() -> None:
    new = elect_partition(partition(replicas=(1, 3, 2), isr=(1, 2, 3)), present(2, 3), SAFE)
    assert (new.leader, new.isr, new.leader_epoch, new.partition_epoch) == (3, (2, 3), 6, 11)


def test_a_replica_that_is_not_in_sync_does_not_lead() -> None:
    new = elect_partition(partition(isr=(1, 3)), present(2, 3), SAFE)
    assert (new.leader, new.isr) == (3, (3,))


def test_a_dead_follower_leaves_the_isr_without_a_new_leader_epoch() -> None:
    new = elect_partition(partition(), present(1, 2), SAFE)
    assert (new.leader, new.isr, new.leader_epoch, new.partition_epoch) == (1, (1, 2), 5, 11)


def test_without_live_replicas_in_sync_there_is_no_leader_and_the_isr_is_kept() -> None:
    new = elect_partition(partition(isr=(1, 2)), present(3), SAFE)
    assert (new.leader, new.isr, new.leader_epoch) == (-1, (1, 2), 6)
    assert elect_partition(new, present(3), SAFE) is new
    back = elect_partition(new, present(2, 3), SAFE)
    assert (back.leader, back.isr, back.leader_epoch) == (2, (2,), 7)


def test_the_last_in_sync_stays_in_the_isr_when_it_dies() -> None:
    alone = elect_partition(partition(), present(1), SAFE)
    dead = elect_partition(alone, present(), SAFE)
    assert (dead.leader, dead.isr) == (-1, (1,))


def test_replica_that_left_a_small_isr_is_eligible_and_may_lead_when_the_isr_is_dead() -> None:
    alone = elect_partition(partition(isr=(1, 2)), present(1, 3), SAFE)
    assert (alone.isr, alone.elr) == ((1,), (2,))
    dead = elect_partition(alone, present(3), SAFE)
    assert (dead.leader, dead.isr, dead.elr) == (-1, (1,), (2,))
    led = elect_partition(dead, present(2, 3), SAFE)
    assert (led.leader, led.isr, led.elr) == (2, (2,), (1,))


def test_the_isr_comes_before_the_eligible() -> None:
    old = partition(leader=-1, isr=(3,), eligible=(1,))
    assert elect_partition(old, present(1, 3), SAFE).leader == 3


def test_an_isr_that_is_large_enough_needs_no_eligible_replicas() -> None:
    assert with_isr(partition(isr=(1,), eligible=(2,)), (1, 3), SAFE).elr == ()
    assert with_isr(partition(isr=(1, 2)), (1,), ElectionRules(1)).elr == ()
    assert with_isr(PartitionImage(1, 0, (1,), (1,)), (1,), ElectionRules(3)).elr == (), (
        "never more than there are replicas"
    )


def test_a_lower_minimum_clears_the_eligible_at_once() -> None:
    new = elect_partition(partition(isr=(1,), eligible=(2,)), present(1, 3), ElectionRules(1))
    assert (new.elr, new.leader_epoch, new.partition_epoch) == ((), 5, 11)


def test_unclean_election_elects_a_live_replica_in_recovery_state() -> None:
    old = partition(isr=(1,), eligible=(2,))
    assert elect_partition(old, present(3), SAFE).leader == -1
    new = elect_partition(old, present(3), UNCLEAN)
    assert (new.leader, new.isr, new.leader_recovery_state, new.elr) == (3, (3,), 1, ())


def test_an_unclean_election_comes_last() -> None:
    assert elect_partition(partition(isr=(1,), eligible=(2,)), present(2, 3), UNCLEAN).leader_recovery_state == 0


def lost(*brokers: int) -> RestartedBrokers:
    return RestartedBrokers(frozenset(brokers), frozenset(brokers))


def test_a_restarted_leader_gives_way_to_a_replica_that_has_not_been_away() -> None:
    new = elect_partition(partition(), present(1, 2, 3), SAFE, lost(1))
    assert (new.leader, new.isr, new.leader_epoch) == (2, (2, 3), 6)


def test_a_restarted_leader_that_is_alone_leads_under_a_new_epoch() -> None:
    old = PartitionImage(1, 5, (1,), (1,), 10)
    new = elect_partition(old, present(1), ElectionRules(), lost(1))
    assert (new.leader, new.isr, new.leader_epoch, new.partition_epoch) == (1, (1,), 6, 11)


def test_a_restarted_follower_leaves_the_isr() -> None:
    new = elect_partition(partition(), present(1, 2, 3), SAFE, lost(2))
    assert (new.leader, new.isr, new.leader_epoch) == (1, (1, 3), 5)


def test_all_restarted_at_once_with_all_their_records_keep_what_they_had() -> None:
    new = elect_partition(partition(leader=2), present(1, 2, 3), SAFE, RestartedBrokers(frozenset({1, 2, 3})))
    assert (new.leader, new.isr, new.leader_epoch) == (2, (1, 2, 3), 6)


def test_when_all_may_have_lost_records_the_last_leader_begins_and_the_others_follow_it() -> None:
    new = elect_partition(partition(leader=2), present(1, 2, 3), SAFE, lost(1, 2, 3))
    assert (new.leader, new.isr, new.leader_epoch) == (2, (2,), 6)


def test_a_wiped_replica_is_not_eligible_though_it_left_a_small_isr() -> None:
    alone = elect_partition(partition(isr=(1, 3)), present(1, 3), SAFE, lost(3))
    assert (alone.leader, alone.isr, alone.elr, alone.last_known_elr) == (1, (1,), (), (3,))
    dead = elect_partition(alone, present(3), SAFE)
    assert (dead.leader, dead.isr) == (-1, (1,))
    assert elect_partition(dead, present(1, 3), SAFE).leader == 1


def test_a_wiped_replica_is_no_longer_eligible() -> None:
    new = elect_partition(partition(isr=(1,), eligible=(2,)), present(2), SAFE, lost(2))
    assert (new.leader, new.isr, new.elr, new.last_known_elr) == (-1, (1,), (), (2,))


def test_an_eligible_replica_is_better_than_an_isr_that_may_have_lost_records() -> None:
    old = partition(isr=(1,), eligible=(2,))
    assert elect_partition(old, present(1, 2), SAFE, lost(1)).leader == 2
    waiting = elect_partition(old, present(1), SAFE, lost(1))
    assert (waiting.leader, waiting.isr, waiting.elr) == (-1, (), (2,))
    assert elect_partition(waiting, present(1, 2), SAFE).leader == 2


def test_election_waits_for_dead_isr_members_if_the_others_may_have_lost_records() -> None:
    waiting = elect_partition(partition(isr=(1, 2)), present(2), SAFE, lost(2))
    assert (waiting.leader, waiting.isr) == (-1, (1,))
    back = elect_partition(waiting, present(1, 2), SAFE, lost(1))
    assert (back.leader, back.isr, back.leader_epoch) == (1, (1,), 7), "the last replica that has all records"


def test_partition_without_state_gets_one_with_the_live_replicas() -> None:
    missing = PartitionImage(-1, -1, (), (1, 2, 3), -1)
    new = elect_partition(missing, present(2, 3), SAFE)
    assert (new.leader, new.isr, new.leader_epoch, new.partition_epoch) == (2, (2, 3), 0, 0)
    assert elect_partition(missing, present(), SAFE) is missing


def test_broker_that_shuts_down_leads_only_partitions_without_another_candidate() -> None:
    moved = elect_partition(partition(), present(1, 2, 3, leaving=(1,)), SAFE)
    assert (moved.leader, moved.isr) == (2, (2, 3))
    alone = partition(isr=(1,))
    assert elect_partition(alone, present(1, 2, 3, leaving=(1,)), SAFE) is alone
    follower = elect_partition(partition(), present(1, 2, 3, leaving=(3,)), SAFE)
    assert (follower.leader, follower.isr, follower.leader_epoch) == (1, (1, 2), 5)


def test_settling_twice_changes_nothing() -> None:
    for rules in (SAFE, UNCLEAN):
        for alive in ((), (1,), (2, 3), (1, 2, 3)):
            for old in (partition(), partition(isr=(1,), eligible=(3,)), partition(leader=-1, isr=(2,))):
                once = elect_partition(old, present(*alive), rules)
                assert elect_partition(once, present(*alive), rules) is once


# ---- whole images, against a tree


def three_brokers() -> ControllerHarness:
    stand = ControllerHarness(brokers=3)
    stand.create(NewTopic("a", assignments=((0, (1, 2, 3)), (1, (2, 3, 1)), (2, (3, 1, 2)))))
    return stand


def leaders(image: MetadataImage, topic: str = "a") -> list[int]:
    return [each.leader for each in image.topics[topic].partitions]


def test_a_death_moves_the_leaders_of_one_broker() -> None:
    stand = three_brokers()
    settlement = stand.run(decide_broker_changes(stand.image, {1: broker(1), 3: broker(3)}, BrokerAvailability(), SAFE))
    assert leaders(stand.image) == [1, 3, 3]
    assert settlement == (3, 1, ())
    assert list(stand.image.brokers) == [1, 3]


def test_nothing_is_written_without_broker_changes() -> None:
    stand = three_brokers()
    decision = decide_broker_changes(stand.image, dict(stand.image.brokers), BrokerAvailability(), SAFE)
    assert decision.operations == ()
    assert decision.image is stand.image


def test_a_broker_with_another_epoch_was_restarted() -> None:
    stand = three_brokers()
    brokers = {**stand.image.brokers, 2: broker(2)._replace(epoch=77)}
    stand.run(decide_broker_changes(stand.image, brokers, BrokerAvailability(), SAFE))
    assert leaders(stand.image) == [1, 3, 3]
    assert stand.image.partition("a", 0) == PartitionImage(1, 0, (1, 3), (1, 2, 3), 1)


def test_partitions_without_a_leader_are_reported() -> None:
    stand = three_brokers()
    settlement = stand.run(decide_broker_changes(stand.image, {}, BrokerAvailability(), SAFE))
    assert settlement.leaderless == tuple(TopicPartition("a", index) for index in range(3))


def test_a_controlled_shutdown_names_what_cannot_be_moved() -> None:
    stand = three_brokers()
    stand.create(NewTopic("alone", assignments=((0, (2,)),)))
    stand.run(decide_broker_changes(stand.image, {2: broker(2)}, BrokerAvailability(), SAFE))
    stand.image = stand.image.with_brokers({1: broker(1), 2: broker(2)})
    remaining = stand.run(decide_controlled_shutdown(stand.image, 2, BrokerAvailability(), SAFE))
    assert remaining == [TopicPartition("a", index) for index in range(3)], (
        "1 is not in sync, a single replica counts not"
    )


def test_a_controlled_shutdown_moves_leaders_and_leaves_the_isrs() -> None:
    stand = three_brokers()
    assert stand.run(decide_controlled_shutdown(stand.image, 2, BrokerAvailability(), SAFE)) == []
    assert leaders(stand.image) == [1, 3, 3]
    assert all(2 not in each.isr for each in stand.image.topics["a"].partitions)


def test_a_replica_in_a_failed_folder_counts_as_dead_there_and_only_there() -> None:
    stand = three_brokers()
    topic_id = stand.image.topics["a"].topic_id
    liveness = BrokerAvailability(offline_replicas={1: frozenset({(topic_id, 0)})})
    stand.run(decide_election(stand.image, liveness, SAFE))
    assert leaders(stand.image) == [2, 2, 3]
    assert stand.image.partition("a", 0) == PartitionImage(2, 1, (2, 3), (1, 2, 3), 1)
    assert stand.image.partition("a", 1) == PartitionImage(2, 0, (2, 3, 1), (2, 3, 1), 0)


def test_only_the_named_topics_are_looked_at() -> None:
    stand = three_brokers()
    stand.create(NewTopic("b", assignments=((0, (1, 2)),)))
    image = stand.image.with_brokers({2: broker(2), 3: broker(3)})
    decision = decide_election(image, BrokerAvailability(), SAFE, topics=["b", "unknown"])
    assert leaders(decision.image) == [1, 2, 3]
    assert leaders(decision.image, "b") == [2]


def test_a_topic_has_its_own_rules() -> None:
    stand = ControllerHarness(brokers=1)
    own = (("min.insync.replicas", "3"), ("unclean.leader.election.enable", "TRUE"))
    stand.create(
        NewTopic("own", configs=own), NewTopic("plain"), NewTopic("odd", configs=(("min.insync.replicas", "?"),))
    )
    assert topic_rules(stand.image, "own", SAFE) == ElectionRules(3, True)
    assert topic_rules(stand.image, "plain", SAFE) == SAFE
    assert topic_rules(stand.image, "odd", SAFE) == SAFE
