"""What healing does, at the broker that is the controller; the others tell nothing."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.controller.cluster.healing import HealingStatus
from ottla.metrics.prometheus import Family, Sample


def healing_families(status: HealingStatus | None) -> Iterator[Family]:
    """`status` is None at a broker that is alone or not the controller."""
    if status is None:
        return
    away = [Sample((("broker", str(broker)),), ms / 1000) for broker, ms in sorted(status.away_ms.items())]
    yield Family("ottla_healing_away_seconds", "gauge", "How long brokers have been away that hold replicas.", away)
    moves = [Sample((), status.moves)]
    yield Family("ottla_healing_moves", "gauge", "Partitions whose replicas healing is moving.", moves)
    waits = [Sample((("reason", reason),), 1) for reason in status.waits]
    yield Family("ottla_healing_waits", "gauge", "Why healing begins nothing more.", waits)
