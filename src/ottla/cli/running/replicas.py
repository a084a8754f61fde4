"""How many replicas a new cluster keeps: of three any one broker may die, and nothing is lost and nobody waits."""

from __future__ import annotations

from typing import Final

REPLICAS_MAX: Final = 3


def replica_settings(brokers: int) -> dict[str, str]:
    """Three replicas, or as many as there are brokers; from three on two of them have what was acknowledged."""
    replicas = min(REPLICAS_MAX, brokers)
    in_sync = max(1, replicas - 1)
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
    }
