"""The journals of healing and balancing in the store: the state that the next controller needs. Pure.

Rule 1: a move is added in the transaction that starts it, before it, and removed in the one that ends it, after it. So
        any controller knows its own moves; all others belong to operators and are never changed.
Rule 2: a journal that cannot be read, or has an unknown version, is not overwritten: the work is disabled, and an error
        is logged.
Rule 3: the node is written with the version that was read, so one of two concurrent writers is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ottla.base.names import TopicPartition
from ottla.controller import tree
from ottla.controller.stores.store import CreateNode, Node, SetNode, StoreOperation

PARENT: Final = "/ottla"
MISSING: Final = -1  # the version of a node that does not exist

J = TypeVar("J")


class ReplicaMove(NamedTuple):
    """Replicas of a partition that move to other brokers."""

    partition: TopicPartition
    removed: tuple[int, ...]  # the brokers to remove
    added: tuple[int, ...]  # the brokers to add

    @property
    def is_same_broker(self) -> bool:
        """Whether the replicas are rebuilt in other log directories of the same brokers."""
        return self.removed == self.added


class WrittenThrottle(NamedTuple):
    """A list of throttled replicas as written to a topic: the whole value, and the controller's own entries in it."""

    value: str
    replicas: frozenset[str]


class Throttle(NamedTuple):
    """The throttle settings that the controller has written, by topic and key, and by broker and key."""

    replicas: Mapping[tuple[str, str], WrittenThrottle] = {}
    rates: Mapping[tuple[int, str], str] = {}


class JournalFormat(NamedTuple, Generic[J]):
    """The path and the format of a kind of journal."""

    path: str
    version: int
    empty: J
    to_fields: Callable[[J], Mapping[str, Any]]
    from_fields: Callable[[Mapping[str, Any]], J]

    def encode(self, journal: J) -> bytes:
        return tree.to_json({"version": self.version, **self.to_fields(journal)})

    def decode(self, data: bytes) -> J:
        """Decode a journal. Raises DamagedNodeError for invalid contents and unknown versions."""
        with tree.reading(self.path):
            fields = tree.from_json(data)
            if fields["version"] != self.version:
                raise ValueError(f"version {fields['version']} is not known to this broker")
            return self.from_fields(fields)

    def read(self, node: Node | None, *, has_parent: bool) -> JournalNode[J]:
        """Return the journal of a node that may not exist."""
        if node is None:
            return JournalNode(self, self.empty, MISSING, has_parent)
        return JournalNode(self, self.decode(node.data), node.version, has_parent=True)


class JournalNode(NamedTuple, Generic[J]):
    """A journal with its node, to write the next version."""

    format: JournalFormat[J]
    journal: J
    version: int
    has_parent: bool

    def operations(self, journal: J) -> tuple[StoreOperation, ...]:
        path, data = self.format.path, self.format.encode(journal)
        if self.version != MISSING:
            return (SetNode(path, data, self.version),)
        return (CreateNode(path, data),) if self.has_parent else (CreateNode(PARENT), CreateNode(path, data))

    def after(self, journal: J) -> JournalNode[J]:
        """Return the node after the write of that journal."""
        return self._replace(journal=journal, version=self.version + 1, has_parent=True)


def encode_moves_and_throttle(moves: tuple[ReplicaMove, ...], throttle: Throttle) -> dict[str, Any]:
    """Encode the moves and throttles of a journal."""
    return {
        "moves": [
            {"topic": name.topic, "partition": name.partition, "from": gone, "to": new} for name, gone, new in moves
        ],
        "throttled_replicas": [
            {"topic": topic, "key": key, "value": written.value, "words": sorted(written.replicas)}
            for (topic, key), written in sorted(throttle.replicas.items())
        ],
        "throttled_brokers": [
            {"broker": broker, "key": key, "value": value} for (broker, key), value in sorted(throttle.rates.items())
        ],
    }


def decode_moves(fields: Mapping[str, Any]) -> tuple[ReplicaMove, ...]:
    return tuple(
        ReplicaMove(tree.partition_name(row), tuple(map(tree.int32, row["from"])), tuple(map(tree.int32, row["to"])))
        for row in fields["moves"]
    )


def decode_throttle(fields: Mapping[str, Any]) -> Throttle:
    return Throttle(
        {
            (str(row["topic"]), str(row["key"])): WrittenThrottle(str(row["value"]), frozenset(map(str, row["words"])))
            for row in fields["throttled_replicas"]
        },
        {(int(row["broker"]), str(row["key"])): str(row["value"]) for row in fields["throttled_brokers"]},
    )
