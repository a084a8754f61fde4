"""DescribeQuorum (key 55), v0-2: the metadata quorum. v1 times; v2 messages and addresses.

ottla has no metadata log. A standalone broker is described as a quorum of one: the controller is leader and only voter,
and offsets count metadata changes. In a cluster ZooKeeper stores the metadata and there is no quorum: Kafka 3.9 does
not serve this API then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.base.errors import Error
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.offload import TimeSlice, in_slices
from ottla.controller.image import MetadataImage
from ottla.protocol.messages.cluster import (
    DescribedQuorumPartition,
    DescribedQuorumTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    QuorumReplica,
)

if TYPE_CHECKING:
    from ottla.broker.context import Context

METADATA_TOPIC: Final = "__cluster_metadata"
IN_ZOOKEEPER: Final = "This cluster keeps its metadata in ZooKeeper: there is no quorum of controllers to describe."
UNKNOWN_PARTITION: Final = "This server does not host this topic-partition."


async def handle(request: DescribeQuorumRequest, context: Context) -> DescribeQuorumResponse:
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return DescribeQuorumResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED, error_message="")
    if context.broker.membership is not None:
        return DescribeQuorumResponse(error_code=Error.UNSUPPORTED_VERSION, error_message=IN_ZOOKEEPER)
    if not is_about_metadata(request):
        return await unknown_partitions(request)
    image = context.broker.image
    partition = quorum_of_one(image, context.broker.clock.now_ms())
    return DescribeQuorumResponse(
        error_message="",
        topics=[DescribedQuorumTopic(topic_name=METADATA_TOPIC, partitions=[partition])],
        nodes=[QuorumNode(node_id=image.controller_id, listeners=controller_listeners(image))],
    )


def quorum_of_one(image: MetadataImage, now_ms: int) -> DescribedQuorumPartition:
    controller = image.brokers.get(image.controller_id)
    offset = (controller.epoch if controller else 0) + image.generation
    voter = QuorumReplica(
        replica_id=image.controller_id,
        log_end_offset=offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return DescribedQuorumPartition(
        partition_index=0,
        error_message="",
        leader_id=image.controller_id,
        leader_epoch=image.controller_epoch,
        high_watermark=offset,
        current_voters=[voter],
    )


def controller_listeners(image: MetadataImage) -> list[QuorumListener]:
    controller = image.brokers.get(image.controller_id)
    endpoints = controller.endpoints if controller else {}
    return [QuorumListener(name=name, host=end.host, port=end.port) for name, end in endpoints.items()]


def is_about_metadata(request: DescribeQuorumRequest) -> bool:
    asked = [(topic.topic_name, topic.partitions) for topic in request.topics[:2]]
    return [(name, [row.partition_index for row in rows[:2]]) for name, rows in asked] == [(METADATA_TOPIC, [0])]


async def unknown_partitions(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    turn = TimeSlice()
    return DescribeQuorumResponse(
        error_message="",
        topics=[
            DescribedQuorumTopic(
                topic_name=topic.topic_name,
                partitions=[
                    DescribedQuorumPartition(
                        partition_index=item.partition_index,
                        error_code=Error.UNKNOWN_TOPIC_OR_PARTITION,
                        error_message=UNKNOWN_PARTITION,
                        leader_id=0,
                        leader_epoch=0,
                        high_watermark=0,
                    )
                    async for item in in_slices(topic.partitions, turn)
                ],
            )
            async for topic in in_slices(request.topics, turn)
        ],
    )
