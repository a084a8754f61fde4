"""Preferred read replica of a consumer (KIP-392): a caught-up replica in the consumer's rack."""

from __future__ import annotations

from typing import Final

from ottla.controller.image import BrokerImage, MetadataImage
from ottla.replication.partition import Partition

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
NO_PREFERRED_REPLICA: Final = -1


def preferred_replica(partition: Partition, offset: int, rack: str, image: MetadataImage, listener_name: str) -> int:
    """Return the preferred broker; -1 for the leader."""
    if not is_in_rack(image.brokers.get(partition.node_id), rack, None):
        found = [
            (follower.log_end_offset, -follower.broker_id)
            for follower in partition.followers
            if follower.broker_id in partition.isr
            and 0 <= follower.log_start_offset <= offset <= follower.log_end_offset
            and is_in_rack(image.brokers.get(follower.broker_id), rack, listener_name)
        ]
        if found:
            return -max(found)[1]
    return NO_PREFERRED_REPLICA


def is_in_rack(broker: BrokerImage | None, rack: str, listener_name: str | None) -> bool:
    """Return whether a broker is alive, is in that rack, and has this listener."""
    if broker is None or broker.rack != rack:
        return False
    return listener_name is None or listener_name in broker.endpoints
