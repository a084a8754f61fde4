"""The journal of healing: what is written is read again, and what is damaged is left alone."""

from __future__ import annotations

import json
import time
from uuid import UUID

import pytest

from ottla.base.broker_keys.healing import MOVES_MAX
from ottla.base.broker_settings import load_broker_settings
from ottla.base.names import TopicPartition
from ottla.base.settings import SettingsError
from ottla.controller.decisions.healing.journal import FORM, FolderCount, Journal
from ottla.controller.decisions.healing.situation import Folder, Limits
from ottla.controller.decisions.healing.steps import decide_begin, decide_tidy
from ottla.controller.decisions.journals import HealMove, JournalNode, Throttle, Written
from ottla.controller.decisions.leader_election import decide_brokers
from ottla.controller.decisions.liveness import Liveness
from ottla.controller.decisions.splitting import BYTES_MAX
from ottla.controller.image import PartitionImage, TopicImage
from ottla.controller.stores.store import CreateNode, Node, SetNode
from ottla.controller.tree import DamagedNodeError
from unit.controller.stand import broker
from unit.controller.ward import GIGABYTE, Ward

FAR = tuple(range(2**31 - 9, 2**31 - 1))
NAME_LENGTH_MAX = 249
FULL = Journal(
    {4: 61_000},
    {2: FolderCount(5_000, 3)},
    {1: "a", 4: "b"},
    (HealMove(TopicPartition("orders", 7), (4,), (2,)),),
    Throttle(
        {("orders", "leader.replication.throttled.replicas"): Written("7:1,7:3", frozenset({"7:1"}))},
        {(1, "leader.replication.throttled.rate"): "50000000"},
    ),
    ("broker 4 is in maintenance",),
)


@pytest.mark.parametrize("journal", [Journal(), FULL])
def test_what_is_written_is_read_again(journal: Journal) -> None:
    assert FORM.decode(FORM.encode(journal)) == journal


def test_it_is_made_with_its_parent_and_then_changed_by_version() -> None:
    node = FORM.read(None, has_parent=False)
    assert [type(each) for each in node.operations(FULL)] == [CreateNode, CreateNode]
    assert [type(each) for each in FORM.read(None, has_parent=True).operations(FULL)] == [CreateNode]
    assert node.after(FULL).operations(FULL) == (SetNode(FORM.path, FORM.encode(FULL), 0),)
    assert FORM.read(Node(FORM.encode(FULL), 8, 1), has_parent=True) == JournalNode(FORM, FULL, 8, has_parent=True)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff",
        FORM.encode(FULL)[:-1],
        FORM.encode(FULL).replace(b'"version":1', b'"version":2'),
        FORM.encode(FULL).replace(b'"moves":[{', b'"moves":[7,{'),
        FORM.encode(FULL).replace(b'"from":[4]', b'"from":4'),
        FORM.encode(FULL).replace(b'"away_ms":{"4"', b'"away_ms":{"four"'),
    ],
)
def test_what_is_no_journal_is_not_taken_for_an_empty_one(data: bytes) -> None:
    with pytest.raises(DamagedNodeError, match=r"/ottla/healing is damaged"):
        FORM.decode(data)


def test_keys_of_later_brokers_of_the_same_version_are_passed_over() -> None:
    assert FORM.decode(json.dumps({**json.loads(FORM.encode(FULL)), "more": 1}).encode()) == FULL


def test_the_most_moves_at_a_time_fit_into_one_node() -> None:
    """Topics with the longest names, brokers with the longest numbers, five replicas."""
    it = Ward(8)
    it.image = it.image.with_brokers({id_: broker(id_) for id_ in FAR})
    it.all = range(FAR[0], FAR[-1] + 1)
    it.folders = dict.fromkeys(it.all, (Folder(10_000 * GIGABYTE, 9_999 * GIGABYTE),))
    for number in range(MOVES_MAX + 1):
        it.topic(f"{number:03d}".ljust(NAME_LENGTH_MAX, "x"), FAR[:5])
    it.lose(FAR[0])
    it.limits = Limits(moves_max=MOVES_MAX)
    assert len(it.begin().moves) == MOVES_MAX
    assert len(FORM.encode(it.journal)) < BYTES_MAX
    with pytest.raises(SettingsError, match=r"ottla\.heal\.moves\.max"):
        load_broker_settings(None, {"ottla.heal.moves.max": str(MOVES_MAX + 1)})


def test_thirty_thousand_partitions_are_planned_for_in_one_go_through_them() -> None:
    it = Ward(20)
    rows = [tuple((number + 3 * place) % 20 + 1 for place in range(3)) for number in range(1_000)]
    partitions = tuple(PartitionImage(row[0], 0, row, row) for row in rows)
    topics = [TopicImage(f"t{number}", UUID(int=number), partitions) for number in range(30)]
    it.image = it.image.with_topics(topics)
    it.image = decide_brokers(it.image, {id_: broker(id_) for id_ in it.all if id_ != 4}, Liveness(), it.rules).image
    it.lost = frozenset({4})
    it.limits = Limits(moves_max=MOVES_MAX)
    began = time.process_time()
    begun = decide_begin(it.image, it.node, it.situation())
    assert len(begun.reply.moves) == MOVES_MAX
    again = it.node.after(begun.reply.journal)
    assert decide_begin(begun.image, again, it.situation()).reply.moves == ()
    assert decide_tidy(begun.image, again, it.situation()).reply.ended == ()
    assert time.process_time() - began < 10.0, "one go takes a fraction of a second, and any loop in a loop minutes"
