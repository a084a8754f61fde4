"""A connection that speaks typed messages through kafka-python's message classes (not ours, every version)."""

import itertools
import time
import uuid
from typing import Any, Self

from kafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest
from tests.conformance.raw import Connection
from tests.conformance.raw_batches import BatchHeader, read_batches

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
PRODUCE_BY_NAME, PRODUCE_BY_ID = 12, 13
FETCH_BY_NAME, FETCH_BY_ID = 12, 18
CREATION_SECONDS_MAX = 10
COORDINATOR_LOAD_IN_PROGRESS = 14


class Peer:
    """Asks one thing at a time, or sends ahead and reads the replies later."""

    def __init__(self, bootstrap: str, client_id: str = "peer") -> None:
        self.connection = Connection(bootstrap)
        self._client_id = client_id
        self._correlation_ids = itertools.count(100)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def frame(self, request: ApiMessage, version: int) -> bytes:
        """The request as it goes over the wire; receive() knows it by its correlation id."""
        request.API_VERSION = version
        request.with_header(correlation_id=next(self._correlation_ids), client_id=self._client_id)
        return bytes(request.encode(header=True, framed=True))

    def send(self, request: ApiMessage, version: int) -> None:
        self.connection.send(self.frame(request, version))

    def receive(self, request: ApiMessage, timeout_seconds: float | None = None) -> Any:
        """The next reply, which must be the one to this request."""
        assert request.header is not None
        response_class = request.header.get_response_class()
        frame = self.connection.read_frame(timeout_seconds)
        response = response_class.decode(frame, header=True)
        assert response.header.correlation_id == request.header.correlation_id
        return response

    def ask(self, request: ApiMessage, version: int, timeout_seconds: float | None = None) -> Any:
        self.send(request, version)
        return self.receive(request, timeout_seconds)

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> uuid.UUID:
        topic = CreateTopicsRequest.CreatableTopic
        settings = [
            topic.CreatableTopicConfig(name=key.replace("_", "."), value=str(value)) for key, value in configs.items()
        ]
        row = topic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=settings)
        answer = self.ask(CreateTopicsRequest(topics=[row], timeout_ms=10_000, validate_only=False), 7).topics[0]
        assert answer.error_code == 0, (answer.error_code, answer.error_message)
        for partition in range(partitions):
            self.wait_until_led(name, partition)
        return answer.topic_id

    def wait_until_led(self, name: str, partition: int = 0) -> None:
        """Apache Kafka answers CreateTopics before its partitions can be used."""
        deadline = time.monotonic() + CREATION_SECONDS_MAX
        while (error := self.list_offset(name, LATEST, partition).error_code) != 0:
            assert time.monotonic() < deadline, f"{name}-{partition} still answers {error}"
            time.sleep(0.01)

    def delete_topics(self, names: list[str]) -> dict[str, int]:
        rows = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=None) for name in names]
        answer = self.ask(DeleteTopicsRequest(topics=rows, timeout_ms=10_000), 6)
        return {row.name: row.error_code for row in answer.responses}

    def topic_names(self) -> set[str]:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return {topic.name for topic in self.ask(request, 12).topics}

    def produce(self, topic: str, records: bytes | None, partition: int = 0, acks: int = -1) -> Any:
        """The answer of the one partition."""
        request = produce_request(topic, records, partition, acks)
        return self.ask(request, PRODUCE_BY_NAME).responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int, partition: int = 0, **options: Any) -> Any:
        """The answer of the one partition, outside of any session."""
        return self.ask(fetch_request(topic, offset, partition, **options), FETCH_BY_NAME).responses[0].partitions[0]

    def stored_batches(self, topic: str, offset: int = 0, partition: int = 0) -> list[BatchHeader]:
        return read_batches(bytes(self.fetch(topic, offset, partition, max_wait_ms=0).records or b""))

    def list_offset(self, topic: str, timestamp: int, partition: int = 0, version: int = 8) -> Any:
        """The answer of the one partition."""
        return self.ask(list_offsets_request(topic, timestamp, partition), version).topics[0].partitions[0]

    def end_offset(self, topic: str, partition: int = 0) -> int:
        return int(self.list_offset(topic, LATEST, partition).offset)

    def new_producer_id(self) -> int:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1)
        deadline = time.monotonic() + CREATION_SECONDS_MAX
        while (answer := self.ask(request, 4)).error_code == COORDINATOR_LOAD_IN_PROGRESS:
            assert time.monotonic() < deadline  # Apache Kafka is still asking for its first block of ids
            time.sleep(0.05)
        assert answer.error_code == 0
        assert answer.producer_epoch == 0
        return int(answer.producer_id)


def produce_request(
    topic: str | uuid.UUID,
    records: bytes | None,
    partition: int = 0,
    acks: int = -1,
    timeout_ms: int = 5_000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    data = ProduceRequest.TopicProduceData
    rows = [data.PartitionProduceData(index=partition, records=records)]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[data(**name_or_id(topic, "name"), partition_data=rows)],
    )


def fetch_partition(partition: int, offset: int, max_bytes: int = 1 << 20, leader_epoch: int = -1) -> Any:
    return FetchRequest.FetchTopic.FetchPartition(
        partition=partition,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )


def fetch_topic(topic: str | uuid.UUID, partitions: list[Any]) -> Any:
    return FetchRequest.FetchTopic(**name_or_id(topic, "topic"), partitions=partitions)


def fetch_request(
    topic: str | uuid.UUID,
    offset: int,
    partition: int = 0,
    *,
    partition_max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
    **options: Any,
) -> FetchRequest:
    """A fetch of one partition; `options` are those of fetch_topics_request()."""
    rows = [fetch_partition(partition, offset, partition_max_bytes, leader_epoch)]
    return fetch_topics_request([fetch_topic(topic, rows)], **options)


def fetch_topics_request(
    topics: list[Any],
    *,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    replica_id: int = -1,
    forgotten: list[Any] | None = None,
) -> FetchRequest:
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
        forgotten_topics_data=forgotten or [],
        rack_id="",
    )


def list_offsets_request(
    topic: str, timestamp: int, partition: int = 0, isolation_level: int = 0, leader_epoch: int = -1
) -> ListOffsetsRequest:
    shape = ListOffsetsRequest.ListOffsetsTopic
    rows = [
        shape.ListOffsetsPartition(partition_index=partition, current_leader_epoch=leader_epoch, timestamp=timestamp)
    ]
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[shape(name=topic, partitions=rows)],
        timeout_ms=5_000,
    )


def name_or_id(topic: str | uuid.UUID, name_field: str) -> dict[str, Any]:
    return {name_field: topic} if isinstance(topic, str) else {"topic_id": topic}
