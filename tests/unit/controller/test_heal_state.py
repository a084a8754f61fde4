"""The journal of healing: encoding, decoding, and damaged journals."""

from __future__ import annotations

import json
import time
from uuid import UUID

import pytest
from tests.unit.controller.controller_harness import broker
from tests.unit.controller.healing_harness import GIGABYTE, HealingHarness

from ottla.base.broker_keys.replication import MOVES_MAX
from ottla.base.broker_settings import load_broker_settings
from ottla.base.names import TopicPartition
from ottla.base.settings import SettingsError
from ottla.controller.decisions.decision import TRANSACTION_BYTES_MAX
from ottla.controller.decisions.leader_election import decide_broker_changes
from ottla.controller.decisions.leader_eligibility import BrokerAvailability
from ottla.controller.image import PartitionImage, TopicImage
from ottla.controller.self_balancing.heal_state import JOURNAL_FORMAT, HealJournal, HealLimits, LogDir, OfflineReplicas
from ottla.controller.self_balancing.heal_steps import decide_cleanup, decide_start
from ottla.controller.self_balancing.journals import JournalNode, ReplicaMove, Throttle, WrittenThrottle
from ottla.controller.stores.store import CreateNode, Node, SetNode
from ottla.controller.tree import DamagedNodeError

FAR = tuple(range(2**31 - 9, 2**31 - 1))
NAME_LENGTH_MAX = 249
FULL = HealJournal(
    {4: 61_000},
    {2: OfflineReplicas(5_000, 3)},
    {1: "a", 4: "b"},
    (ReplicaMove(TopicPartition("orders", 7), (4,), (2,)),),
    Throttle(
        {("orders", "leader.replication.throttled.replicas"): WrittenThrottle("7:1,7:3", frozenset({"7:1"}))},
        {(1, "leader.replication.throttled.rate"): "50000000"},
    ),
    ("broker 4 is in maintenance",),
)


@pytest.mark.parametrize("journal", [HealJournal(), FULL])
def test_journal_round_trip(journal: HealJournal) -> None:
    assert JOURNAL_FORMAT.decode(JOURNAL_FORMAT.encode(journal)) == journal


def test_it_is_made_with_its_parent_and_then_changed_by_version() -> None:
    node = JOURNAL_FORMAT.read(None, has_parent=False)
    assert [type(each) for each in node.operations(FULL)] == [CreateNode, CreateNode]
    assert [type(each) for each in JOURNAL_FORMAT.read(None, has_parent=True).operations(FULL)] == [CreateNode]
    assert node.after(FULL).operations(FULL) == (SetNode(JOURNAL_FORMAT.path, JOURNAL_FORMAT.encode(FULL), 0),)
    assert JOURNAL_FORMAT.read(Node(JOURNAL_FORMAT.encode(FULL), 8, 1), has_parent=True) == JournalNode(
        JOURNAL_FORMAT, FULL, 8, has_parent=True
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff",
        JOURNAL_FORMAT.encode(FULL)[:-1],
        JOURNAL_FORMAT.encode(FULL).replace(b'"version":1', b'"version":2'),
        JOURNAL_FORMAT.encode(FULL).replace(b'"moves":[{', b'"moves":[7,{'),
        JOURNAL_FORMAT.encode(FULL).replace(b'"from":[4]', b'"from":4'),
        JOURNAL_FORMAT.encode(FULL).replace(b'"away_ms":{"4"', b'"away_ms":{"four"'),
    ],
)
def test_invalid_journal_is_not_an_empty_one(data: bytes) -> None:
    with pytest.raises(DamagedNodeError, match=r"/ottla/healing is damaged"):
        JOURNAL_FORMAT.decode(data)


def test_keys_of_later_brokers_of_the_same_version_are_passed_over() -> None:
    assert JOURNAL_FORMAT.decode(json.dumps({**json.loads(JOURNAL_FORMAT.encode(FULL)), "more": 1}).encode()) == FULL


def test_the_most_moves_at_a_time_fit_into_one_node() -> None:
    """Topics with the longest names, brokers with the longest numbers, five replicas."""
    it = HealingHarness(8)
    it.image = it.image.with_brokers({id_: broker(id_) for id_ in FAR})
    it.all = range(FAR[0], FAR[-1] + 1)
    it.folders = dict.fromkeys(it.all, (LogDir(10_000 * GIGABYTE, 9_999 * GIGABYTE),))
    for number in range(MOVES_MAX + 1):
        it.topic(f"{number:03d}".ljust(NAME_LENGTH_MAX, "x"), FAR[:5])
    it.lose(FAR[0])
    it.limits = HealLimits(moves_max=MOVES_MAX)
    assert len(it.begin().moves) == MOVES_MAX
    assert len(JOURNAL_FORMAT.encode(it.journal)) < TRANSACTION_BYTES_MAX
    with pytest.raises(SettingsError, match=r"ottla\.heal\.moves\.max"):
        load_broker_settings(None, {"ottla.heal.moves.max": str(MOVES_MAX + 1)})


def test_plan_for_thirty_thousand_partitions_scans_them_once() -> None:
    it = HealingHarness(20)
    rows = [tuple((number + 3 * place) % 20 + 1 for place in range(3)) for number in range(1_000)]
    partitions = tuple(PartitionImage(row[0], 0, row, row) for row in rows)
    topics = [TopicImage(f"t{number}", UUID(int=number), partitions) for number in range(30)]
    it.image = it.image.with_topics(topics)
    it.image = decide_broker_changes(
        it.image, {id_: broker(id_) for id_ in it.all if id_ != 4}, BrokerAvailability(), it.rules
    ).image
    it.lost = frozenset({4})
    it.limits = HealLimits(moves_max=MOVES_MAX)
    began = time.process_time()
    begun = decide_start(it.image, it.node, it.situation())
    assert len(begun.reply.moves) == MOVES_MAX
    again = it.node.after(begun.reply.journal)
    assert decide_start(begun.image, again, it.situation()).reply.moves == ()
    assert decide_cleanup(begun.image, again, it.situation()).reply.ended == ()
    assert time.process_time() - began < 10.0, "one go takes a fraction of a second, and any loop in a loop minutes"
