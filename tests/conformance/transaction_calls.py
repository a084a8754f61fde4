"""The requests of transactions in all their versions, spoken through kafka-python's message classes (not ours)."""

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeProducersRequest, DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from tests.conformance.peer import Peer, fetch_request, produce_request
from tests.conformance.raw_batches import TRANSACTIONAL, batch

BUSY = (14, 51)  # COORDINATOR_LOAD_IN_PROGRESS, CONCURRENT_TRANSACTIONS
SETTLED_SECONDS_MAX = 10.0


class Producer(NamedTuple):
    """Who a transactional producer is."""

    producer_id: int
    epoch: int


NO_PRODUCER = Producer(-1, -1)


class TransactionCalls:
    """Says what producers of one transactional id say, through one connection."""

    def __init__(self, peer: Peer, transactional_id: str) -> None:
        self.peer = peer
        self.transactional_id = transactional_id

    # ---- steps

    def init(self, version: int = 5, timeout_ms: int = 60_000, known: Producer = NO_PRODUCER) -> Any:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=known.producer_id,
            producer_epoch=known.epoch,
        )
        return self.peer.ask(request, version)

    def start(self, version: int = 5, timeout_ms: int = 60_000) -> Producer:
        """A new producer; asks again while what its predecessor left open is being aborted."""
        answer = settled(lambda: self.init(version, timeout_ms))
        assert answer.error_code == 0, answer
        return Producer(answer.producer_id, answer.producer_epoch)

    def add(self, who: Producer, places: dict[str, list[int]], version: int = 3, *, verify: bool = False) -> Any:
        """Topic -> partition -> error; a number when the whole request is refused."""
        if version < 4:
            shape = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
            topics = [shape(name=topic, partitions=indexes) for topic, indexes in places.items()]
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=who.producer_id,
                v3_and_below_producer_epoch=who.epoch,
                v3_and_below_topics=topics,
            )
            rows = self.peer.ask(request, version).results_by_topic_v3_and_below
        else:
            shape = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
            topic_shape = shape.AddPartitionsToTxnTopic
            transaction = shape(
                transactional_id=self.transactional_id,
                producer_id=who.producer_id,
                producer_epoch=who.epoch,
                verify_only=verify,
                topics=[topic_shape(name=topic, partitions=indexes) for topic, indexes in places.items()],
            )
            answer = self.peer.ask(AddPartitionsToTxnRequest(transactions=[transaction]), version)
            if answer.error_code:
                return answer.error_code
            rows = answer.results_by_transaction[0].topic_results
        return {
            row.name: {each.partition_index: each.partition_error_code for each in row.results_by_partition}
            for row in rows
        }

    def add_offsets(self, who: Producer, group: str, version: int = 4) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            group_id=group,
        )
        return int(self.peer.ask(request, version).error_code)

    def commit_offsets(
        self,
        who: Producer,
        group: str,
        offsets: dict[str, dict[int, int]],
        version: int = 5,
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        metadata: str | None = "",
    ) -> dict[str, dict[int, int]]:
        shape = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        topics = [
            shape(
                name=topic,
                partitions=[
                    shape.TxnOffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=-1,
                        committed_metadata=metadata,
                    )
                    for index, offset in rows.items()
                ],
            )
            for topic, rows in offsets.items()
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=topics,
        )
        answer = self.peer.ask(request, version)
        return {t.name: {row.partition_index: row.error_code for row in t.partitions} for t in answer.topics}

    def end(self, who: Producer, *, commit: bool, version: int = 5) -> Any:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            committed=commit,
        )
        return self.peer.ask(request, version)

    def produce(
        self,
        who: Producer,
        topic: str,
        sequence: int,
        values: Iterable[bytes] = (b"x",),
        *,
        version: int = 12,
        partition: int = 0,
        attributes: int = TRANSACTIONAL,
        named: str | None = "",
    ) -> Any:
        """The answer of the one partition; `named` is the transactional id of the request."""
        data = batch(
            list(values),
            attributes=attributes,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            base_sequence=sequence,
        )
        transactional_id = self.transactional_id if named == "" else named
        request = produce_request(topic, data, partition, transactional_id=transactional_id)
        return self.peer.ask(request, version).responses[0].partition_responses[0]

    # ---- looking

    def describe(self) -> Any:
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        return self.peer.ask(request, 0).transaction_states[0]

    def wait_for_state(self, *states: str) -> Any:
        """The description, once the transaction is in one of these states."""
        deadline = time.monotonic() + SETTLED_SECONDS_MAX
        while (row := self.describe()).transaction_state not in states:
            assert time.monotonic() < deadline, row
            time.sleep(0.01)
        return row

    def listed(self, version: int = 2, **filters: Any) -> Any:
        """(error, unknown states, how this transaction is shown or None)."""
        request = ListTransactionsRequest(
            state_filters=filters.get("states", []),
            producer_id_filters=filters.get("producer_ids", []),
            duration_filter=filters.get("duration_ms", -1),
            transactional_id_pattern=filters.get("pattern"),
        )
        answer = self.peer.ask(request, version)
        rows = [row for row in answer.transaction_states if row.transactional_id == self.transactional_id]
        return answer.error_code, list(answer.unknown_state_filters), rows[0] if rows else None


def settled(ask: Any) -> Any:
    """The answer, once the coordinator is not busy any more."""
    deadline = time.monotonic() + SETTLED_SECONDS_MAX
    while (answer := ask()).error_code in BUSY:
        assert time.monotonic() < deadline, answer
        time.sleep(0.01)
    return answer


def write_marker(
    peer: Peer,
    who: Producer,
    topic: str,
    *,
    commit: bool,
    partition: int = 0,
    coordinator_epoch: int = 0,
    version: int = 1,
) -> int:
    shape = WriteTxnMarkersRequest.WritableTxnMarker
    marker = shape(
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        transaction_result=commit,
        topics=[shape.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=coordinator_epoch,
        transaction_version=0,
    )
    answer = peer.ask(WriteTxnMarkersRequest(markers=[marker]), version)
    return int(answer.markers[0].topics[0].partitions[0].error_code)


def producers_of(peer: Peer, topic: str, partition: int = 0) -> Any:
    shape = DescribeProducersRequest.TopicRequest
    request = DescribeProducersRequest(topics=[shape(name=topic, partition_indexes=[partition])])
    return peer.ask(request, 0).topics[0].partitions[0]


def fetch_committed(peer: Peer, topic: str, offset: int = 0, **options: Any) -> Any:
    """A read_committed fetch of one partition."""
    request = fetch_request(topic, offset, isolation_level=1, max_wait_ms=0, **options)
    return peer.ask(request, 12).responses[0].partitions[0]
