"""ElectLeaders (key 43), v0-2: elects preferred replicas as leaders, or any (KIP-183, KIP-460).

v1 unclean elections and an error of the response; v2 flexible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.offload import TimeSlice, in_slices
from ottla.controller.decisions.elect_leaders import ElectionResult, ElectionType, decide_elections
from ottla.protocol.messages.reassignments import (
    ElectionPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from ottla.broker.context import Context


async def handle(request: ElectLeadersRequest, context: Context) -> ElectLeadersResponse:
    wanted = None
    if request.topic_partitions is not None:
        turn = TimeSlice()
        wanted = [
            TopicPartition(row.topic, number)
            async for row in in_slices(request.topic_partitions, turn)
            async for number in in_slices(row.partitions, turn)
        ]
    if not context.is_authorized(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return await refused(wanted, KafkaError(Error.CLUSTER_AUTHORIZATION_FAILED))
    if request.topic_partitions == []:
        return ElectLeadersResponse()
    if request.election_type not in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        return await refused(
            wanted, KafkaError(Error.INVALID_REQUEST, f"Unknown election type {request.election_type}")
        )
    kind = ElectionType(request.election_type)
    liveness, rules = context.broker.election_state()
    image = context.broker.image
    try:
        results = await context.broker.controller.change(
            lambda image: decide_elections(image, kind, wanted, liveness, rules),
            timeout_ms=request.timeout_ms,
            size=image.partition_count if wanted is None else len(wanted),
        )
    except KafkaError as refusal:
        return await refused(wanted, refusal)
    names = context.broker.image.topics if wanted is None else ()
    return ElectLeadersResponse(replica_election_results=await rows(results, names))


async def refused(wanted: Sequence[TopicPartition] | None, refusal: KafkaError) -> ElectLeadersResponse:
    results = await rows(ElectionResult(name, refusal.error, refusal.message) for name in wanted or ())
    return ElectLeadersResponse(error_code=refusal.error, replica_election_results=results)


async def rows(results: Iterable[ElectionResult], names: Iterable[str] = ()) -> list[ReplicaElectionResult]:
    """Return one row per topic of the results, and per topic of `names`, even if empty."""
    topics = {name: ReplicaElectionResult(topic=name) for name in names}
    async for result in in_slices(results):
        name = result.partition
        row = ElectionPartitionResult(
            partition_id=name.partition, error_code=result.error, error_message=result.message
        )
        topics.setdefault(name.topic, ReplicaElectionResult(topic=name.topic)).partition_result.append(row)
    return list(topics.values())


def refuse(request: ElectLeadersRequest, error: Error, message: str | None, _: int) -> ElectLeadersResponse:
    rows = [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                ElectionPartitionResult(partition_id=index, error_code=error, error_message=message)
                for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=error, replica_election_results=rows)
