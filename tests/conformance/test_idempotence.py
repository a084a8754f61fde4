"""Idempotent producers: the window of five batches, gaps, epochs and wrap-around, exactly as in Apache Kafka."""

import time

import pytest
from kafka.protocol.producer import InitProducerIdRequest
from tests.conformance.conftest import NewTopic
from tests.conformance.peer import Peer, produce_request
from tests.conformance.raw_batches import batch

OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_RECORD = 45, 47, 87
SEQUENCE_MAX = 2**31 - 1
BASE_MS = int(time.time() * 1000) - 100_000


class Producer:
    """One producer id on one partition."""

    def __init__(self, peer: Peer, topic: str, partition: int = 0) -> None:
        self.peer, self.topic, self.partition = peer, topic, partition
        self.producer_id = peer.new_producer_id()

    def send(self, sequence: int, count: int = 1, epoch: int = 0) -> tuple[int, int]:
        """(error code, base offset) of a batch of `count` records."""
        data = batch(
            [b"%d" % number for number in range(count)],
            producer_id=self.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            timestamp=BASE_MS + sequence % 1000,
        )
        answer = self.peer.produce(self.topic, data, self.partition)
        return answer.error_code, answer.base_offset


@pytest.fixture
def producer(peer: Peer, topic: str) -> Producer:
    return Producer(peer, topic)


def test_producer_ids_are_never_given_twice(bootstrap: str) -> None:
    with Peer(bootstrap) as left, Peer(bootstrap) as right:
        ids = [peer.new_producer_id() for _ in range(20) for peer in (left, right)]
    assert len(set(ids)) == 40


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_init_producer_id_gives_an_id(peer: Peer, version: int) -> None:
    peer.new_producer_id()
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    answer = peer.ask(request, version)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    assert answer.producer_id >= 0


def test_sequences_that_follow_each_other_are_stored(producer: Producer) -> None:
    assert producer.send(0, count=2) == (0, 0)
    assert producer.send(2) == (0, 2)
    assert producer.send(3, count=10) == (0, 3)
    assert producer.send(13) == (0, 13)


def test_a_gap_answers_45_and_is_not_stored(producer: Producer) -> None:
    assert producer.send(0) == (0, 0)
    assert producer.send(2) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert producer.send(1) == (0, 1)


def test_a_duplicate_within_the_last_five_batches_returns_its_first_offset(producer: Producer) -> None:
    for sequence in range(8):
        assert producer.send(sequence) == (0, sequence)
    for sequence in range(7, 2, -1):
        assert producer.send(sequence) == (0, sequence)
    assert producer.peer.end_offset(producer.topic) == 8


def test_a_duplicate_of_the_sixth_last_batch_answers_45(producer: Producer) -> None:
    for sequence in range(8):
        producer.send(sequence)
    for sequence in (2, 1, 0):
        assert producer.send(sequence) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert producer.peer.end_offset(producer.topic) == 8


def test_a_duplicate_returns_the_time_of_the_stored_batch(producer: Producer) -> None:
    producer.send(0)
    data = batch(producer_id=producer.producer_id, producer_epoch=0, base_sequence=0, timestamp=1)
    answer = producer.peer.produce(producer.topic, data)
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, 0, BASE_MS)


def test_a_batch_that_overlaps_is_no_duplicate(producer: Producer) -> None:
    assert producer.send(0, count=3) == (0, 0)
    assert producer.send(0, count=2) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert producer.send(2, count=2) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert producer.send(0, count=3) == (0, 0)
    assert producer.peer.end_offset(producer.topic) == 3


def test_a_new_epoch_starts_at_zero_and_fences_the_old(producer: Producer) -> None:
    assert producer.send(0) == (0, 0)
    assert producer.send(5, epoch=1) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert producer.send(0, epoch=1) == (0, 1)
    assert producer.send(1, epoch=0) == (INVALID_PRODUCER_EPOCH, -1)
    assert producer.send(1, epoch=1) == (0, 2)


def test_an_unknown_producer_may_start_at_any_sequence(producer: Producer) -> None:
    assert producer.send(7) == (0, 0)
    assert producer.send(8) == (0, 1)
    assert producer.send(7) == (0, 0)


def test_sequences_wrap_around_to_zero(producer: Producer) -> None:
    assert producer.send(SEQUENCE_MAX) == (0, 0)
    assert producer.send(0) == (0, 1)


def test_a_batch_may_wrap_around_inside(producer: Producer) -> None:
    assert producer.send(SEQUENCE_MAX - 1, count=3) == (0, 0)
    assert producer.send(1) == (0, 3)
    assert producer.send(SEQUENCE_MAX - 1, count=3) == (0, 0)
    assert producer.peer.end_offset(producer.topic) == 4


def test_a_producer_id_without_a_sequence_is_refused(producer: Producer) -> None:
    assert producer.send(-1) == (INVALID_RECORD, -1)


def test_partitions_have_sequences_of_their_own(peer: Peer, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    first = Producer(peer, topic, 0)
    second = Producer(peer, topic, 1)
    second.producer_id = first.producer_id
    assert (first.send(0), first.send(1)) == ((0, 0), (0, 1))
    assert (second.send(0), second.send(1)) == ((0, 0), (0, 1))


def test_five_pipelined_batches_and_their_retries_are_stored_once(peer: Peer, topic: str) -> None:
    producer_id = peer.new_producer_id()

    def send_all() -> list[int]:
        requests = [
            produce_request(topic, batch(producer_id=producer_id, producer_epoch=0, base_sequence=n)) for n in range(5)
        ]
        for request in requests:
            peer.send(request, 12)
        return [peer.receive(request).responses[0].partition_responses[0].base_offset for request in requests]

    assert send_all() == [0, 1, 2, 3, 4]
    assert send_all() == [0, 1, 2, 3, 4]
    assert peer.end_offset(topic) == 5


def test_log_append_time_of_a_duplicate_is_that_of_the_first(peer: Peer, new_topic: NewTopic) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    data = batch(producer_id=peer.new_producer_id(), producer_epoch=0, base_sequence=0, timestamp=1)
    first, second = peer.produce(topic, data), peer.produce(topic, data)
    assert first.log_append_time_ms > 1
    assert (second.base_offset, second.log_append_time_ms) == (first.base_offset, first.log_append_time_ms)
