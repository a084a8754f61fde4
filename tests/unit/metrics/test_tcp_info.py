"""What the kernel tells about a connection, from a real one on the loopback."""

import os
import socket
from collections.abc import Iterator

import pytest

from ottla.metrics.tcp_info import parse_tcp_info, read_tcp_info


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        with other:
            yield one, other


def test_what_was_sent_and_what_waits_is_read_and_the_socket_stays_open(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    one, other = pair
    for _ in range(3):
        one.sendall(b"x" * 100)
        assert len(other.recv(100, socket.MSG_WAITALL)) == 100
    info = read_tcp_info(one.fileno())
    assert info is not None
    assert info.sent_segments == 3
    assert (info.retransmitted_segments, info.retransmitted_share, info.unsent_bytes, info.retransmission_wait_ms) == (
        0,
        0.0,
        0,
        0,
    )
    assert 0 < info.round_trip_us < 1_000_000
    one.setblocking(False)
    while True:  # the other side does not read: its window and our buffer fill up
        try:
            one.send(bytes(100_000))
        except BlockingIOError:
            break
    info = read_tcp_info(one.fileno())
    assert info is not None
    assert info.unsent_bytes > 10_000


def test_other_sockets_and_old_kernels_have_no_statistics(pair: tuple[socket.socket, socket.socket]) -> None:
    assert parse_tcp_info(bytes(104)) is None
    mine, yours = socket.socketpair()
    with mine, yours:
        assert read_tcp_info(mine.fileno()) is None
    assert os.fstat(pair[0].fileno())


def test_one_loss_of_two_packets_is_no_bad_link() -> None:
    info = parse_tcp_info(bytes(160))
    assert info is not None
    assert info._replace(sent_segments=2, retransmitted_segments=1).retransmitted_share < 0.01
    assert info._replace(sent_segments=9_900, retransmitted_segments=500).retransmitted_share == 0.05
    assert info._replace(silent_ms=5000).retransmission_wait_ms == 0
    assert info._replace(silent_ms=5000, unacknowledged_segments=1).retransmission_wait_ms == 5000
