"""Peers that are slow, many or abusive: all other clients are served within a second, and memory stays bounded."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from kafka.protocol.metadata import MetadataRequest
from tests.conformance.peer import Peer, fetch_request, produce_request
from tests.conformance.raw import (
    Connection,
    ConnectionClosedError,
    api_versions_v0,
    assert_others_are_served,
    cpu_seconds,
    i32,
    open_files,
    request_header,
    string,
)
from tests.conformance.raw_batches import batch
from tests.conformance.waiting import eventually

pytestmark = pytest.mark.usefixtures("broker_stays_healthy")

API_VERSIONS, METADATA = 18, 3
PIPELINED_REQUESTS = 20_000
SLOW_PEERS = 300
FLOOD_PEERS = 500


@contextmanager
def many_connections(bootstrap: str, count: int) -> Iterator[list[Connection]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Connection(bootstrap)) for _ in range(count)]


def test_a_peer_that_pipelines_20000_requests_and_never_reads_is_held_back(bootstrap: str, topic: str) -> None:
    """The answers (some 9 MB) do not fit into the socket's buffers, so the broker must stop reading."""
    request = request_header(API_VERSIONS, 0, 1)
    block = (i32(len(request)) + request) * 100
    with Connection(bootstrap) as connection:
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.socket.settimeout(1.0)
        sent = 0
        try:
            while sent < PIPELINED_REQUESTS // 100:
                connection.socket.sendall(block)
                sent += 1
        except TimeoutError:
            pass  # back pressure: this is what should happen to such a peer
        assert_others_are_served(bootstrap)
        with Peer(bootstrap) as other:
            assert other.produce(topic, batch()).error_code == 0


def test_a_peer_that_reads_late_gets_all_answers_in_order(bootstrap: str) -> None:
    count = 3000
    with Connection(bootstrap) as connection:
        frames = [request_header(API_VERSIONS, 0, number) for number in range(count)]
        connection.socket.settimeout(30)
        connection.socket.sendall(b"".join(i32(len(frame)) + frame for frame in frames))
        time.sleep(0.2)
        assert [connection.read_frame()[:4] for _ in range(count)] == [i32(number) for number in range(count)]


def test_a_peer_that_fetches_without_reading_is_held_back(bootstrap: str, broker_pid: int, topic: str) -> None:
    """Two hundred answers of a megabyte each must not be built up in memory (the health fixture measures it)."""
    with Peer(bootstrap) as peer:
        for _ in range(4):
            assert peer.produce(topic, batch([b"x" * 500_000])).error_code == 0
        files_before = open_files(broker_pid)
        greedy = Peer(bootstrap)
        greedy.connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(200):
            greedy.send(fetch_request(topic, 0, partition_max_bytes=4 << 20), 12)
        time.sleep(0.3)
        assert_others_are_served(bootstrap)
        assert peer.produce(topic, batch()).error_code == 0
        greedy.connection.close()
        assert eventually(lambda: open_files(broker_pid) <= files_before), "the end of a peer is noticed"


def test_300_peers_that_send_one_byte_at_a_time_disturb_no_other_client(bootstrap: str, topic: str) -> None:
    request = request_header(API_VERSIONS, 0, 1)
    frame = i32(len(request)) + request
    with many_connections(bootstrap, SLOW_PEERS) as slow, Peer(bootstrap) as peer:
        for position in range(6):
            for connection in slow:
                connection.send(frame[position : position + 1])
            assert_others_are_served(bootstrap)
        assert peer.produce(topic, batch()).error_code == 0
        for connection in slow:
            connection.send(frame[6:])
        assert all(connection.read_frame()[:4] == i32(1) for connection in slow)


@pytest.mark.needs_ottla
def test_300_announced_frames_of_100_mib_take_no_memory(bootstrap: str) -> None:
    """Apache Kafka allocates what is announced, and its heap is full after a dozen of these."""
    with many_connections(bootstrap, SLOW_PEERS) as liars:
        for connection in liars:
            connection.send(i32(100 << 20) + request_header(METADATA, 1, 1))
        assert_others_are_served(bootstrap)


def test_500_connections_at_once_are_all_served(bootstrap: str, broker_pid: int) -> None:
    files_before = open_files(broker_pid)
    with many_connections(bootstrap, FLOOD_PEERS) as connections:
        for connection in connections:
            connection.send_request(API_VERSIONS, 0, b"")
        assert_others_are_served(bootstrap)
        assert all(connection.read_frame()[4:6] == b"\0\0" for connection in connections)
    assert eventually(lambda: open_files(broker_pid) <= files_before + 50), "closed connections keep their files open"


def test_a_reset_in_the_middle_of_a_frame_disturbs_no_other_client(bootstrap: str) -> None:
    request = request_header(METADATA, 1, 1) + i32(1) + string("nowhere")
    frame = i32(len(request)) + request
    for size in range(len(frame)):
        connection = Connection(bootstrap)
        connection.send(frame[:size])
        connection.reset()
    assert_others_are_served(bootstrap)


def test_a_reset_while_an_answer_is_parked_disturbs_no_other_client(bootstrap: str, topic: str) -> None:
    for _ in range(20):
        waiting = Peer(bootstrap)
        waiting.send(fetch_request(topic, 0, max_wait_ms=500), 12)
        waiting.connection.reset()
    with Peer(bootstrap) as peer:
        assert peer.produce(topic, batch()).error_code == 0
        assert peer.fetch(topic, 0).high_watermark == 1


@pytest.mark.parametrize("way", ["close", "reset"])
def test_a_peer_that_leaves_while_its_requests_wait_costs_no_work(
    bootstrap: str, broker_pid: int, topic: str, way: str
) -> None:
    """A request that waits behind a parked fetch: the broker does not read on, and must not turn in circles."""
    peer = Peer(bootstrap)
    parked = peer.frame(fetch_request(topic, 0, max_wait_ms=3000), 12)
    peer.connection.send(parked + peer.frame(MetadataRequest(topics=[]), 12))
    time.sleep(0.2)
    if way == "reset":
        peer.connection.reset()
    else:
        peer.connection.close()
    before = cpu_seconds(broker_pid)
    time.sleep(1.5)
    assert cpu_seconds(broker_pid) - before < 0.3


def test_a_reset_while_a_large_answer_is_sent_disturbs_no_other_client(bootstrap: str, topic: str) -> None:
    with Peer(bootstrap) as peer:
        for _ in range(4):
            assert peer.produce(topic, batch([b"x" * 1_000_000])).error_code == 0
        for _ in range(10):
            reader = Peer(bootstrap)
            reader.send(fetch_request(topic, 0, partition_max_bytes=8 << 20), 12)
            reader.connection.socket.recv(1000)
            reader.connection.reset()
        assert len(peer.stored_batches(topic)) >= 1
        assert_others_are_served(bootstrap)


def test_a_peer_that_only_closes_its_sending_half_still_gets_no_stuck_broker(bootstrap: str) -> None:
    """Half-open peers: the answer may still come or the broker may close, but it must not wait for ever."""
    connections = []
    for _ in range(20):
        connection = Connection(bootstrap)
        connection.send_request(API_VERSIONS, 0, b"")
        connection.socket.shutdown(socket.SHUT_WR)
        connections.append(connection)
    assert_others_are_served(bootstrap)
    for connection in connections:
        try:
            connection.read_frame()
            assert connection.is_closed_by_peer()
        except ConnectionClosedError:
            pass
        connection.close()


def test_peers_that_connect_and_say_nothing_are_kept(bootstrap: str) -> None:
    with many_connections(bootstrap, 50) as silent:
        assert_others_are_served(bootstrap)
        time.sleep(0.5)
        assert silent[0].ask(API_VERSIONS, 0, b"")[:2] == b"\0\0"
    assert api_versions_v0(bootstrap)


def test_large_produce_requests_of_many_peers_are_all_answered(bootstrap: str, topic: str) -> None:
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(bootstrap)) for _ in range(8)]
        requests = [produce_request(topic, batch([b"x" * 900_000])) for _ in peers]
        for peer, request in zip(peers, requests, strict=True):
            peer.send(request, 12)
        answers = [peer.receive(request) for peer, request in zip(peers, requests, strict=True)]
        offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
        assert sorted(offsets) == list(range(8))
