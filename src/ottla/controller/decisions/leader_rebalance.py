"""The periodic leader rebalance: when leadership returns to the preferred replicas. Pure.

The timer and the write: controller/cluster/leader_rebalance.py. One election: elect_leaders.py.
"""

from __future__ import annotations

from ottla.base.names import TopicPartition
from ottla.controller.decisions.decision import Decision, partition_operations
from ottla.controller.decisions.elect_leaders import elect_preferred
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, LeaderCandidates
from ottla.controller.decisions.reassignment import is_reassigning
from ottla.controller.image import MetadataImage, PartitionImage


def decide_leader_rebalance(image: MetadataImage, percentage_max: int, liveness: BrokerAvailability) -> Decision[int]:
    """Return leadership to the preferred replicas of brokers whose imbalance exceeds the maximum.

    The imbalance of a broker is the percentage of its preferred partitions that other brokers lead. Partitions that are
    being reassigned do not change, nor those whose preferred replica is not in sync or demoted. The reply is the number
    of changed leaders.
    """
    should, strayed = preferred_leader_counts(image)
    brokers = LeaderCandidates(image, liveness)
    changes: dict[TopicPartition, PartitionImage] = {}
    for broker, names in strayed.items():
        if broker not in image.brokers or 100 * len(names) <= percentage_max * should[broker]:
            continue
        for name in names:
            old = image.topics[name.topic].partitions[name.partition]
            if is_reassigning(old):
                continue
            answer = elect_preferred(old, brokers.for_partition(name), liveness.demoted)
            if isinstance(answer, PartitionImage):
                changes[name] = answer
    return Decision(*partition_operations(image, changes), len(changes))


def preferred_leader_counts(image: MetadataImage) -> tuple[dict[int, int], dict[int, list[TopicPartition]]]:
    """Return for each broker the number of partitions that prefer it, and of those that other brokers lead."""
    should: dict[int, int] = {}
    strayed: dict[int, list[TopicPartition]] = {}
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            preferred = partition.replicas[0]
            should[preferred] = should.get(preferred, 0) + 1
            if partition.leader != preferred:
                strayed.setdefault(preferred, []).append(TopicPartition(topic.name, index))
    return should, strayed
