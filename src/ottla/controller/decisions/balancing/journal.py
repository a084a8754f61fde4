"""What balancing remembers in the store: its moves, what it has slowed down, what it has spent of its hour. Pure.

The rules are those of healing's journal: a move stands here before it begins and until it has ended, so that any
controller knows which moves are balancing's own; a node that cannot be read is not overwritten, and nothing begins.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.controller import tree
from ottla.controller.decisions.healing.journal import (
    MISSING,
    HealMove,
    Throttle,
    decode_moves,
    decode_throttle,
    node_operations,
    own_fields,
)
from ottla.controller.stores.store import Node, StoreOperation

PATH: Final = "/ottla/balance"
VERSION: Final = 1
HOUR_MS: Final = 3_600_000


class Journal(NamedTuple):
    """All that the next controller must know."""

    moves: tuple[HealMove, ...] = ()
    throttle: Throttle = Throttle()
    hour_began_ms: int = 0  # since 1970
    spent_bytes: int = 0  # in that hour

    def spent(self, now_ms: int) -> int:
        """Of the hour that is running; one that began in the future was begun by another clock."""
        return self.spent_bytes if self.hour_began_ms <= now_ms < self.hour_began_ms + HOUR_MS else 0

    def with_spent(self, now_ms: int, size: int) -> Journal:
        before = self.spent(now_ms)
        began_ms = self.hour_began_ms if before else now_ms
        return self._replace(hour_began_ms=began_ms, spent_bytes=before + size) if size else self


class JournalNode(NamedTuple):
    """The journal, and what is needed to write the next one."""

    journal: Journal = Journal()
    version: int = MISSING
    has_parent: bool = False

    def operations(self, journal: Journal) -> tuple[StoreOperation, ...]:
        return node_operations(PATH, encode(journal), self.version, self.has_parent)

    def after(self, journal: Journal) -> JournalNode:
        return JournalNode(journal, self.version + 1, has_parent=True)


def read(node: Node | None, has_parent: bool) -> JournalNode:
    """Raises DamagedNodeError for what is no journal that we know."""
    if node is None:
        return JournalNode(has_parent=has_parent)
    return JournalNode(decode(node.data), node.version, has_parent=True)


def encode(journal: Journal) -> bytes:
    return tree.to_json(
        {
            "version": VERSION,
            "hour_began_ms": journal.hour_began_ms,
            "spent_bytes": journal.spent_bytes,
            **own_fields(journal.moves, journal.throttle),
        }
    )


def decode(data: bytes) -> Journal:
    with tree.reading(PATH):
        fields = tree.from_json(data)
        if fields["version"] != VERSION:
            raise ValueError(f"version {fields['version']} is not known to this broker")
        return Journal(
            decode_moves(fields),
            decode_throttle(fields),
            int(fields["hour_began_ms"]),
            int(fields["spent_bytes"]),
        )
