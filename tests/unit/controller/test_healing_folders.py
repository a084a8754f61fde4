"""Healing of failed folders: on their own broker where that has room and nobody counts on it, else by others."""

from __future__ import annotations

import pytest

from ottla.base.names import TopicPartition
from ottla.controller.decisions.healing.situation import Folder, Limits
from ottla.controller.decisions.healing.steps import Refill, refills
from ottla.controller.decisions.journals import HealMove
from ottla.controller.decisions.liveness import Liveness
from unit.controller.test_healing import own_configs, ward
from unit.controller.ward import GIGABYTE, Ward

ORDERS_0 = TopicPartition("orders", 0)
AT_HOME = HealMove(ORDERS_0, (3,), (3,))


def failed_folder(*rows: tuple[int, ...], brokers: int = 4, isr: tuple[int, ...] = (1, 2)) -> Ward:
    """Broker 3 has lost a folder with the first partition in it, long ago, and has another one."""
    it = ward(*rows, brokers=brokers)
    it.folders[3] = (Folder(100 * GIGABYTE, 90 * GIGABYTE, "/b"), Folder(100 * GIGABYTE, 95 * GIGABYTE, "/c"))
    topic_id = it.image.topics["orders"].topic_id
    it.liveness = Liveness(offline={3: frozenset({(topic_id, 0)})})
    it.there(*it.all)
    assert it.partition("orders", 0).isr == isr
    it.failing = frozenset({3})
    del it.sizes[3, ORDERS_0]
    return it


def test_replicas_of_a_failed_folder_are_given_to_others_and_those_of_other_folders_stay() -> None:
    it = ward((1, 2, 3), (2, 3, 1))
    topic_id = it.image.topics["orders"].topic_id
    it.liveness = Liveness(offline={3: frozenset({(topic_id, 0)})})
    it.there(1, 2, 3, 4)
    assert it.partition("orders", 0).isr == (1, 2)
    assert it.begin().moves == (), "not yet"
    it.failing = frozenset({3})
    assert [(move.gone, move.new) for move in it.begin().moves] == [((3,), (4,))]
    assert it.moving() == {"orders-0": ((4,), (3,))}


def test_a_failed_folder_is_healed_in_another_one_of_its_broker_throttled_and_in_the_roomiest() -> None:
    it = failed_folder((1, 2, 3), (2, 3, 1))
    assert it.begin().moves == (AT_HOME,)
    assert it.moving() == {}, "its replicas stay where they are"
    assert it.image.topic_configs["orders"] == {
        "follower.replication.throttled.replicas": "0:3",
        "leader.replication.throttled.replicas": "0:1,0:2",
    }
    assert refills(it.image, it.journal, it.situation()) == [Refill(3, ORDERS_0, "/c")]
    assert it.begin().moves == (), "it is under way"
    it.liveness = Liveness()  # the broker has begun with it
    assert refills(it.image, it.journal, it.situation()) == []
    assert it.tidy().ended == ()
    it.copied("orders", 0, 1, 2, 3)
    assert it.tidy().ended == (AT_HOME,)
    assert own_configs(it) == {}
    assert it.image.topic_configs["orders"] == {}


def test_three_brokers_with_three_replicas_are_healed_at_home_too() -> None:
    it = failed_folder((1, 2, 3), brokers=3)
    assert it.begin().moves == (AT_HOME,)


def test_a_failed_folder_is_healed_by_others_where_there_is_no_room_at_home() -> None:
    it = failed_folder((1, 2, 3))
    it.folders[3] = (Folder(100 * GIGABYTE, 15 * GIGABYTE, "/b"),)
    assert [(move.gone, move.new) for move in it.begin().moves] == [((3,), (4,))]


def test_what_is_on_its_way_at_home_takes_room_there() -> None:
    it = ward((1, 2, 3), (2, 1, 3))
    it.folders[3] = (Folder(100 * GIGABYTE, 16 * GIGABYTE + GIGABYTE // 2, "/b"),)
    topic_id = it.image.topics["orders"].topic_id
    it.liveness = Liveness(offline={3: frozenset({(topic_id, 0), (topic_id, 1)})})
    it.there(*it.all)
    it.failing = frozenset({3})
    it.limits = Limits(moves_max=1)
    for index in (0, 1):
        del it.sizes[3, TopicPartition("orders", index)]
    assert it.begin().moves == (AT_HOME,)
    it.limits = Limits(moves_max=2)
    assert [(move.gone, move.new) for move in it.begin().moves] == [((3,), (4,))]


@pytest.mark.parametrize("isr", [(1, 3), (1,)])
def test_nobody_copies_anew_what_it_might_be_elected_with(isr: tuple[int, ...]) -> None:
    """In the ISR, or eligible because the ISR is too small without it."""
    it = failed_folder((1, 2, 3))
    topic = it.image.topics["orders"]
    eligible = (3,) if isr == (1,) else ()
    row = topic.partitions[0]._replace(isr=isr, eligible=eligible)
    it.image = it.image.with_topics([topic._replace(partitions=(row, *topic.partitions[1:]))])
    assert [(move.gone, move.new) for move in it.begin().moves] == [((3,), (4,))]


def test_a_damaged_or_full_replica_is_no_failed_folder() -> None:
    it = failed_folder((1, 2, 3))
    it.sizes[3, ORDERS_0] = GIGABYTE  # it lies in a folder that works
    assert [(move.gone, move.new) for move in it.begin().moves] == [((3,), (4,))]


def test_what_a_broker_refuses_to_have_anew_is_given_to_others() -> None:
    it = failed_folder((1, 2, 3))
    it.begin()
    it.refusals = frozenset({(ORDERS_0, 3)})
    assert it.tidy().cancelled == (AT_HOME,)
    assert own_configs(it) == {}
    assert [(move.gone, move.new) for move in it.begin().moves] == [((3,), (4,))]


def test_a_broker_that_is_lost_while_it_is_healed_at_home_is_healed_by_others() -> None:
    it = failed_folder((1, 2, 3))
    it.begin()
    it.lose(3)
    it.liveness = Liveness()
    it.failing = frozenset()
    assert it.tidy().cancelled == (AT_HOME,)
    assert [(move.gone, move.new) for move in it.begin().moves] == [((3,), (4,))]


def test_an_operator_who_moves_what_is_healed_at_home_wins() -> None:
    it = failed_folder((1, 2, 3))
    it.begin()
    it.operator("orders", 0, (1, 2, 4))
    tidied = it.tidy()
    assert (tidied.ended, tidied.cancelled) == ((AT_HOME,), ())
    assert it.journal.moves == ()


def test_a_folder_that_is_back_in_the_middle_is_compared_too() -> None:
    it = ward((1, 2, 3))
    topic_id = it.image.topics["orders"].topic_id
    it.liveness = Liveness(offline={3: frozenset({(topic_id, 0)})})
    it.there(1, 2, 3, 4)
    it.failing = frozenset({3})
    it.begin()
    assert it.tidy().cancelled == ()
    it.liveness = Liveness()
    assert len(it.tidy().cancelled) == 1
