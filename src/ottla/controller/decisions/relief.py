"""Brokers that rest lead nothing that somebody else can lead: those in maintenance, and slow ones. Pure.

Whatever a decision does (a new topic, a follower that is in sync again, a move that ends), the leaders that it leaves
to a broker that rests are given to others in the same write: nobody has to look again later.
"""

from __future__ import annotations

from typing import TypeVar

from ottla.controller.decisions.leader_election import decide_election
from ottla.controller.decisions.liveness import Liveness, Rules
from ottla.controller.decisions.machine import Decision
from ottla.controller.decisions.maintenance import brokers_in_maintenance
from ottla.controller.decisions.ottla_version import SELF_OPERATION, level
from ottla.controller.image import MetadataImage

R = TypeVar("R")


def resting_brokers(image: MetadataImage, now_ms: int, slow: frozenset[int]) -> frozenset[int]:
    """Nobody, while a broker that knows nothing of this may be the next controller."""
    if level(image) < SELF_OPERATION:
        return frozenset()
    return brokers_in_maintenance(image, now_ms) | slow


def with_relief(old: MetadataImage, decision: Decision[R], liveness: Liveness, defaults: Rules) -> Decision[R]:
    """A decision about anything, and what follows from it for leaders that rest in the topics that it changes."""
    new = decision.image
    if not liveness.resting or new is old:
        return decision
    relief = decide_election(new, liveness, defaults, only=new.changed_topics_since(old))
    if not relief.operations:
        return decision
    return decision._replace(operations=(*decision.operations, *relief.operations), image=relief.image)
