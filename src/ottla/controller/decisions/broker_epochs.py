"""Brokers that died and came back: whether their logs are still what the ISRs take them for. Pure.

A broker that was killed has all that it wrote; one that lost its power or its disk may lack records which it has
acknowledged as a follower. As long as it counts as in sync (or as eligible) it could be elected, and what it lacks
would be gone everywhere. So it counts no more (KIP-966), unless it says which life it goes on with (`previous_epoch`)
and that is the life that the ISRs mean.

Which life that is, the active controller remembers (`Liveness.known`). A new one finds it in the store: each state says
which registrations its writer knew, so one that is younger is a new life. (States that others wrote do not say so; then
a registration that is younger than the node is a new life.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.controller import tree
from ottla.controller.image import BrokerImage, MetadataImage, PartitionImage
from ottla.controller.stores.store import Node


class Returned(NamedTuple):
    """Brokers with a new life."""

    restarted: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()  # those of them that may have lost records


def known_broker_epochs(nodes: Mapping[str, Node], image: MetadataImage) -> dict[int, int]:
    """For a new controller: below which epoch a life of a broker is the one that the ISRs in the store mean."""
    known: dict[int, int] = {}
    bounds: dict[bytes, int] = {}  # many states are the same, and to read one takes long
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if partition.is_damaged:
                continue
            path = tree.partition_state_path(topic.name, index)
            node = nodes.get(path)
            bound = bounds.get(node.data) if node is not None else 0
            if bound is None:
                bound = bound_of(path, node)
                if node is not None and bound != node.modified_id:  # that one is the node's, and not the data's
                    bounds[node.data] = bound
            for broker in {partition.leader, *partition.isr, *partition.eligible} if bound else ():
                known[broker] = min(known.get(broker, bound), bound)
    return known


def bound_of(path: str, node: Node | None) -> int:
    """The lives with an epoch below are those that a state means; 0 if nobody can say.

    Who wrote it may not have noticed a registration that was there already; so it wrote down which ones it knew.
    """
    if node is None or not node.modified_id:
        return 0
    known_life = tree.decode_partition_state(path, node.data).known_life
    return known_life + 1 if known_life >= 0 else node.modified_id


def returned(image: MetadataImage, brokers: Mapping[int, BrokerImage], known: Mapping[int, int]) -> Returned:
    """Who of these brokers is not in the life any more that the controller knows."""
    lives = after_election(image.brokers, {}) | dict(known)
    restarted = frozenset(id_ for id_, broker in brokers.items() if id_ in lives and broker.epoch >= lives[id_])
    lost = frozenset(id_ for id_ in restarted if not 0 <= brokers[id_].previous_epoch < lives[id_])
    return Returned(restarted, lost)


def without_lost(old: PartitionImage, lost: frozenset[int]) -> PartitionImage:
    """Who may lack records is neither in sync nor eligible; the last one of them is remembered first."""
    gone = [broker for broker in (old.leader, *old.isr, *old.eligible) if broker in lost]
    if not gone:
        return old
    return old._replace(
        isr=tuple(broker for broker in old.isr if broker not in lost),
        eligible=tuple(broker for broker in old.eligible if broker not in lost),
        last_known_eligible=tuple(dict.fromkeys((*gone, *old.last_known_eligible))),
    )


def after_election(brokers: Mapping[int, BrokerImage], known: Mapping[int, int]) -> dict[int, int]:
    """What is known when the ISRs have been brought in line with these brokers."""
    return {**known, **{id_: broker.epoch + 1 for id_, broker in brokers.items()}}
