"""Restarted brokers: detection of restarts, and of unclean shutdowns that may have lost acknowledged records. Pure.

A broker whose process was killed has all its records. After a power or disk failure it may lack records that it has
acknowledged as a follower. As a member of the ISR (or ELR) it could be elected, and these records would be lost on all
brokers. So it leaves both (KIP-966), unless it registers with the epoch of a clean shutdown (`previous_epoch`), and
the ISRs refer to that epoch.

The active controller keeps these epochs (`BrokerAvailability.known`). A new controller finds them in the store:
each state has the newest broker epoch that its writer knew, so any newer epoch is a restart. If a state of another tool
lacks it, any epoch newer than the node is a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.controller import tree
from ottla.controller.image import BrokerImage, MetadataImage, PartitionImage
from ottla.controller.stores.store import Node


class RestartedBrokers(NamedTuple):
    """Brokers with a new epoch."""

    restarted: frozenset[int] = frozenset()
    unclean: frozenset[int] = frozenset()  # the restarted brokers that may have lost records


def broker_epoch_bounds(nodes: Mapping[str, Node], image: MetadataImage) -> dict[int, int]:
    """Return, for a new controller, the bounds below which a broker's epoch is the one that the ISRs refer to."""
    known: dict[int, int] = {}
    bounds: dict[bytes, int] = {}  # many states are equal, and decoding is slow
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if partition.is_damaged:
                continue
            path = tree.partition_state_path(topic.name, index)
            node = nodes.get(path)
            bound = bounds.get(node.data) if node is not None else 0
            if bound is None:
                bound = epoch_bound(path, node)
                # otherwise the bound depends on the node, not on its data
                if node is not None and bound != node.modified_id:
                    bounds[node.data] = bound
            for broker in {partition.leader, *partition.isr, *partition.elr} if bound else ():
                known[broker] = min(known.get(broker, bound), bound)
    return known


def epoch_bound(path: str, node: Node | None) -> int:
    """Return the bound of the broker epochs that a state refers to; 0 if it is unknown.

    The id of the write alone is too high: its writer may not have noticed a registration that existed already.
    """
    if node is None or not node.modified_id:
        return 0
    known_life = tree.decode_partition_state(path, node.data).known_life
    return known_life + 1 if known_life >= 0 else node.modified_id


def find_restarted(
    image: MetadataImage, brokers: Mapping[int, BrokerImage], known: Mapping[int, int]
) -> RestartedBrokers:
    """Return the brokers whose epochs are newer than the known bounds."""
    lives = updated_epoch_bounds(image.brokers, {}) | dict(known)
    restarted = frozenset(id_ for id_, broker in brokers.items() if id_ in lives and broker.epoch >= lives[id_])
    lost = frozenset(id_ for id_ in restarted if not 0 <= brokers[id_].previous_epoch < lives[id_])
    return RestartedBrokers(restarted, lost)


def without_unclean(old: PartitionImage, lost: frozenset[int]) -> PartitionImage:
    """Remove brokers that may lack records from ISR and ELR; they become last known eligible, the leader first."""
    gone = [broker for broker in (old.leader, *old.isr, *old.elr) if broker in lost]
    if not gone:
        return old
    return old._replace(
        isr=tuple(broker for broker in old.isr if broker not in lost),
        elr=tuple(broker for broker in old.elr if broker not in lost),
        last_known_elr=tuple(dict.fromkeys((*gone, *old.last_known_elr))),
    )


def updated_epoch_bounds(brokers: Mapping[int, BrokerImage], known: Mapping[int, int]) -> dict[int, int]:
    """Return the epoch bounds after the ISRs were reconciled with these brokers."""
    return {**known, **{id_: broker.epoch + 1 for id_, broker in brokers.items()}}
