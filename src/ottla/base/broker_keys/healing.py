"""Replicas that the controller gives to others when a broker or a folder is lost."""

from __future__ import annotations

from typing import Final

from ottla.base.broker_keys.words import CLUSTER_WIDE
from ottla.base.settings import Int, Long, Settings

MOVES_MAX: Final = 200  # what is under way stands in one node of ZooKeeper, which takes a megabyte


class HealingKeys(Settings):
    """Replicas that the controller gives to others."""

    ottla_heal_after_ms = Long(
        600_000,
        at_least=-1,
        mode=CLUSTER_WIDE,
        note="How long a broker must be away, or a folder have failed, before its replicas are given to other brokers; "
        "-1: never.",
    )
    ottla_heal_brokers_max = Int(
        1,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Brokers that may be away, or have failed folders, at the same time: while there are more, healing waits.",
    )
    ottla_heal_disk_max_percentage = Int(
        85,
        at_least=1,
        at_most=100,
        mode=CLUSTER_WIDE,
        note="How full healing may make a disk: what would make it fuller waits.",
    )
    ottla_heal_moves_max = Int(
        10,
        at_least=1,
        at_most=MOVES_MAX,
        mode=CLUSTER_WIDE,
        note="Partitions whose replicas healing moves at the same time.",
    )
    ottla_heal_throttle_rate = Long(
        50_000_000,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Most bytes in a second that healing copies to a broker, and from one; a broker that has "
        "leader.replication.throttled.rate or follower.replication.throttled.rate keeps those.",
    )
