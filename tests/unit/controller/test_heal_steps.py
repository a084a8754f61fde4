"""Healing steps: started, waiting and cancelled moves, and reassignments of operators."""

from __future__ import annotations

import random

import pytest
from tests.unit.controller.healing_harness import GIGABYTE, HealingHarness

from ottla.base.names import TopicPartition
from ottla.controller.decisions.leader_eligibility import BrokerAvailability
from ottla.controller.image import NO_LEADER
from ottla.controller.self_balancing.heal_state import HealLimits, LogDir
from ottla.controller.self_balancing.heal_steps import (
    SAME_RACK,
    TOO_FULL,
    ReplicaRebuild,
    decide_start,
    needs_disk_sizes,
    pending_rebuilds,
)
from ottla.controller.self_balancing.journals import ReplicaMove

LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
RATES = {"leader.replication.throttled.rate": "50000000", "follower.replication.throttled.rate": "50000000"}


def ward(*rows: tuple[int, ...], brokers: int = 4, racks: str = "") -> HealingHarness:
    made = HealingHarness(brokers, racks)
    made.topic("orders", *(rows or ((4, 1, 2), (1, 2, 3), (2, 4, 3))))
    return made


def own_configs(it: HealingHarness) -> dict[str, object]:
    return {broker: config for broker, config in it.image.broker_configs.items() if broker and config}


def test_replicas_of_a_lost_broker_move_and_others_stay() -> None:
    it = ward()
    it.lose(4)
    begun = it.begin()
    assert it.moving() == {"orders-0": ((3,), (4,)), "orders-2": ((1,), (4,))}
    assert begun.moves == it.journal.moves
    assert set(begun.moves) == {
        ReplicaMove(TopicPartition("orders", 0), (4,), (3,)),
        ReplicaMove(TopicPartition("orders", 2), (4,), (1,)),
    }
    assert begun.waits == ()
    assert it.partition("orders", 0).replicas == (3, 1, 2, 4), "in the place of the one that is lost"
    assert it.begin().moves == (), "once is enough"


def test_only_the_replicas_that_move_are_slowed_down_and_that_ends_with_them() -> None:
    it = ward()
    it.lose(4)
    it.begin()
    assert it.image.topic_configs["orders"] == {LEADERS: "0:1,0:2,2:2,2:3", FOLLOWERS: "0:3,2:1"}
    assert own_configs(it) == {"1": RATES, "2": RATES, "3": RATES}, "the one that is lost copies nothing"
    it.copied("orders", 0, 1, 2, 3)
    assert [move.partition for move in it.tidy().ended] == [("orders", 0)]
    assert it.image.topic_configs["orders"] == {LEADERS: "2:2,2:3", FOLLOWERS: "2:1"}
    it.copied("orders", 2, 2, 3, 1)
    assert len(it.tidy().ended) == 1
    assert it.image.topic_configs["orders"] == {}
    assert own_configs(it) == {}
    assert it.journal.moves == ()
    assert it.journal.throttle == ({}, {})
    assert it.tidy().ended == ()


def test_the_throttle_is_written_before_the_moves_and_the_journal_before_both() -> None:
    """After a crash in between, the next controller knows all started moves."""
    it = ward()
    it.lose(4)
    paths = [each.path for each in decide_start(it.image, it.node, it.situation()).operations]
    assert paths[:3] == ["/ottla", "/ottla/healing", "/config/topics/orders"]
    assert paths[3:6] == ["/config/brokers/1", "/config/brokers/2", "/config/brokers/3"]
    assert all(path.startswith("/brokers/topics/orders") for path in paths[6:])


def test_a_beginning_without_its_moves_is_tidied_up() -> None:
    it = ward()
    it.lose(4)
    operations = decide_start(it.image, it.node, it.situation()).operations
    it.tree.multi(operations[:6])
    it.image = it.image.with_topics(configs={"orders": {LEADERS: "0:1,0:2,2:2,2:3", FOLLOWERS: "0:3,2:1"}})
    for number in "123":
        it.image = it.image.with_broker_config(number, RATES)
    assert len(it.tidy().ended) == 2
    assert it.image.topic_configs["orders"] == {}
    assert own_configs(it) == {}


def test_throttles_of_operators_are_kept() -> None:
    it = ward()
    own = {"leader.replication.throttled.rate": "1000", "log.retention.ms": "5"}
    it.image = it.image.with_broker_config("1", own).with_topics(configs={"orders": {LEADERS: "0:1,1:1"}})
    it.commit_configs()
    it.lose(4)
    it.begin()
    assert it.image.broker_configs["1"] == {**own, "follower.replication.throttled.rate": "50000000"}
    assert it.image.topic_configs["orders"][LEADERS] == "0:1,0:2,1:1,2:2,2:3"
    it.copied("orders", 0, 1, 2, 3)
    it.copied("orders", 2, 1, 2, 3)
    it.tidy()
    assert it.image.broker_configs["1"] == own
    assert it.image.topic_configs["orders"] == {LEADERS: "0:1,1:1"}


def test_throttles_changed_by_an_operator_are_not_removed() -> None:
    it = ward()
    it.lose(4)
    it.begin()
    it.image = it.image.with_broker_config("1", {"leader.replication.throttled.rate": "7"})
    it.image = it.image.with_topics(configs={"orders": {LEADERS: "0:1", FOLLOWERS: "*"}})
    it.copied("orders", 0, 1, 2, 3)
    it.copied("orders", 2, 1, 2, 3)
    it.tidy()
    assert it.image.broker_configs["1"] == {"leader.replication.throttled.rate": "7"}
    assert it.image.topic_configs["orders"] == {LEADERS: "0:1", FOLLOWERS: "*"}


def test_rate_of_all_brokers_is_kept_and_a_new_healing_rate_applies_at_once() -> None:
    it = ward()
    it.image = it.image.with_broker_config("", {"leader.replication.throttled.rate": "9"})
    it.lose(4)
    it.begin()
    assert it.image.broker_configs["2"] == {"follower.replication.throttled.rate": "50000000"}
    it.limits = it.limits._replace(throttle_rate=10)
    it.tidy()
    assert it.image.broker_configs["2"] == {"follower.replication.throttled.rate": "10"}


def test_limited_number_of_moves_most_endangered_then_largest_first() -> None:
    it = HealingHarness(5)
    it.topic("calm", (5, 1, 2, 3), size=9)
    it.topic("small", (5, 1, 2), size=1)
    it.topic("large", (5, 1, 2), size=5)
    it.topic("alone", (5, 4), size=2)
    it.limits = HealLimits(moves_max=1)
    it.lose(5)
    order = []
    for _ in range(4):
        (move,) = it.begin().moves
        order.append(move.partition.topic)
        assert it.begin().moves == (), "there is one under way"
        it.copied(move.partition.topic, 0, *(set(it.partition(move.partition.topic).replicas) - {5}))
        it.tidy()
    assert order == ["alone", "large", "small", "calm"]


@pytest.mark.parametrize("level", [1, 2])
def test_a_cluster_with_older_brokers_heals_nothing(level: int) -> None:
    it = ward()
    it.image = it.image.with_features({"ottla.version": level}, 1)
    it.lose(4)
    assert bool(it.begin().moves) is (level == 2)


def test_it_can_be_switched_off() -> None:
    it = ward()
    it.limits = HealLimits(after_ms=-1)
    it.lose(4)
    assert (it.begin().moves, it.journal.waits) == ((), ())


# ---- what waits


def test_two_brokers_away_are_no_broker_that_has_died() -> None:
    it = ward(brokers=5)
    it.lose(4, 5)
    assert it.begin().waits == (
        "2 brokers are away or have failed folders (4, 5), more than ottla.heal.brokers.max (1)",
    )
    assert it.moving() == {}
    assert it.journal.waits, "the reason is reported"
    it.back(5)
    assert len(it.begin().moves) == 2
    assert it.journal.waits == ()


def test_second_absent_broker_blocks_new_moves_only() -> None:
    it = ward(brokers=5)
    it.limits = HealLimits(moves_max=1)
    it.lose(4)
    (move,) = it.begin().moves
    it.there(1, 2, 3)
    assert it.begin().moves == ()
    assert it.tidy().cancelled == ()
    assert len(it.moving()) == 1
    assert move in it.journal.moves


def test_healing_needs_a_majority_of_live_brokers() -> None:
    it = ward()
    it.limits = HealLimits(brokers_max=9)
    it.lose(3, 4)
    assert it.begin().waits == ("no majority of the brokers is alive (1, 2)",)


def test_a_whole_rack_is_waited_for() -> None:
    it = ward((4, 1), (1, 2), brokers=5, racks="aabcc")
    it.lose(3)
    assert it.begin().waits == ("all of rack b is away (broker 3)",)


def test_racks_of_single_brokers_say_nothing() -> None:
    it = ward(racks="abcd")
    it.lose(4)
    assert len(it.begin().moves) == 2


def test_a_broker_in_maintenance_is_waited_for_and_gets_nothing() -> None:
    it = ward(brokers=5)
    it.lose(4)
    it.in_maintenance = frozenset({4})
    assert it.begin().waits == ("broker 4 is in maintenance",)
    it.in_maintenance = frozenset({3, 5})
    assert it.begin().waits == ("1 partition (orders-0): the possible target brokers are stopping or in maintenance",)


def test_broker_that_shuts_down_is_no_target() -> None:
    it = ward(brokers=5)
    it.liveness = BrokerAvailability(shutting_down=frozenset({3}))
    it.lose(4)
    assert {broker for move in it.begin().moves for broker in move.added} == {5}


def test_a_disk_that_would_get_too_full_gets_nothing() -> None:
    it = ward((4, 1, 2), (4, 1, 2), (4, 1, 2))
    it.folders[3] = (LogDir(100 * GIGABYTE, 90 * GIGABYTE), LogDir(10 * GIGABYTE, 4 * GIGABYTE))
    it.lose(4)
    begun = it.begin()
    assert len(begun.moves) == 2, "60 % are used: 2 more gigabytes make 80 %, 3 would make 90 %"
    assert begun.waits == (f"1 partition (orders-2): {TOO_FULL}",)
    assert it.begin().moves == (), "what is on its way counts"
    for move in begun.moves:
        it.sizes[3, move.partition] = GIGABYTE
    it.folders[3] = (LogDir(10 * GIGABYTE, 2 * GIGABYTE),)
    assert it.begin().moves == (), "and so does what has come"


def test_a_broker_that_does_not_tell_about_its_disks_gets_nothing() -> None:
    it = ward()
    it.silent = {3}
    it.lose(4)
    begun = it.begin()
    assert [move.partition.partition for move in begun.moves] == [2]
    assert begun.waits[1] == "brokers that have not reported the usage of their disks: 3"


def test_topic_without_target_does_not_block_others() -> None:
    it = HealingHarness(4)
    it.topic("wide", (1, 2, 3, 4))
    it.topic("orders", (4, 1, 2))
    it.lose(4)
    begun = it.begin()
    assert [move.partition.topic for move in begun.moves] == ["orders"]
    assert begun.waits == (
        "1 partition (wide-0): there is no other broker for them (add one, or lower the replication factor)",
    )


def test_partition_without_leader_waits() -> None:
    it = ward((4,))
    it.topic("others", (4, 1))
    it.lose(4)
    assert it.partition("orders", 0).leader == NO_LEADER
    assert it.begin().waits == ("1 partition (orders-0): there is no leader to copy from",)


# ---- racks


def test_racks_are_kept_apart() -> None:
    it = ward((1, 3), (1, 4), (1, 3), (2, 4), brokers=5, racks="aabbb")
    it.lose(3)
    assert {broker for move in it.begin().moves for broker in move.added} <= {4, 5}


def test_a_full_broker_in_the_right_rack_is_waited_for() -> None:
    it = ward((1, 3), brokers=5, racks="aabbc")
    it.folders[4] = it.folders[5] = (LogDir(100, 1),)
    it.lose(3)
    assert it.begin().waits == (f"1 partition (orders-0): {SAME_RACK}",)


@pytest.mark.parametrize("seed", range(40))
def test_a_plan_never_puts_two_replicas_into_a_rack_without_need(seed: int) -> None:
    chance = random.Random(seed)
    it = HealingHarness(7, "".join(chance.choice("abc") for _ in range(7)))
    rows = [tuple(chance.sample(range(1, 8), 3)) for _ in range(20)]
    it.topic("orders", *rows)
    it.limits = HealLimits(moves_max=99)
    it.lose(7)
    for move in it.begin().moves:
        (new,) = move.added
        others = [broker for broker in rows[move.partition.partition] if broker != 7]
        racks = [it.racks[broker] for broker in others]
        if it.racks[new] in racks:
            assert all(it.racks[broker] in racks for broker in range(1, 7) if broker not in others)


# ---- what comes in between


def test_broker_that_returns_in_time_causes_no_moves() -> None:
    it = ward()
    it.there(1, 2, 3)
    assert (it.begin().moves, it.tidy().ended) == ((), ())
    assert it.tree.get("/ottla") is None, "not even a write"


def test_returned_broker_keeps_replicas_that_lack_fewer_bytes() -> None:
    it = ward()
    it.lose(4)
    it.begin()
    assert not needs_disk_sizes(it.image, it.journal)
    it.back(4)
    assert needs_disk_sizes(it.image, it.journal)
    it.sizes[3, TopicPartition("orders", 0)] = GIGABYTE - 5  # almost there
    it.sizes[4, TopicPartition("orders", 0)] = GIGABYTE - 50
    it.sizes[1, TopicPartition("orders", 2)] = 1_000  # hardly begun
    it.sizes[4, TopicPartition("orders", 2)] = GIGABYTE - 50
    tidied = it.tidy()
    assert [move.partition.partition for move in tidied.cancelled] == [2]
    assert it.moving() == {"orders-0": ((3,), (4,))}
    assert set(it.partition("orders", 2).replicas) == {2, 4, 3}
    assert it.image.topic_configs["orders"] == {LEADERS: "0:1,0:2", FOLLOWERS: "0:3"}


def test_broker_that_returns_with_an_empty_disk_is_healed() -> None:
    it = ward()
    it.lose(4)
    it.begin()
    it.back(4)
    for index in (0, 2):
        it.sizes[4, TopicPartition("orders", index)] = 0
    assert it.tidy().cancelled == ()


def test_nothing_is_cancelled_on_hearsay() -> None:
    it = ward()
    it.lose(4)
    it.begin()
    it.back(4)
    it.silent = {4}
    assert it.tidy().cancelled == ()


def test_a_target_that_is_lost_itself_is_replaced() -> None:
    it = ward((4, 1, 2), brokers=5)
    it.lose(4)
    it.begin()
    assert it.moving() == {"orders-0": ((3,), (4,))}
    it.lose(3)
    assert len(it.tidy().cancelled) == 1
    it.limits = HealLimits(brokers_max=2)
    it.begin()
    assert it.moving() == {"orders-0": ((5,), (4,))}


def test_a_target_whose_folder_fails_is_replaced() -> None:
    it = ward((4, 1, 2), brokers=5)
    it.lose(4)
    it.begin()
    topic_id = it.image.topics["orders"].topic_id
    it.liveness = BrokerAvailability(offline_replicas={3: frozenset({(topic_id, 0)})})
    assert len(it.tidy().cancelled) == 1


def test_an_operator_wins() -> None:
    it = ward()
    it.lose(4)
    it.begin()
    it.operator("orders", 0, (1, 2))  # fewer replicas
    it.operator("orders", 2, None)  # no move at all
    tidied = it.tidy()
    assert (len(tidied.ended), tidied.cancelled) == (2, ())
    assert it.partition("orders", 0).replicas == (1, 2)
    assert it.journal.moves == ()
    assert it.image.topic_configs["orders"] == {}


def test_reassignments_of_operators_are_not_changed() -> None:
    it = ward()
    it.lose(4)
    it.operator("orders", 0, (4, 1, 3))
    begun = it.begin()
    assert [move.partition.partition for move in begun.moves] == [2]
    assert begun.waits == ("1 partition (orders-0): another reassignment of them is in progress",)


def test_a_deleted_topic_takes_its_moves_along() -> None:
    it = ward()
    it.lose(4)
    it.begin()
    it.image = it.image.with_topics(removed=["orders"])
    tidied = it.tidy()
    assert len(tidied.ended) == 2
    assert own_configs(it) == {}


def test_two_controllers_in_turn_cannot_both_begin() -> None:
    it = ward()
    it.lose(4)
    node = it.node
    late = decide_start(it.image, node, it.situation())
    it.begin()
    with pytest.raises(Exception, match="/ottla"):
        it.tree.multi(late.operations)


def test_damaged_partitions_do_not_move() -> None:
    it = ward()
    it.lose(4)
    it.image = it.image.with_damaged(["/brokers/topics/orders"])
    begun = it.begin()
    assert begun.moves == ()
    assert begun.waits == ("2 partitions (orders-0, orders-2): their nodes in the store cannot be read",)


# ---- failed log directories

ORDERS_0 = TopicPartition("orders", 0)
AT_HOME = ReplicaMove(ORDERS_0, (3,), (3,))


def failed_folder(*rows: tuple[int, ...], brokers: int = 4, isr: tuple[int, ...] = (1, 2)) -> HealingHarness:
    """Broker 3 lost the log directory with the first partition long ago, and has another one."""
    it = ward(*rows, brokers=brokers)
    it.folders[3] = (LogDir(100 * GIGABYTE, 90 * GIGABYTE, "/b"), LogDir(100 * GIGABYTE, 95 * GIGABYTE, "/c"))
    topic_id = it.image.topics["orders"].topic_id
    it.liveness = BrokerAvailability(offline_replicas={3: frozenset({(topic_id, 0)})})
    it.there(*it.all)
    assert it.partition("orders", 0).isr == isr
    it.failing = frozenset({3})
    del it.sizes[3, ORDERS_0]
    return it


def test_replicas_of_a_failed_directory_move_and_others_stay() -> None:
    it = ward((1, 2, 3), (2, 3, 1))
    topic_id = it.image.topics["orders"].topic_id
    it.liveness = BrokerAvailability(offline_replicas={3: frozenset({(topic_id, 0)})})
    it.there(1, 2, 3, 4)
    assert it.partition("orders", 0).isr == (1, 2)
    assert it.begin().moves == (), "not yet"
    it.failing = frozenset({3})
    assert [(move.removed, move.added) for move in it.begin().moves] == [((3,), (4,))]
    assert it.moving() == {"orders-0": ((4,), (3,))}


def test_a_failed_folder_is_healed_in_another_one_of_its_broker_throttled_and_in_the_roomiest() -> None:
    it = failed_folder((1, 2, 3), (2, 3, 1))
    assert it.begin().moves == (AT_HOME,)
    assert it.moving() == {}, "its replicas stay where they are"
    assert it.image.topic_configs["orders"] == {
        "follower.replication.throttled.replicas": "0:3",
        "leader.replication.throttled.replicas": "0:1,0:2",
    }
    assert pending_rebuilds(it.image, it.journal, it.situation()) == [ReplicaRebuild(3, ORDERS_0, "/c")]
    assert it.begin().moves == (), "it is under way"
    it.liveness = BrokerAvailability()  # the broker has begun with it
    assert pending_rebuilds(it.image, it.journal, it.situation()) == []
    assert it.tidy().ended == ()
    it.copied("orders", 0, 1, 2, 3)
    assert it.tidy().ended == (AT_HOME,)
    assert own_configs(it) == {}
    assert it.image.topic_configs["orders"] == {}


def test_three_brokers_with_three_replicas_are_healed_at_home_too() -> None:
    it = failed_folder((1, 2, 3), brokers=3)
    assert it.begin().moves == (AT_HOME,)


def test_replica_of_a_failed_directory_moves_to_another_broker_without_space_on_its_own() -> None:
    it = failed_folder((1, 2, 3))
    it.folders[3] = (LogDir(100 * GIGABYTE, 15 * GIGABYTE, "/b"),)
    assert [(move.removed, move.added) for move in it.begin().moves] == [((3,), (4,))]


def test_rebuilds_in_progress_use_the_space_of_their_broker() -> None:
    it = ward((1, 2, 3), (2, 1, 3))
    it.folders[3] = (LogDir(100 * GIGABYTE, 16 * GIGABYTE + GIGABYTE // 2, "/b"),)
    topic_id = it.image.topics["orders"].topic_id
    it.liveness = BrokerAvailability(offline_replicas={3: frozenset({(topic_id, 0), (topic_id, 1)})})
    it.there(*it.all)
    it.failing = frozenset({3})
    it.limits = HealLimits(moves_max=1)
    for index in (0, 1):
        del it.sizes[3, TopicPartition("orders", index)]
    assert it.begin().moves == (AT_HOME,)
    it.limits = HealLimits(moves_max=2)
    assert [(move.removed, move.added) for move in it.begin().moves] == [((3,), (4,))]


@pytest.mark.parametrize("isr", [(1, 3), (1,)])
def test_replica_that_might_be_elected_is_not_rebuilt(isr: tuple[int, ...]) -> None:
    """In the ISR, or in the ELR because the ISR is too small."""
    it = failed_folder((1, 2, 3))
    topic = it.image.topics["orders"]
    eligible = (3,) if isr == (1,) else ()
    row = topic.partitions[0]._replace(isr=isr, elr=eligible)
    it.image = it.image.with_topics([topic._replace(partitions=(row, *topic.partitions[1:]))])
    assert [(move.removed, move.added) for move in it.begin().moves] == [((3,), (4,))]


def test_a_damaged_or_full_replica_is_no_failed_folder() -> None:
    it = failed_folder((1, 2, 3))
    it.sizes[3, ORDERS_0] = GIGABYTE  # it lies in a folder that works
    assert [(move.removed, move.added) for move in it.begin().moves] == [((3,), (4,))]


def test_refused_rebuild_moves_to_another_broker() -> None:
    it = failed_folder((1, 2, 3))
    it.begin()
    it.refusals = frozenset({(ORDERS_0, 3)})
    assert it.tidy().cancelled == (AT_HOME,)
    assert own_configs(it) == {}
    assert [(move.removed, move.added) for move in it.begin().moves] == [((3,), (4,))]


def test_broker_lost_during_a_rebuild_is_healed_by_others() -> None:
    it = failed_folder((1, 2, 3))
    it.begin()
    it.lose(3)
    it.liveness = BrokerAvailability()
    it.failing = frozenset()
    assert it.tidy().cancelled == (AT_HOME,)
    assert [(move.removed, move.added) for move in it.begin().moves] == [((3,), (4,))]


def test_reassignment_of_an_operator_replaces_a_rebuild() -> None:
    it = failed_folder((1, 2, 3))
    it.begin()
    it.operator("orders", 0, (1, 2, 4))
    tidied = it.tidy()
    assert (tidied.ended, tidied.cancelled) == ((AT_HOME,), ())
    assert it.journal.moves == ()


def test_repaired_directory_is_compared_with_the_move() -> None:
    it = ward((1, 2, 3))
    topic_id = it.image.topics["orders"].topic_id
    it.liveness = BrokerAvailability(offline_replicas={3: frozenset({(topic_id, 0)})})
    it.there(1, 2, 3, 4)
    it.failing = frozenset({3})
    it.begin()
    assert it.tidy().cancelled == ()
    it.liveness = BrokerAvailability()
    assert len(it.tidy().cancelled) == 1
