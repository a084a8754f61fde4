"""What balancing remembers in the store (journals.py): its moves, what it has slowed, what it has spent of its hour."""

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


def to_fields(journal: Journal) -> dict[str, Any]:
    return {
        "hour_began_ms": journal.hour_began_ms,
        "spent_bytes": journal.spent_bytes,
        **own_fields(journal.moves, journal.throttle),
    }


def from_fields(fields: Mapping[str, Any]) -> Journal:
    return Journal(
        decode_moves(fields), decode_throttle(fields), int(fields["hour_began_ms"]), int(fields["spent_bytes"])
    )


FORM: Final = JournalForm("/ottla/balance", 1, Journal(), to_fields, from_fields)
