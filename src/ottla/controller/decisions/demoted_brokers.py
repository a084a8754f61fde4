"""Demoted brokers: brokers in maintenance, and slow ones. Pure.

A demoted broker stays in the ISRs, but leads only partitions that no other replica in sync can lead: a demotion never
leaves a partition without a leader. A broker of an older version would ignore demotions as the controller, so they take
effect only when all brokers support them (ottla_version.py).

Maintenance is a setting of the broker with an end time, so no broker stays demoted by mistake. It is stored in
the metadata and survives changes of the controller and restarts of the broker. Healing does not move its replicas.

A broker lags if at least half of its replicas are out of sync, or if its fastest recent sync takes longer than
ottla.heal.slow.sync.ms. A broker that lags for ottla.heal.slow.after.ms without interruption is slow, until it has not
lagged for the same time. This hysteresis prevents leaders from moving back and forth.

1. Replicas that a reassignment adds, and partitions with a single replica, are ignored.
2. A failed broker is not slow. For a restarted broker the time starts again.
3. If half of all brokers or more lag, the cause is not a single broker: no further broker becomes slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

from ottla.controller.decisions.decision import Decision
from ottla.controller.decisions.leader_election import decide_election
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, ElectionRules
from ottla.controller.decisions.ottla_version import SELF_BALANCING_LEVEL, cluster_level
from ottla.controller.image import MetadataImage

MAINTENANCE_UNTIL_KEY: Final = "ottla.maintenance.until.ms"  # by the controller's clock, in milliseconds since 1970
DISABLED: Final = -1  # the value of ottla.heal.slow.after.ms that disables the detection

R = TypeVar("R")


def brokers_in_maintenance(image: MetadataImage, now_ms: int) -> frozenset[int]:
    """Return the brokers whose maintenance has not ended; an invalid value is ignored."""
    if cluster_level(image) < SELF_BALANCING_LEVEL:
        return frozenset()
    return frozenset(broker for broker, until_ms in maintenance_ends(image).items() if until_ms > now_ms)


def maintenance_ends(image: MetadataImage) -> dict[int, int]:
    """Return the end of the maintenance of each broker, even if it is in the past."""
    found = {}
    for broker, config in image.broker_configs.items():
        until = config.get(MAINTENANCE_UNTIL_KEY, "").strip()
        if broker.isdecimal() and until.isdecimal():
            found[int(broker)] = int(until)
    return found


class ReplicaLag(NamedTuple):
    """The replicas of a broker that count by rule 1, and those of them that are out of sync.

    broker_index.py counts them; partitions whose state cannot be read are also ignored.
    """

    shared_replicas: int = 0
    out_of_sync: int = 0
    slow_sync_ms: int = 0  # the sync time of its disk, if that is too long

    @property
    def is_behind(self) -> bool:
        return self.slow_sync_ms > 0 or (self.shared_replicas > 0 and 2 * self.out_of_sync >= self.shared_replicas)

    @property
    def reason(self) -> str:
        if self.slow_sync_ms:
            return f"its disk takes {self.slow_sync_ms} ms or longer for every sync"
        return f"out of sync in {self.out_of_sync} of its {self.shared_replicas} replicas"


def with_slow_disks(
    found: Mapping[int, ReplicaLag], sync_ms: Mapping[int, int], sync_ms_max: int
) -> Mapping[int, ReplicaLag]:
    """Add the reported sync times of disks that are too slow; NEVER disables this."""
    if sync_ms_max == DISABLED:
        return found
    slow = {broker: ms for broker, ms in sync_ms.items() if ms > sync_ms_max and broker in found}
    return {**found, **{broker: found[broker]._replace(slow_sync_ms=ms) for broker, ms in slow.items()}}


class SlowBrokerDetector:
    """Detects slow brokers during the term of a controller; `now_ms` is the time of a monotonic clock."""

    def __init__(self) -> None:
        self.slow: frozenset[int] = frozenset()
        self._since_ms: dict[int, tuple[int, int]] = {}  # broker -> epoch, time since which it differs from `slow`

    def update(
        self, image: MetadataImage, lags: Mapping[int, ReplicaLag], now_ms: int, after_ms: int
    ) -> frozenset[int]:
        """Update with the current shares; returns the slow brokers."""
        if after_ms == DISABLED:
            self.reset()
            return self.slow
        slow = {broker for broker in self.slow if broker in image.brokers}
        changing: dict[int, tuple[int, int]] = {}
        for broker, share in lags.items():
            epoch = image.brokers[broker].epoch
            if share.is_behind == (broker in slow):
                continue
            since_epoch, since_ms = self._since_ms.get(broker, (epoch, now_ms))
            if since_epoch != epoch:  # rule 2
                since_ms = now_ms
            changing[broker] = (epoch, since_ms)
        due = {broker for broker, (_, since_ms) in changing.items() if now_ms - since_ms >= after_ms}
        behind = sum(share.is_behind for share in lags.values())
        if 2 * behind >= len(image.brokers):  # rule 3
            due &= slow
        # Brokers whose state has changed start again; those held back by rule 3 keep their times.
        self._since_ms = {broker: since for broker, since in changing.items() if broker not in due}
        self.slow = frozenset(slow ^ due)
        return self.slow

    def reset(self) -> None:
        self.slow = frozenset()
        self._since_ms.clear()

    def __repr__(self) -> str:
        return f"<SlowBrokerDetector {sorted(self.slow)} watched={sorted(self._since_ms)}>"


def demoted_brokers(image: MetadataImage, now_ms: int, slow: frozenset[int]) -> frozenset[int]:
    """Return the demoted brokers; none while a broker that does not support demotions may become the controller."""
    if cluster_level(image) < SELF_BALANCING_LEVEL:
        return frozenset()
    return brokers_in_maintenance(image, now_ms) | slow


def with_demotions(
    old: MetadataImage, decision: Decision[R], liveness: BrokerAvailability, defaults: ElectionRules
) -> Decision[R]:
    """Add to any decision the leader changes that demotions require in the topics that it changes."""
    new = decision.image
    if not liveness.demoted or new is old:
        return decision
    relief = decide_election(new, liveness, defaults, topics=new.changed_topics_since(old))
    if not relief.operations:
        return decision
    return decision._replace(operations=(*decision.operations, *relief.operations), image=relief.image)
