"""Replicas that the controller moves so that all brokers bear their share."""

from __future__ import annotations

from ottla.base.broker_keys.words import CLUSTER_WIDE
from ottla.base.settings import Boolean, Int, Long, Settings


class BalancingKeys(Settings):
    """Replicas that the controller moves by itself."""

    ottla_balance_enable = Boolean(
        False,
        mode=CLUSTER_WIDE,
        note="Whether the controller evens out replicas, leaders and bytes on disk as `ottla cluster balance` does, by "
        "itself, a little at a time. It waits while brokers are away or in maintenance, or others move replicas.",
    )
    ottla_balance_bytes_per_hour = Long(
        50_000_000_000,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Most bytes that balancing copies in an hour. A replica that is larger is moved in an hour of its own.",
    )
    ottla_balance_disk_max_percentage = Int(
        85,
        at_least=1,
        at_most=100,
        mode=CLUSTER_WIDE,
        note="Disks that are fuller are relieved first, and none is filled beyond that.",
    )
    ottla_balance_throttle_rate = Long(
        10_000_000,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Most bytes in a second that balancing copies to a broker, and from one.",
    )
