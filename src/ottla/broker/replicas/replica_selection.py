"""Which replica a consumer should read from (KIP-392): one in its own rack, if that has what it asks for."""

from __future__ import annotations

from typing import Final

from ottla.controller.image import BrokerImage, MetadataImage
from ottla.replication.partition import Partition

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
NONE_PREFERRED: Final = -1


def preferred_replica(partition: Partition, offset: int, rack: str, image: MetadataImage, listener_name: str) -> int:
    """The broker to go to; -1 if the leader itself will do."""
    if not is_in_rack(image.brokers.get(partition.node_id), rack, None):
        found = [
            (follower.end_offset, -follower.broker_id)
            for follower in partition.followers
            if follower.broker_id in partition.in_sync
            and 0 <= follower.log_start_offset <= offset <= follower.end_offset
            and is_in_rack(image.brokers.get(follower.broker_id), rack, listener_name)
        ]
        if found:
            return -max(found)[1]
    return NONE_PREFERRED


def is_in_rack(broker: BrokerImage | None, rack: str, listener_name: str | None) -> bool:
    """Whether a broker is alive, stands in that rack and can be reached by who came through that listener."""
    if broker is None or broker.rack != rack:
        return False
    return listener_name is None or listener_name in broker.endpoints
