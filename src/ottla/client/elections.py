"""Leaders by request (KIP-183, KIP-460)."""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum

from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.errors import RefusedError, refusal
from ottla.client.reassignments import numbers_by_topic
from ottla.protocol.messages.elections import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions


class Election(IntEnum):
    """Which leader is wanted, by its number on the wire: the first replica, or anybody who is alive."""

    PREFERRED = 0
    UNCLEAN = 1


def elect_leaders(
    client: Client, kind: Election, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, RefusedError | None]:
    """What became of each partition, None is a success; of all partitions (None) only those that needed it are told."""
    wanted = None
    if partitions is not None:
        wanted = [
            TopicPartitions(topic=name, partitions=numbers) for name, numbers in numbers_by_topic(partitions).items()
        ]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=wanted, timeout_ms=client.timeout_ms)

    def check(answer: ElectLeadersResponse) -> None:
        if answer.error_code:
            raise refusal(answer.error_code)

    answer = client.call_controller(request, ElectLeadersResponse, check)
    return {
        TopicPartition(topic.topic, item.partition_id): refusal(item.error_code, item.error_message)
        if item.error_code
        else None
        for topic in answer.replica_election_results
        for item in topic.partition_result
    }
