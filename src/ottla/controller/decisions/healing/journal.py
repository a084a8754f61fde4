"""What healing remembers in the store (journals.py): how long brokers have been away, its moves, what it has slowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.controller.decisions.journals import (
    HealMove,
    JournalForm,
    Throttle,
    decode_moves,
    decode_throttle,
    own_fields,
)


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


def to_fields(journal: Journal) -> dict[str, Any]:
    return {
        "away_ms": {str(broker): ms for broker, ms in sorted(journal.away_ms.items())},
        "offline": {str(broker): list(count) for broker, count in sorted(journal.offline.items())},
        "racks": {str(broker): rack for broker, rack in sorted(journal.racks.items())},
        **own_fields(journal.moves, journal.throttle),
        "waits": journal.waits,
    }


def from_fields(fields: Mapping[str, Any]) -> Journal:
    return Journal(
        {int(broker): int(ms) for broker, ms in fields["away_ms"].items()},
        {int(broker): FolderCount(*map(int, count)) for broker, count in fields["offline"].items()},
        {int(broker): str(rack) for broker, rack in fields["racks"].items()},
        decode_moves(fields),
        decode_throttle(fields),
        tuple(map(str, fields["waits"])),
    )


FORM: Final = JournalForm("/ottla/healing", 1, Journal(), to_fields, from_fields)
