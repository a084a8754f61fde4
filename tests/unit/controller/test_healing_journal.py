"""The journal of healing: what is written is read again, and what is damaged is left alone."""

from __future__ import annotations

import json

import pytest

from ottla.base.names import TopicPartition
from ottla.controller.decisions.healing.journal import FORM, FolderCount, Journal
from ottla.controller.decisions.journals import HealMove, JournalNode, Throttle, Written
from ottla.controller.stores.store import CreateNode, Node, SetNode
from ottla.controller.tree import DamagedNodeError

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
