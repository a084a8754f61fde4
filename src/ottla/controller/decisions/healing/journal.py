"""What healing remembers in the store: how long brokers have been away, its moves, what it has slowed down. Pure.

Rule 1: a move is written here in the transaction that begins it, before it, and leaves in the one that ends it, after
        it. So any controller knows which moves are healing's; all others are an operator's, and nobody touches them.
Rule 2: what cannot be read, or is of a version that nobody here knows, is not overwritten: healing stays off, and says
        so.
Rule 3: the node is written with the version that was read, so that of two writers one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.base.names import TopicPartition
from ottla.controller import tree
from ottla.controller.stores.store import CreateNode, Node, SetNode, StoreOperation

PARENT: Final = "/ottla"
PATH: Final = "/ottla/healing"
VERSION: Final = 1
MISSING: Final = -1  # the version of a node that is not there


class HealMove(NamedTuple):
    """Replicas of a partition that healing gives to others."""

    partition: TopicPartition
    gone: tuple[int, ...]  # who has lost it
    new: tuple[int, ...]  # who gets it


class Written(NamedTuple):
    """What healing has written into a topic's list of throttled replicas: the whole list, and its own words in it."""

    value: str
    words: frozenset[str]


class Throttle(NamedTuple):
    """The settings that are healing's own: by topic and key, and by broker and key."""

    replicas: Mapping[tuple[str, str], Written] = {}
    rates: Mapping[tuple[int, str], str] = {}


class FolderCount(NamedTuple):
    """How long a broker has had replicas that are offline, and how many."""

    ms: int
    replicas: int


class Journal(NamedTuple):
    """All that the next controller must know."""

    away_ms: Mapping[int, int] = {}
    offline: Mapping[int, FolderCount] = {}
    racks: Mapping[int, str] = {}  # also of brokers that are away
    moves: tuple[HealMove, ...] = ()
    throttle: Throttle = Throttle()
    waits: tuple[str, ...] = ()  # why nothing more is done, for people


class JournalNode(NamedTuple):
    """The journal, and what is needed to write the next one."""

    journal: Journal = Journal()
    version: int = MISSING
    has_parent: bool = False

    def operations(self, journal: Journal) -> tuple[StoreOperation, ...]:
        return node_operations(PATH, encode(journal), self.version, self.has_parent)

    def after(self, journal: Journal) -> JournalNode:
        """The node once that journal is written."""
        return JournalNode(journal, self.version + 1, has_parent=True)


def node_operations(path: str, data: bytes, version: int, has_parent: bool) -> tuple[StoreOperation, ...]:
    """Make a node below PARENT, or write over the version that was read."""
    if version != MISSING:
        return (SetNode(path, data, version),)
    create = CreateNode(path, data)
    return (create,) if has_parent else (CreateNode(PARENT), create)


def read(node: Node | None, has_parent: bool) -> JournalNode:
    """Raises DamagedNodeError for what is no journal that we know."""
    if node is None:
        return JournalNode(has_parent=has_parent)
    return JournalNode(decode(node.data), node.version, has_parent=True)


def encode(journal: Journal) -> bytes:
    return tree.to_json(
        {
            "version": VERSION,
            "away_ms": {str(broker): ms for broker, ms in sorted(journal.away_ms.items())},
            "offline": {str(broker): list(count) for broker, count in sorted(journal.offline.items())},
            "racks": {str(broker): rack for broker, rack in sorted(journal.racks.items())},
            **own_fields(journal.moves, journal.throttle),
            "waits": journal.waits,
        }
    )


def decode(data: bytes) -> Journal:
    with tree.reading(PATH):
        fields = tree.from_json(data)
        if fields["version"] != VERSION:
            raise ValueError(f"version {fields['version']} is not known to this broker")
        return Journal(
            {int(broker): int(ms) for broker, ms in fields["away_ms"].items()},
            {int(broker): FolderCount(*map(int, count)) for broker, count in fields["offline"].items()},
            {int(broker): str(rack) for broker, rack in fields["racks"].items()},
            decode_moves(fields),
            decode_throttle(fields),
            tuple(map(str, fields["waits"])),
        )


def own_fields(moves: tuple[HealMove, ...], throttle: Throttle) -> dict[str, Any]:
    """Moves and throttles of the controller's own, as every journal keeps them."""
    return {
        "moves": [
            {"topic": name.topic, "partition": name.partition, "from": gone, "to": new} for name, gone, new in moves
        ],
        "throttled_replicas": [
            {"topic": topic, "key": key, "value": written.value, "words": sorted(written.words)}
            for (topic, key), written in sorted(throttle.replicas.items())
        ],
        "throttled_brokers": [
            {"broker": broker, "key": key, "value": value} for (broker, key), value in sorted(throttle.rates.items())
        ],
    }


def decode_moves(fields: Mapping[str, Any]) -> tuple[HealMove, ...]:
    return tuple(
        HealMove(tree.partition_name(row), tuple(map(tree.int32, row["from"])), tuple(map(tree.int32, row["to"])))
        for row in fields["moves"]
    )


def decode_throttle(fields: Mapping[str, Any]) -> Throttle:
    return Throttle(
        {
            (str(row["topic"]), str(row["key"])): Written(str(row["value"]), frozenset(map(str, row["words"])))
            for row in fields["throttled_replicas"]
        },
        {(int(row["broker"]), str(row["key"])): str(row["value"]) for row in fields["throttled_brokers"]},
    )
