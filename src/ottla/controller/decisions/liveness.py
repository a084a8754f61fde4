"""Who can be counted on: which replicas of a partition can lead it, and by which rules. Pure values.

A broker is alive while it is registered, which is what the image says. The rest is known to the active controller only
and is told again by the brokers when there is a new one: who is about to stop, and whose folders have failed. Who rests
(maintenance.py, slow_brokers.py) is found again by the next controller from what it sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from ottla.controller.decisions.eligible_leaders import is_on
from ottla.controller.image import MetadataImage, PartitionImage

NO_LIVES: Mapping[int, int] = {}
NO_OFFLINE: Mapping[int, frozenset[tuple[UUID, int]]] = {}


class Liveness(NamedTuple):
    """What the active controller knows of brokers beside the image."""

    shutting_down: frozenset[int] = frozenset()  # they lead nothing new and leave the ISRs
    offline: Mapping[int, frozenset[tuple[UUID, int]]] = NO_OFFLINE  # by broker: replicas in failed folders
    known: Mapping[int, int] = NO_LIVES  # by broker: a life with an epoch below this is the one that the ISRs mean
    resting: frozenset[int] = frozenset()  # they stay in the ISRs, and lead only what nobody else in sync can lead

    def has_offline(self, broker: int, topic_id: UUID, index: int) -> bool:
        return (topic_id, index) in self.offline.get(broker, ())

    def with_offline(self, broker: int, replicas: frozenset[tuple[UUID, int]]) -> Liveness:
        """All replicas of a broker in failed folders; none is none."""
        others = {id_: names for id_, names in self.offline.items() if id_ != broker}
        return self._replace(offline={**others, broker: replicas} if replicas else others)


class Rules(NamedTuple):
    """The settings of a topic that decide about its leaders."""

    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    keeps_eligible: bool = True  # eligible.leader.replicas.version


class ElectionSettings(Protocol):
    """What decides about the leaders of topics that have no such settings of their own."""

    @property
    def min_insync_replicas(self) -> int: ...

    @property
    def unclean_leader_election_enable(self) -> bool: ...


def rules_by(settings: ElectionSettings) -> Rules:
    return Rules(settings.min_insync_replicas, settings.unclean_leader_election_enable)


def rules_of(image: MetadataImage, topic: str, defaults: Rules) -> Rules:
    """The rules of one topic; its own settings count before the broker's. A damaged value counts as not set."""
    if defaults.keeps_eligible != is_on(image):
        defaults = defaults._replace(keeps_eligible=is_on(image))
    own = image.topic_configs.get(topic)
    if not own:
        return defaults
    minimum = own.get("min.insync.replicas", "")
    unclean = own.get("unclean.leader.election.enable", "").strip().lower()
    return Rules(
        int(minimum) if minimum.strip().isdigit() else defaults.min_insync_replicas,
        unclean == "true" if unclean in ("true", "false") else defaults.unclean_leader_election,
        defaults.keeps_eligible,
    )


def with_isr(partition: PartitionImage, isr: tuple[int, ...], rules: Rules) -> PartitionImage:
    """Another ISR, and who is eligible to lead beside it (KIP-966).

    Whoever leaves an ISR that is then smaller than min.insync.replicas has everything that is committed, and keeps it
    for as long as the ISR is that small: nothing more is committed meanwhile. A large enough ISR needs no others.
    """
    if len(isr) >= min(rules.min_insync_replicas, len(partition.replicas)):
        return partition._replace(isr=isr, eligible=(), last_known_eligible=())
    had_all = dict.fromkeys((*partition.eligible, *partition.isr) if rules.keeps_eligible else ())
    eligible = tuple(broker for broker in had_all if broker not in isr and broker in partition.replicas)
    known = tuple(broker for broker in partition.last_known_eligible if broker not in (*isr, *eligible))
    return partition._replace(isr=isr, eligible=eligible, last_known_eligible=known)
