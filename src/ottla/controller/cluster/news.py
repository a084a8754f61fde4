"""What the active controller writes into its log when it finds something changed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from ottla.controller.decisions.leader_election import Election
from ottla.controller.image import BrokerImage

logger = logging.getLogger(__name__)

DAMAGED_NAMED_MAX: Final = 20  # in one line


def tell_brokers(before: Mapping[int, BrokerImage], brokers: Mapping[int, BrokerImage]) -> list[int]:
    """Whoever is new, gone or restarted, as Kafka tells it; the result are those whose earlier life is over."""
    new, dead, restarted = compare(before, brokers)
    if new or dead or restarted:
        logger.info(
            "[Controller] Newly added brokers: %s, deleted brokers: %s, bounced brokers: %s, all live brokers: %s",
            *(",".join(map(str, ids)) for ids in (new, dead, restarted, sorted(brokers))),
        )
    return [*dead, *restarted]


def tell_damage(old: frozenset[str], new: frozenset[str]) -> None:
    """Nodes of the store that cannot be read, and those that can again: each is told once."""
    if new - old:
        logger.error(
            "[Controller] %d nodes of the store cannot be read: what they stand for stays as it was last known "
            "and is not changed until somebody restores them: %s",
            len(new - old),
            ", ".join(sorted(new - old)[:DAMAGED_NAMED_MAX]),
        )
    if old - new:
        readable = ", ".join(sorted(old - new)[:DAMAGED_NAMED_MAX])
        logger.info("[Controller] nodes of the store that can be read again, or are gone: %s", readable)


def tell_election(election: Election) -> None:
    if election.elected or election.leaderless:
        logger.info(
            "[Controller] %d partitions have a new leader or leader epoch, %d have none",
            election.elected,
            len(election.leaderless),
        )


def compare(
    before: Mapping[int, BrokerImage], after: Mapping[int, BrokerImage]
) -> tuple[list[int], list[int], list[int]]:
    """Who is new, who is gone, and who has begun another life."""
    new = [broker for broker in after if broker not in before]
    dead = [broker for broker in before if broker not in after]
    restarted = [id_ for id_ in after if id_ in before and before[id_].epoch != after[id_].epoch]
    return new, dead, restarted
