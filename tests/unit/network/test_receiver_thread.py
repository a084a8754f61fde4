"""Large frames that are received beside the loop: by hand under a scripted transport, then by the thread itself."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
import zlib
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from tests.unit.network.scripted import NotingPoller, ScriptedTransport
from tests.unit.network.test_connection import ManualLoop, Recorder, framed, reply

from ottla.network.buffers import SHARED_BYTES, BufferPool
from ottla.network.close_reason import CloseReason
from ottla.network.connection import ConnectedClient, Connection
from ottla.network.listener_limits import ConnectionLimits
from ottla.network.poller import Poller
from ottla.network.receiver_thread import OFFLOADED_BYTES_MIN, ReceiverThread
from ottla.network.socket_server import Acceptor, SocketServer

LARGE = b"L" * (3 * SHARED_BYTES)


class ManualReceiver:
    """The thread, by hand: run() receives for the first who asked, and hand_over() is what the loop then does."""

    def __init__(self) -> None:
        self.asked: list[tuple[Connection, memoryview]] = []
        self.outcomes: list[Callable[[], None]] = []

    def try_receive(self, recipient: Connection, view: memoryview) -> bool:
        self.asked.append((recipient, view))
        return True

    def run(self) -> None:
        recipient, view = self.asked.pop(0)
        received, failure = -1, None
        try:
            received = recipient.transport.receive_into(view)
        except BlockingIOError:
            pass
        except OSError as error:
            failure = error
        self.outcomes.append(lambda: recipient.on_received(received, failure))

    def hand_over(self) -> None:
        self.outcomes.pop(0)()


class World:
    """A connection that has received the first piece of a large frame, and whose next one is received aside."""

    def __init__(self, stream: bytes = framed(LARGE)) -> None:
        self.transport, self.poller, self.loop, self.handler = (
            ScriptedTransport(),
            NotingPoller(),
            ManualLoop(),
            Recorder(),
        )
        self.buffers, self.aside = BufferPool(), ManualReceiver()
        facts = ConnectedClient("client", 1, "PLAINTEXT")
        self.connection = Connection(
            self.transport,
            7,
            self.poller,  # type: ignore[arg-type]
            self.loop,  # type: ignore[arg-type]
            self.buffers,
            self.handler,
            self.handler.on_closed,
            facts,
            100 << 20,
            self.aside,
        )
        self.transport.pieces = [stream[:SHARED_BYTES]]
        self.connection.on_readable()
        self.rest = stream[SHARED_BYTES:]

    def receive(self, *pieces: Any) -> None:
        """Until nothing is left, all of it aside."""
        self.transport.pieces += pieces
        while self.transport.pieces and not self.connection.is_closed:
            self.connection.on_readable()
            while self.aside.asked:
                assert not self.poller.readable, "what is received aside is not received by the loop, too"
                self.aside.run()
                self.aside.hand_over()
            self.poller.end_round()

    def begin(self) -> None:
        self.connection.on_readable()
        assert self.aside.asked, "asked to receive aside"


def test_the_frame_is_handed_over_and_the_connection_reads_on() -> None:
    world = World()
    world.receive(world.rest)
    assert world.handler.frames == [LARGE]
    assert bytes(world.transport.sent) == framed(LARGE)
    assert world.poller.readable


@pytest.mark.parametrize("seed", range(5))
def test_frames_may_come_in_any_pieces(seed: int) -> None:
    rng = random.Random(seed)
    texts = [LARGE, *(rng.randbytes(rng.choice([0, 1, 100, SHARED_BYTES, 5 * SHARED_BYTES])) for _ in range(8))]
    world = World(b"".join(framed(text) for text in texts))
    pieces = []
    while world.rest:
        count = rng.choice([1, 3, 1000, SHARED_BYTES, 4 * SHARED_BYTES])
        pieces.append(world.rest[:count])
        world.rest = world.rest[count:]
    world.receive(*pieces)
    while world.loop.calls or world.poller.to_flush:
        world.loop.run()
        world.poller.end_round()
    assert world.handler.frames == texts


def test_small_frames_are_received_by_the_loop() -> None:
    world = World(b"".join(framed(b"small") for _ in range(10)))
    world.receive(framed(b"x" * 100_000), framed(b"more"))
    assert len(world.handler.frames) == 12
    assert not world.aside.asked


def test_a_connection_that_closes_keeps_socket_and_buffer_until_the_thread_is_back() -> None:
    world = World()
    world.transport.pieces = [world.rest]
    world.begin()
    world.connection.abandon(CloseReason.IDLE)
    assert world.handler.closed == 1
    assert not world.transport.is_closed, "its number may not be another's while the thread receives"
    own = world.connection.frame_buffer
    assert own is not None
    assert world.buffers.allocate(len(own)) is not own
    world.aside.run()
    world.aside.hand_over()
    assert world.transport.is_closed
    assert world.connection.frame_buffer is None
    assert world.handler.frames == []
    assert world.handler.closed == 1


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (b"", CloseReason.CLIENT),
        (OSError(104, "reset by peer"), CloseReason.CONNECTION_LOST),
        (OSError(5, "Input/output error"), CloseReason.TRANSPORT_ERROR),
    ],
)
def test_the_end_and_errors_close_the_connection(outcome: Any, reason: CloseReason) -> None:
    world = World()
    world.receive(outcome)
    assert world.connection.close_reason is reason
    assert world.transport.is_closed
    assert world.handler.frames == []


def test_where_nothing_came_the_connection_goes_on() -> None:
    world = World()
    world.begin()
    world.aside.run()
    world.aside.hand_over()
    assert world.poller.readable
    world.receive(world.rest)
    assert world.handler.frames == [LARGE]


def test_a_reply_that_is_sent_meanwhile_does_not_make_the_loop_read() -> None:
    world = World()
    place = world.connection.reserve_reply(overlaps=True)
    world.transport.pieces = [world.rest]
    world.begin()
    place.complete(reply(framed(b"late")))
    assert not world.poller.readable
    world.aside.run()
    world.aside.hand_over()
    world.receive()
    assert world.handler.frames == [LARGE]


def test_a_frame_that_may_not_start_yet_waits_whole() -> None:
    world = World()
    world.handler.refuse = True
    world.receive(world.rest)
    assert not world.poller.readable
    world.handler.refuse = False
    world.connection.consume_deferred()
    assert world.handler.frames == [LARGE]


def test_a_connection_is_not_idle_while_its_frame_is_received() -> None:
    world = World(framed(LARGE) + framed(LARGE))
    world.receive(world.rest[: 4 + len(LARGE) - SHARED_BYTES])
    assert world.connection.is_idle
    world.begin()
    assert not world.connection.is_idle


# ---- the thread itself


class Checksums:
    """Answers each frame with its checksum."""

    def on_frame(self, connection: Connection, frame: memoryview) -> bool:
        connection.reply(reply(framed(struct.pack(">I", zlib.crc32(frame)))))
        return True


class CountingReceiver(ReceiverThread):
    taken = 0

    def try_receive(self, recipient: Any, view: memoryview) -> bool:
        is_taken = super().try_receive(recipient, view)
        self.taken += is_taken
        return is_taken


def serve(play: Callable[[int], None]) -> CountingReceiver:
    """Runs the play in a thread against a real listener with a receiver."""
    poller = Poller()
    loop = asyncio.SelectorEventLoop(poller)  # type: ignore[arg-type]
    receiver = CountingReceiver(loop, poller)

    async def main() -> None:
        limits = ConnectionLimits(frame_bytes_max=100 << 20)
        connections = SocketServer(limits, Checksums(), poller, receiver=receiver)
        listener = Acceptor("PLAINTEXT", "127.0.0.1", 0, connections)
        listener.start()
        try:
            await loop.run_in_executor(None, play, listener.port)
        finally:
            listener.close()
            await connections.drain(0)

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    return receiver


def send_and_check(port: int, seed: int, failures: list[BaseException]) -> None:
    rng = random.Random(seed)
    try:
        with socket.create_connection(("127.0.0.1", port), 20) as sock:
            for _ in range(15):
                texts = [rng.randbytes(rng.choice([10, 1 << 19, 1 << 20, 3 << 20])) for _ in range(4)]
                stream = memoryview(b"".join(framed(text) for text in texts))
                sender = threading.Thread(target=send_in_pieces, args=(sock, stream, rng.random()))
                sender.start()
                for text in texts:
                    size, checksum = struct.unpack(">iI", receive_exactly(sock, 8))
                    assert (size, checksum) == (4, zlib.crc32(text))
                sender.join()
    except BaseException as failure:  # noqa: BLE001  # raised again by the test
        failures.append(failure)


def send_in_pieces(sock: socket.socket, stream: memoryview, seed: float) -> None:
    rng = random.Random(seed)
    while stream:
        count = rng.choice([1, 5000, 1 << 18, 1 << 21])
        sock.sendall(stream[:count])
        stream = stream[count:]


def receive_exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        some = sock.recv(count - len(data))
        assert some, "closed by the broker"
        data += some
    return data


def test_what_several_clients_send_at_once_arrives_as_it_was_sent() -> None:
    failures: list[BaseException] = []

    def play(port: int) -> None:
        clients = [threading.Thread(target=send_and_check, args=(port, seed, failures)) for seed in range(6)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()

    receiver = serve(play)
    assert not failures, failures
    assert receiver.taken > 0, "nothing was received aside: the test shows nothing"


def test_clients_that_stop_in_the_middle_of_a_frame_do_not_disturb_others() -> None:
    failures: list[BaseException] = []
    half = struct.pack(">i", 90 << 20) + bytes(1 << 20)

    def play(port: int) -> None:
        silent = [socket.create_connection(("127.0.0.1", port), 20) for _ in range(40)]
        for sock in silent[:20]:
            sock.sendall(half)
        for sock in silent[20:]:
            sock.sendall(half[:5])
        client = threading.Thread(target=send_and_check, args=(port, 1, failures))
        client.start()
        for number in range(40):
            with socket.create_connection(("127.0.0.1", port), 20) as sock:
                sock.sendall(half)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", number % 2, 0))  # every 2nd: RST
        send_and_check(port, 2, failures)
        client.join()
        for sock in silent:
            sock.close()

    serve(play)
    assert not failures, failures


def test_a_client_alone_and_one_that_sends_little_are_received_by_the_loop() -> None:
    class Round:
        round_start_ns = 1

    loop = asyncio.new_event_loop()
    receiver = ReceiverThread(loop, Round())
    world = World()
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as sock:
        accepted = listening.accept()[0]
        with accepted:
            world.connection.descriptor = accepted.fileno()
            view = memoryview(bytearray(1 << 20))
            sock.sendall(bytes(1000))
            assert not receiver.try_receive(world.connection, view), "the first of its round"
            assert not receiver.try_receive(world.connection, view), "the second, but there are only a thousand bytes"
            assert not receiver.try_receive(world.connection, view[: OFFLOADED_BYTES_MIN - 1])
    receiver.close()
    loop.close()


def test_a_bug_in_one_connection_closes_that_one_alone() -> None:
    class Round:
        round_start_ns = 1

    class Broken:
        transport, descriptor = ScriptedTransport(), 1
        reasons: ClassVar[list[CloseReason]] = []

        def on_received(self, received: int, error: OSError | None) -> None:
            raise AssertionError("a bug")

        def abandon(self, reason: CloseReason, detail: str = "") -> None:
            self.reasons.append(reason)

    loop = asyncio.new_event_loop()
    receiver, broken = ReceiverThread(loop, Round()), Broken()
    receiver.receive(broken, memoryview(bytearray(1)))
    receiver.close()
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert broken.reasons == [CloseReason.UNEXPECTED_ERROR]


class BrokenTransport:
    def receive_into(self, view: memoryview) -> int:
        raise ValueError("a bug")


class Recipient:
    descriptor = -1

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.heard: list[tuple[int, OSError | None]] = []

    def on_received(self, received: int, error: OSError | None) -> None:
        self.heard.append((received, error))

    def abandon(self, reason: CloseReason, detail: str = "") -> None:
        raise AssertionError((reason, detail))


def test_an_unexpected_error_ends_its_connection_and_not_the_thread() -> None:
    class Round:
        round_start_ns = 1

    class Transport:
        def receive_into(self, view: memoryview) -> int:
            return len(view)

    broken, sound = Recipient(BrokenTransport()), Recipient(Transport())

    async def main() -> None:
        receiver = ReceiverThread(asyncio.get_running_loop(), Round())
        for recipient in (broken, sound):
            receiver.receive(recipient, memoryview(bytearray(5)))
        async with asyncio.timeout(20):
            while not sound.heard:
                await asyncio.sleep(0.001)
        receiver.close()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    [(_, error)] = broken.heard
    assert isinstance(error, OSError)
    assert sound.heard == [(5, None)]
