"""Answers to requests that nobody could answer: the same error for everything that was asked for, as in Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ottla.base.errors import Error
from ottla.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.elections import (
    ElectionPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)
from ottla.protocol.messages.features import UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.protocol.messages.registration import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.protocol.messages.topics import (
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

TOPIC_IDS_SINCE: Final = 6  # of DeleteTopics
MESSAGES: Final = {
    Error.NOT_CONTROLLER: "This is not the correct controller for this cluster.",
    Error.REQUEST_TIMED_OUT: "The request timed out.",
    Error.UNSUPPORTED_VERSION: "The version of API is not supported.",
}


def error_answer(request: Any, error: Error, version: int, message: str | None = None) -> Any:
    return ANSWERS[type(request)](request, error, message or MESSAGES.get(error), version)


def create_topics(request: CreateTopicsRequest, error: Error, message: str | None, _: int) -> CreateTopicsResponse:
    rows = [CreatableTopicResult(name=topic.name, error_code=error, error_message=message) for topic in request.topics]
    return CreateTopicsResponse(topics=rows)


def delete_topics(request: DeleteTopicsRequest, error: Error, message: str | None, version: int) -> Any:
    if version >= TOPIC_IDS_SINCE:
        rows = [
            DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=error, error_message=message)
            for topic in request.topics
        ]
    else:
        rows = [
            DeletableTopicResult(name=name, error_code=error, error_message=message) for name in request.topic_names
        ]
    return DeleteTopicsResponse(responses=rows)


def create_partitions(request: CreatePartitionsRequest, error: Error, message: str | None, _: int) -> Any:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=error, error_message=message)
            for topic in request.topics
        ]
    )


def config_rows(
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest, error: Error, message: str | None
) -> list[AlterConfigsResourceResponse]:
    return [
        AlterConfigsResourceResponse(
            error_code=error,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in request.resources
    ]


def alter_configs(request: AlterConfigsRequest, error: Error, message: str | None, _: int) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=config_rows(request, error, message))


def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, error: Error, message: str | None, _: int
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=config_rows(request, error, message))


def elect_leaders(request: ElectLeadersRequest, error: Error, message: str | None, _: int) -> ElectLeadersResponse:
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


def alter_reassignments(
    request: AlterPartitionReassignmentsRequest, error: Error, message: str | None, _: int
) -> AlterPartitionReassignmentsResponse:
    rows = [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                ReassignablePartitionResponse(
                    partition_index=partition.partition_index, error_code=error, error_message=message
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=error, error_message=message, responses=rows)


def list_reassignments(
    _request: ListPartitionReassignmentsRequest, error: Error, message: str | None, _: int
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=error, error_message=message)


def update_features(request: UpdateFeaturesRequest, error: Error, message: str | None, _: int) -> Any:
    rows = [
        UpdatableFeatureResult(feature=update.feature, error_code=error, error_message=message)
        for update in request.feature_updates
    ]
    return UpdateFeaturesResponse(error_code=error, error_message=message, results=rows)


def unregister_broker(
    _request: UnregisterBrokerRequest, error: Error, message: str | None, _: int
) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error, error_message=message)


ANSWERS: Final[dict[type, Callable[[Any, Error, str | None, int], Any]]] = {
    CreateTopicsRequest: create_topics,
    DeleteTopicsRequest: delete_topics,
    CreatePartitionsRequest: create_partitions,
    AlterConfigsRequest: alter_configs,
    IncrementalAlterConfigsRequest: incremental_alter_configs,
    ElectLeadersRequest: elect_leaders,
    AlterPartitionReassignmentsRequest: alter_reassignments,
    ListPartitionReassignmentsRequest: list_reassignments,
    UpdateFeaturesRequest: update_features,
    UnregisterBrokerRequest: unregister_broker,
}
