"""What the controller's own work, healing and balancing, remembers in the store: a journal each. Pure.

Rule 1: a move is written here in the transaction that begins it, before it, and leaves in the one that ends it, after
        it. So any controller knows which moves are its own; all others are an operator's, and nobody touches them.
Rule 2: what cannot be read, or is of a version that nobody here knows, is not overwritten: the work stays off, and says
        so.
Rule 3: the node is written with the version that was read, so that of two writers one is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ottla.base.names import TopicPartition
from ottla.controller import tree
from ottla.controller.stores.store import CreateNode, Node, SetNode, StoreOperation

PARENT: Final = "/ottla"
MISSING: Final = -1  # the version of a node that is not there

J = TypeVar("J")


class HealMove(NamedTuple):
    """Replicas of a partition that are given to others."""

    partition: TopicPartition
    gone: tuple[int, ...]  # who has lost it
    new: tuple[int, ...]  # who gets it

    @property
    def is_at_home(self) -> bool:
        """A folder has failed: whoever has lost it gets it anew, in another folder."""
        return self.gone == self.new


class Written(NamedTuple):
    """What was written into a topic's list of throttled replicas: the whole list, and the controller's words in it."""

    value: str
    words: frozenset[str]


class Throttle(NamedTuple):
    """The settings that are the controller's own: by topic and key, and by broker and key."""

    replicas: Mapping[tuple[str, str], Written] = {}
    rates: Mapping[tuple[int, str], str] = {}


class JournalForm(NamedTuple, Generic[J]):
    """Where a kind of journal stands, and what its bytes mean; `decode` raises what tree.reading() tells."""

    path: str
    version: int
    empty: J
    to_fields: Callable[[J], Mapping[str, Any]]
    from_fields: Callable[[Mapping[str, Any]], J]

    def encode(self, journal: J) -> bytes:
        return tree.to_json({"version": self.version, **self.to_fields(journal)})

    def decode(self, data: bytes) -> J:
        """Raises DamagedNodeError for what is no journal that we know."""
        with tree.reading(self.path):
            fields = tree.from_json(data)
            if fields["version"] != self.version:
                raise ValueError(f"version {fields['version']} is not known to this broker")
            return self.from_fields(fields)

    def read(self, node: Node | None, *, has_parent: bool) -> JournalNode[J]:
        """The same for a node that may not be there."""
        if node is None:
            return JournalNode(self, self.empty, MISSING, has_parent)
        return JournalNode(self, self.decode(node.data), node.version, has_parent=True)


class JournalNode(NamedTuple, Generic[J]):
    """A journal, and what is needed to write the next one."""

    form: JournalForm[J]
    journal: J
    version: int
    has_parent: bool

    def operations(self, journal: J) -> tuple[StoreOperation, ...]:
        path, data = self.form.path, self.form.encode(journal)
        if self.version != MISSING:
            return (SetNode(path, data, self.version),)
        return (CreateNode(path, data),) if self.has_parent else (CreateNode(PARENT), CreateNode(path, data))

    def after(self, journal: J) -> JournalNode[J]:
        """The node once that journal is written."""
        return self._replace(journal=journal, version=self.version + 1, has_parent=True)


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
