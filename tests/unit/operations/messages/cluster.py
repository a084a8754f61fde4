"""An in-memory cluster with one broker: answers the requests of readers with real record batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.base.errors import Error
from ottla.client.addresses import Address
from ottla.client.client import Client
from ottla.protocol.batches import build_batch, read_batch_header, write_offsets
from ottla.protocol.codec import encode
from ottla.protocol.messages import fetch, metadata, offsets, produce
from ottla.protocol.records import Record
from ottla.protocol.schema import layout_of

TOPIC = "orders"
BATCHES_PER_FETCH = 2


class Log:
    """One partition."""

    def __init__(self) -> None:
        self.batches: list[bytearray] = []
        self.start = 0
        self.end = 0
        self.stable: int | None = None
        self.aborted: list[fetch.AbortedTransaction] = []
        self.error = 0
        self.refused: set[int] = set()  # offsets of batches that are damaged

    def append(self, values: Sequence[Any], **options: Any) -> None:
        """Values, or whole records."""
        records = [
            item
            if isinstance(item, Record)
            else Record(-1, 1000 * (self.end + index), b"k%d" % (self.end + index), item, ())
            for index, item in enumerate(values)
        ]
        batch = build_batch(records, base_offset=self.end, **options)
        self.batches.append(batch)
        self.end = read_batch_header(batch).next_offset

    def mark(self, producer_id: int, is_commit: bool) -> None:
        key = b"\0\0" + (b"\0\1" if is_commit else b"\0\0")
        self.append(
            [Record(-1, 1, key, b"\0\0\0\0\0\0")],
            producer_id=producer_id,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
        )


class Cluster:
    """Logs by partition; `fetches` counts."""

    def __init__(self, partitions: int = 1, topic: str = TOPIC) -> None:
        self.topic = topic
        self.logs = [Log() for _ in range(partitions)]
        self.fetches: list[tuple[int, int]] = []
        self.offline: set[int] = set()
        self.produce_errors: list[int] = []  # the next answers

    def client(self) -> Client:
        return _Client(self)

    def answer(self, request: object) -> object:
        match request:
            case metadata.MetadataRequest():
                return self._metadata(request)
            case offsets.ListOffsetsRequest():
                return self._offsets(request)
            case fetch.FetchRequest():
                return self._fetch(request)
            case produce.ProduceRequest():
                return self._produce(request)
        raise AssertionError(f"unexpected request {request}")

    def _metadata(self, request: metadata.MetadataRequest) -> metadata.MetadataResponse:
        topics = []
        for wanted in request.topics or ():
            if wanted.name != self.topic:
                topics.append(
                    metadata.MetadataResponseTopic(name=wanted.name, error_code=Error.UNKNOWN_TOPIC_OR_PARTITION)
                )
                continue
            parts = [
                metadata.MetadataResponsePartition(
                    partition_index=number,
                    leader_id=-1 if number in self.offline else 1,
                    replica_nodes=[1],
                    isr_nodes=[1],
                )
                for number in range(len(self.logs))
            ]
            topics.append(metadata.MetadataResponseTopic(name=wanted.name, partitions=parts))
        broker = metadata.MetadataResponseBroker(node_id=1, host="h", port=9092)
        return metadata.MetadataResponse(brokers=[broker], controller_id=1, topics=topics)

    def _offsets(self, request: offsets.ListOffsetsRequest) -> offsets.ListOffsetsResponse:
        found = []
        for wanted in request.topics[0].partitions:
            log = self.logs[wanted.partition_index]
            offset = log.start if wanted.timestamp == -2 else log.end
            if wanted.timestamp == -1 and request.isolation_level == 1 and log.stable is not None:
                offset = log.stable
            if wanted.timestamp >= 0:
                offset = next((at for at in range(log.start, log.end) if 1000 * at >= wanted.timestamp), -1)
            newest = max((read_batch_header(batch).max_timestamp for batch in log.batches), default=-1)
            found.append(
                offsets.ListOffsetsPartitionResponse(
                    partition_index=wanted.partition_index, offset=offset, timestamp=newest
                )
            )
        return offsets.ListOffsetsResponse(topics=[offsets.ListOffsetsTopicResponse(name=self.topic, partitions=found)])

    def _fetch(self, request: fetch.FetchRequest) -> fetch.FetchResponse:
        parts = []
        for wanted in request.topics[0].partitions:
            log = self.logs[wanted.partition]
            self.fetches.append((wanted.partition, wanted.fetch_offset))
            stop = log.stable if request.isolation_level == 1 and log.stable is not None else log.end
            batches = [
                batch
                for batch in log.batches
                if read_batch_header(batch).next_offset > wanted.fetch_offset
                and read_batch_header(batch).base_offset < stop
            ][:BATCHES_PER_FETCH]
            damaged = [read_batch_header(batch).base_offset in log.refused for batch in batches]
            batches = batches[: damaged.index(True)] if True in damaged else batches
            if damaged and not batches:
                parts.append(
                    fetch.PartitionData(
                        partition_index=wanted.partition, error_code=Error.CORRUPT_MESSAGE, high_watermark=-1
                    )
                )
                continue
            parts.append(
                fetch.PartitionData(
                    partition_index=wanted.partition,
                    error_code=log.error or (Error.OFFSET_OUT_OF_RANGE if wanted.fetch_offset < log.start else 0),
                    high_watermark=log.end,
                    aborted_transactions=list(log.aborted) if request.isolation_level == 1 else None,
                    records=b"".join(bytes(batch) for batch in batches),
                )
            )
        topic = fetch.FetchableTopicResponse(topic=self.topic, partitions=parts)
        return fetch.FetchResponse(responses=[topic])

    def _produce(self, request: produce.ProduceRequest) -> produce.ProduceResponse:
        wanted = request.topic_data[0].partition_data[0]
        error = self.produce_errors.pop(0) if self.produce_errors else 0
        log = self.logs[wanted.index]
        offset = -1 if error else log.end
        if not error:
            batch = bytearray(wanted.records or b"")
            write_offsets(batch, 0, log.end, 0)
            log.batches.append(batch)
            log.end = read_batch_header(batch).next_offset
        answer = produce.PartitionProduceResponse(index=wanted.index, error_code=error, base_offset=offset)
        return produce.ProduceResponse(
            responses=[produce.TopicProduceResponse(name=self.topic, partition_responses=[answer])]
        )


class _Client(Client):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__("h:9092", sleep=lambda _: None)
        self.fake = _Connection(cluster)

    def close(self) -> None:
        self.fake.close()

    def _any_broker(self) -> Any:
        return self.fake

    def _broker(self, broker_id: int) -> Any:
        return self.fake


class _Connection:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.address = Address("h", 9092)
        self.waiting: list[object] = []
        self.versions = {
            layout.api_key: (0, layout.max_version)
            for layout in map(
                layout_of,
                (metadata.MetadataRequest, offsets.ListOffsetsRequest, fetch.FetchRequest, produce.ProduceRequest),
            )
            if layout.api_key is not None
        }

    def call(self, request: object, response: type, version: int, timeout_ms: int) -> Any:
        return self.cluster.answer(request)

    def send(self, request: object, version: int, timeout_ms: int) -> None:
        self.waiting.append(request)

    def receive(self, request: type, version: int, timeout_ms: int) -> memoryview:
        return memoryview(encode(self.cluster.answer(self.waiting.pop(0)), version))

    def close(self) -> None:
        self.waiting.clear()
