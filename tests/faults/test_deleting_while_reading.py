"""W13: segments are deleted while clients read them. A client gets right data or OFFSET_OUT_OF_RANGE."""

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.admin.topics import DeleteRecordsRequest
from tests.conformance.peer import EARLIEST, FETCH_BY_NAME, Peer, fetch_request
from tests.conformance.raw_batches import batch, read_batches
from tests.conformance.waiting import eventually

NONE, OFFSET_OUT_OF_RANGE = 0, 1
ROUNDS = 20
VALUE_BYTES = 20_000
BrokerFactory = Callable[..., Any]


def delete_below(peer: Peer, topic: str, offset: int) -> None:
    shape = DeleteRecordsRequest.DeleteRecordsTopic
    rows = [shape(name=topic, partitions=[shape.DeleteRecordsPartition(partition_index=0, offset=offset)])]
    assert peer.ask(DeleteRecordsRequest(topics=rows, timeout_ms=5000), 2).topics[0].partitions[0].error_code == NONE


def value(offset: int) -> bytes:
    return b"%d " % offset * (VALUE_BYTES // 4)


def test_an_answer_that_is_on_its_way_is_sent_to_its_end(broker_factory: BrokerFactory) -> None:
    """The reader does not take its answer before the files are gone: what it gets is what was there."""
    broker = broker_factory(log_segment_delete_delay_ms=0)
    with Peer(broker.bootstrap) as peer, Peer(broker.bootstrap) as slow:
        peer.create_topic("old", segment_bytes=8 << 20, max_message_bytes=2_000_000)
        for offset in range(12):
            assert peer.produce("old", batch([b"%d " % offset * 500_000])).base_offset == offset
        request = fetch_request("old", 0, partition_max_bytes=40 << 20)
        slow.send(request, FETCH_BY_NAME)  # more than the buffers of a connection hold
        delete_below(peer, "old", 11)
        folder = broker.data_directory / "old-0"
        assert eventually(lambda: not list(folder.glob(f"{0:020d}.log*"))), "the file is gone from the folder"
        answer = slow.receive(request).responses[0].partitions[0]
        assert answer.error_code == NONE
        headers = read_batches(bytes(answer.records))  # checks every CRC
        assert [header.base_offset for header in headers] == list(range(len(headers)))
        assert len(headers) >= 7
        assert peer.fetch("old", 0).error_code == OFFSET_OUT_OF_RANGE


@pytest.mark.faults
def test_readers_and_deletions_at_once(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(log_segment_delete_delay_ms=0)
    problems: list[str] = []
    is_over = threading.Event()
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("moving", internal_segment_bytes=60_000, index_interval_bytes=100)
        readers = [threading.Thread(target=read, args=(broker.bootstrap, seed, is_over, problems)) for seed in range(3)]
        for offset in range(30):
            peer.produce("moving", batch([value(offset)]))
        for reader in readers:
            reader.start()
        for number in range(ROUNDS):
            for _ in range(10):
                offset = 30 + 10 * number + _
                assert peer.produce("moving", batch([value(offset)])).base_offset == offset
            delete_below(peer, "moving", 10 * number + 15)
        is_over.set()
        for reader in readers:
            reader.join(20)
    assert not problems, problems[:5]
    broker.assert_no_traceback()


def read(bootstrap: str, seed: int, is_over: threading.Event, problems: list[str]) -> None:
    chance = random.Random(seed)
    with Peer(bootstrap) as peer:
        while not is_over.is_set():
            start = peer.list_offset("moving", EARLIEST).offset
            offset = max(0, start + chance.randrange(-5, 15))
            answer = peer.fetch("moving", offset, partition_max_bytes=chance.choice((1_000, 100_000)), max_wait_ms=0)
            if answer.error_code not in (NONE, OFFSET_OUT_OF_RANGE):
                problems.append(f"offset {offset}: error {answer.error_code}")
            data = bytes(answer.records or b"")
            problems += [
                f"offset {header.base_offset} has another value"
                for header in read_batches(data)
                if value(header.base_offset) not in data
            ]
