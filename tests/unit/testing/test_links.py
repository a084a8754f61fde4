"""The proxies between brokers of a test cluster, with plain sockets in place of brokers."""

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from ottla.testing.links import HOST, LOOKUP_TRIES, Links, inode_of

US, THEM = 1, 2
QUIET_SECONDS = 0.15
SECONDS_MAX = 60


class Echo(threading.Thread):
    """Echoes all bytes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.server = socket.create_server((HOST, 0))
        self.port: int = self.server.getsockname()[1]

    def run(self) -> None:
        while True:
            try:
                peer, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self.answer, args=(peer,), daemon=True).start()

    def answer(self, peer: socket.socket) -> None:
        with peer, contextlib.suppress(ConnectionError):
            while data := peer.recv(1000):
                peer.sendall(data)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    server.start()
    yield server
    server.server.close()


@pytest.fixture
def links() -> Iterator[Links]:
    made = Links(lambda: {US: os.getpid()})
    yield made
    made.close()


def connect(port: int) -> socket.socket:
    peer = socket.create_connection((HOST, port), SECONDS_MAX)
    peer.settimeout(SECONDS_MAX)
    return peer


def is_silent(peer: socket.socket) -> bool:
    peer.settimeout(QUIET_SECONDS)
    try:
        return not peer.recv(1000)
    except TimeoutError:
        return True
    finally:
        peer.settimeout(SECONDS_MAX)


def greet(peer: socket.socket) -> None:
    peer.sendall(b"hello")
    assert peer.recv(100) == b"hello"


def test_a_proxy_forwards_and_identifies_the_client(links: Links, echo: Echo) -> None:
    proxy = links.add_proxy(THEM, echo.port)
    links.open_proxies(THEM)
    with connect(proxy.port) as peer:
        greet(peer)
    assert links.flow(US, THEM).carried_bytes == links.flow(THEM, US).carried_bytes == 5


def test_a_closed_door_refuses_and_can_be_opened_again(links: Links, echo: Echo) -> None:
    proxy = links.add_proxy(THEM, echo.port)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy.port)
    links.open_proxies(THEM)
    connect(proxy.port).close()
    links.close_proxies(THEM)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy.port)
    links.open_proxies(THEM)
    connect(proxy.port).close()


def test_a_cut_is_silence_and_what_was_sent_arrives_afterwards(links: Links, echo: Echo) -> None:
    proxy = links.add_proxy(THEM, echo.port)
    links.open_proxies(THEM)
    with connect(proxy.port) as peer:
        peer.sendall(b"before")
        assert peer.recv(100) == b"before"
        links.cut(US, THEM)
        peer.sendall(b"during")
        assert is_silent(peer)
        links.heal()
        assert peer.recv(100) == b"during"


def test_a_cut_one_way_lets_requests_through_and_no_answers(links: Links, echo: Echo) -> None:
    proxy = links.add_proxy(THEM, echo.port)
    links.open_proxies(THEM)
    with connect(proxy.port) as peer:
        links.cut(THEM, US, one_way=True)
        peer.sendall(b"request")
        while links.flow(US, THEM).carried_bytes < len(b"request"):
            time.sleep(0.01)
        assert is_silent(peer)
        links.join(THEM, US, one_way=True)
        assert peer.recv(100) == b"request"


def test_the_end_of_a_connection_does_not_get_through_a_cut(links: Links) -> None:
    server = socket.create_server((HOST, 0))
    proxy = links.add_proxy(THEM, server.getsockname()[1])
    links.open_proxies(THEM)
    with connect(proxy.port) as peer:
        far, _ = server.accept()
        links.cut(US, THEM)
        links._run(asyncio.sleep(0))  # the cut is made by another thread
        far.close()
        assert is_silent(peer)
        links.heal()
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            if not peer.recv(100):
                raise ConnectionResetError
    server.close()


def test_a_slow_link_is_slow(links: Links, echo: Echo) -> None:
    proxy = links.add_proxy(THEM, echo.port, source=US)
    links.open_proxies(THEM)
    with connect(proxy.port) as peer:
        links.slow_down(US, THEM, delay_seconds=0.1)
        begin = time.monotonic()
        greet(peer)
        assert time.monotonic() - begin >= 0.2


def test_strangers_are_sent_away(echo: Echo) -> None:
    links = Links(dict)
    proxy = links.add_proxy(THEM, echo.port)
    links.open_proxies(THEM)
    with pytest.raises((ConnectionResetError, BrokenPipeError)), connect(proxy.port) as peer:  # which may be too late
        peer.sendall(b"hello")
        if not peer.recv(100):
            raise ConnectionResetError
    links.close()


def test_open_connections_continue_while_a_proxy_identifies_a_new_client(echo: Echo) -> None:
    may_answer, is_asked = threading.Event(), threading.Event()
    may_answer.set()

    def pids() -> dict[int, int]:
        is_asked.set()
        assert may_answer.wait(SECONDS_MAX)
        return {US: os.getpid()}

    with contextlib.closing(Links(pids)) as links:
        proxy = links.add_proxy(THEM, echo.port)
        links.open_proxies(THEM)
        with connect(proxy.port) as inside:
            greet(inside)
            may_answer.clear()
            is_asked.clear()
            with connect(proxy.port) as late:
                assert is_asked.wait(SECONDS_MAX)
                greet(inside)
                may_answer.set()
                greet(late)


def test_a_client_that_closed_before_the_lookup_is_not_searched() -> None:
    looks = 0

    def pids() -> dict[int, int]:
        nonlocal looks
        looks += 1
        return {}

    with socket.create_server((HOST, 0)) as server, contextlib.closing(Links(pids)) as links:
        proxy = server.getsockname()[1]
        with connect(proxy) as peer:
            port = peer.getsockname()[1]
            assert links.node_behind(port, proxy) is None
            assert looks == LOOKUP_TRIES
        looks = 0
        assert links.node_behind(port, proxy) is None
        assert looks == 0


def test_links_can_be_closed_twice() -> None:
    """After a failed start the cluster has already closed them."""
    links = Links(dict)
    links.close()
    links.close()


def test_of_two_connections_from_one_port_the_one_to_the_proxy_is_found() -> None:
    with socket.create_server((HOST, 0)) as first, socket.create_server((HOST, 0)) as second:
        peers = [socket.socket(), socket.socket()]
        port = 0
        for peer, server in zip(peers, (first, second), strict=True):
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            peer.bind((HOST, port))
            peer.connect(server.getsockname())
            port = peer.getsockname()[1]
        for peer, server in zip(peers, (first, second), strict=True):
            assert inode_of(port, server.getsockname()[1]) == str(os.fstat(peer.fileno()).st_ino)
            peer.close()
