"""A connection under a scripted transport: frames arrive in any pieces, replies leave in order."""

import itertools
import struct
from functools import partial

import pytest
from tests.unit.network.scripted import NotingPoller, ScriptedTransport

from ottla.base.file_range import FileRange
from ottla.network import connection as module
from ottla.network.buffers import SHARED_BYTES, BufferPool
from ottla.network.close_reason import CloseReason
from ottla.network.connection import ConnectedClient, Connection
from ottla.network.send_queue import EXPANDED_RANGES_MAX
from ottla.protocol.codec import Encoded

NO_FILE = -1  # the transport makes the bytes up; a descriptor of a file would be read


class ManualLoop:
    def __init__(self):
        self.calls = []

    def call_soon(self, callback, *arguments):
        self.calls.append(partial(callback, *arguments))

    def run(self):
        while self.calls:
            self.calls.pop(0)()


class Owner:
    def __init__(self):
        self.released = 0

    def release_range(self):
        self.released += 1


class Recorder:
    """Answers each frame with its own text, unless it is told to park or to refuse."""

    def __init__(self):
        self.frames = []
        self.park = set()
        self.places = {}
        self.refuse = False
        self.answers = {}  # instead of the text itself
        self.closed = 0

    def on_frame(self, connection, frame):
        if self.refuse:
            return False
        text = bytes(frame)
        self.frames.append(text)
        if text in self.park:
            self.places[text] = connection.reserve_reply(overlaps=True)
        else:
            connection.reply(reply(framed(self.answers.get(text, text))))
        return True

    def on_closed(self, connection):
        self.closed += 1


class World:
    def __init__(self, frame_bytes_max=100 << 20):
        self.transport, self.poller, self.loop, self.handler = (
            ScriptedTransport(),
            NotingPoller(),
            ManualLoop(),
            Recorder(),
        )
        self.buffers = BufferPool()
        self.connection = Connection(
            self.transport,
            7,
            self.poller,
            self.loop,
            self.buffers,
            self.handler,
            self.handler.on_closed,
            ConnectedClient("client", 1, "PLAINTEXT"),
            frame_bytes_max,
        )

    def receive(self, *pieces):
        self.transport.pieces.extend(pieces)
        while self.transport.pieces and not self.connection.is_closed:
            self.connection.on_readable()
            self.poller.end_round()

    def run(self):
        """Rounds of the loop until nothing is left to do."""
        while self.loop.calls or self.poller.to_flush:
            self.loop.run()
            self.poller.end_round()

    @property
    def replies(self):
        return bytes(self.transport.sent)


def reply(data, holes=()):
    output = Encoded(data)
    output.holes = list(holes)
    return output


def framed(text):
    return struct.pack(">i", len(text)) + text


def test_a_frame_is_handed_over_and_answered():
    world = World()
    world.receive(framed(b"one"))
    assert world.handler.frames == [b"one"]
    assert world.replies == framed(b"one")


@pytest.mark.parametrize("cut", range(1, 14))
def test_frames_may_arrive_in_any_pieces(cut):
    world = World()
    stream = framed(b"one") + framed(b"twos")
    world.receive(stream[:cut], stream[cut:])
    assert world.handler.frames == [b"one", b"twos"]


def test_one_byte_at_a_time_is_enough():
    world = World()
    world.receive(*(bytes([byte]) for byte in framed(b"slow") + framed(b"loris")))
    assert world.handler.frames == [b"slow", b"loris"]
    assert world.connection.frame_buffer is None


@pytest.mark.parametrize("size", [60_000, SHARED_BYTES - 4, SHARED_BYTES, 700_000, 3_000_000])
@pytest.mark.parametrize("piece", [50_000, 200_000, 10_000_000])
def test_large_frames_arrive_whole(size, piece):
    world = World()
    frames = [bytes([65 + number]) * (size + number) for number in range(4)]
    stream = b"".join(map(framed, frames))
    world.receive(*(stream[at : at + piece] for at in range(0, len(stream), piece)))
    assert world.handler.frames == frames


def test_a_buffer_grows_with_the_bytes_that_came_and_not_with_the_announced_length():
    world = World()
    world.receive(struct.pack(">i", 90 << 20) + b"x" * 100)
    assert world.connection.frame_buffer is not None
    assert len(world.connection.frame_buffer) <= SHARED_BYTES


@pytest.mark.parametrize("announced", [5, 100, 16_384, 16_385, 100_000, SHARED_BYTES, 512 * 1024, 90 << 20])
def test_five_bytes_cost_a_few_kilobytes_whatever_they_announce(announced):
    world = World()
    world.receive(struct.pack(">i", announced) + b"x")
    assert len(world.connection.frame_buffer) <= 4096
    world.connection.abandon(CloseReason.IDLE)
    assert world.connection.frame_buffer is None


@pytest.mark.parametrize("announced", [100_000, 500_000, 90 << 20])
@pytest.mark.parametrize("came", [2_000, 20_000, 70_000])
def test_a_buffer_is_at_most_eight_times_what_came(announced, came):
    world = World()
    world.receive(struct.pack(">i", announced), b"x" * came)
    assert len(world.connection.frame_buffer) <= 8 * (came + 4)


def test_one_byte_behind_a_very_large_frame_does_not_take_as_much_again():
    world = World()
    world.receive(framed(b"x" * (20 << 20)), struct.pack(">i", 20 << 20) + b"x")
    assert len(world.connection.frame_buffer) <= module.EXPECTED_BYTES_MAX


@pytest.mark.parametrize("size", [-1, -(2**31), 1025, 2**31 - 1])
def test_a_frame_of_a_forbidden_size_closes_the_connection(size):
    world = World(frame_bytes_max=1024)
    world.receive(struct.pack(">i", size) + b"abc")
    assert world.connection.is_closed
    assert world.transport.is_closed
    assert not world.poller.is_watched
    assert world.handler.closed == 1


def test_replies_leave_in_the_order_of_the_requests():
    world = World()
    world.handler.park = {b"slow"}
    world.receive(framed(b"slow") + framed(b"quick"))
    assert world.replies == b""
    world.handler.places[b"slow"].complete(reply(framed(b"slow")))
    assert world.replies == framed(b"slow") + framed(b"quick")


def test_a_parked_request_may_get_no_reply_at_all():
    world = World()
    world.handler.park = {b"silent"}
    world.receive(framed(b"silent") + framed(b"next"))
    world.handler.places[b"silent"].complete(None)
    assert world.replies == framed(b"next")


def test_a_request_that_may_not_start_yet_is_offered_again():
    world = World()
    world.handler.refuse = True
    world.receive(framed(b"wait"))
    assert world.handler.frames == []
    assert not world.poller.readable
    world.handler.refuse = False
    world.connection.consume_deferred()
    world.run()
    assert world.handler.frames == [b"wait"]
    assert world.poller.readable


def test_a_client_that_does_not_read_its_answers_is_not_read_from():
    world = World()
    world.transport.room = 0
    answer = b"a" * 100_000
    for _ in range(20):
        if world.poller.readable:
            world.receive(framed(answer))
    assert not world.poller.readable
    assert world.poller.writable
    assert world.connection.send_queue.unsent_bytes < module.UNSENT_BYTES_MAX + 2 * len(answer)
    world.transport.room = 1 << 60
    world.connection.on_writable()
    world.run()
    assert world.poller.readable
    assert not world.poller.writable
    assert world.connection.send_queue.unsent_bytes == 0


def test_a_client_that_sends_on_while_its_answers_wait_to_be_sent_is_not_closed():
    """Over TLS a connection is read from twice in a round. The full buffer was taken for the end of the stream."""
    world = World()
    world.handler.answers = {b"ask" + b"x" * 1000: b"a" * 20_000}
    frames = framed(b"ask" + b"x" * 1000) * 1000
    world.transport.pieces.append(frames)
    while world.transport.pieces and not world.connection.is_closed:
        for _ in range(3):
            world.connection.on_readable()
        world.run()
    assert not world.connection.is_closed
    assert world.replies == framed(b"a" * 20_000) * 1000


def test_many_parked_requests_stop_the_reading():
    world = World()
    world.handler.park = {b"%03d" % number for number in range(300)}
    world.receive(b"".join(framed(b"%03d" % number) for number in range(300)))
    world.run()
    assert len(world.connection.pending) == module.PENDING_MAX
    assert not world.poller.readable


def test_a_burst_of_small_frames_is_worked_off_in_turns():
    world = World()
    world.receive(framed(b"x") * 1000)
    assert len(world.handler.frames) == module.FRAMES_PER_ROUND
    world.run()
    assert len(world.handler.frames) == 1000
    assert world.replies == framed(b"x") * 1000


def test_a_file_range_is_sent_between_the_bytes_around_it_and_released():
    world, owner = World(), Owner()
    world.handler.park = {b"fetch"}
    world.receive(framed(b"fetch"))
    world.transport.room = 5
    output = reply(b"headtail", [(4, FileRange(owner, NO_FILE, 0, 10))])
    world.handler.places[b"fetch"].complete(output)
    while world.poller.writable:
        assert owner.released == (world.replies.count(b"F") == 10)
        world.transport.room = 3
        world.connection.on_writable()
    assert world.replies == b"head" + b"F" * 10 + b"tail"
    assert owner.released == 1


def test_ranges_are_released_when_the_connection_closes_before_they_are_sent():
    world, owner = World(), Owner()
    world.handler.park = {b"a", b"b", b"c"}
    world.receive(framed(b"a") + framed(b"b") + framed(b"c"))
    world.transport.room = 0
    world.handler.places[b"a"].complete(reply(b"h", [(1, FileRange(owner, NO_FILE, 0, 10))]))
    world.handler.places[b"c"].complete(reply(b"h", [(1, FileRange(owner, NO_FILE, 0, 10))]))
    world.connection.abandon(CloseReason.IDLE)
    world.handler.places[b"b"].complete(reply(b"h", [(1, FileRange(owner, NO_FILE, 0, 10))]))
    assert owner.released == 3


def test_a_reply_with_thousands_of_ranges_leaves_in_turns():
    """They were copied, sent and released in one callback: 76 ms for 16,000."""
    world = World()
    owner = Owner()
    count = 10_000
    world.handler.park = {b"many"}
    world.receive(framed(b"many"))
    holes = [(number, FileRange(owner, NO_FILE, 0, 10)) for number in range(count)]
    world.transport.room = 0
    world.handler.places[b"many"].complete(reply(b"." * count, holes))
    world.receive(framed(b"next"))
    assert owner.released == 0
    turns = [owner.released]
    world.transport.room = 1 << 60
    while world.connection.is_writing:
        world.connection.on_writable()
        turns.append(owner.released)
    assert world.replies == b"F" * 10 + (b"." + b"F" * 10) * (count - 1) + b"." + framed(b"next")
    assert max(after - before for before, after in itertools.pairwise(turns)) <= 5 * EXPANDED_RANGES_MAX
    assert world.connection.send_queue.unsent_bytes == 0


@pytest.mark.parametrize("is_sent", [False, True])
def test_the_ranges_of_a_client_that_goes_away_are_released_in_turns(is_sent):
    world = World()
    owner = Owner()
    world.handler.park = {b"first", b"many"}
    world.receive(framed(b"first") + framed(b"many"))
    world.transport.room = 0
    world.handler.places[b"many"].complete(
        reply(b"." * 5_000, [(number, FileRange(owner, NO_FILE, 0, 10)) for number in range(5_000)])
    )
    if is_sent:
        world.handler.places[b"first"].complete(None)
    world.connection.abandon(CloseReason.CLIENT)
    turns = [owner.released]
    while world.loop.calls:
        world.loop.calls.pop(0)()
        turns.append(owner.released)
    assert turns == [1000, 2000, 3000, 4000, 5000]


@pytest.mark.parametrize("end", [b"", ConnectionResetError(104, "Connection reset by peer")])
def test_the_end_of_the_stream_closes_the_connection_once(end):
    world = World()
    world.receive(framed(b"last")[:5], end)
    world.connection.abandon(CloseReason.IDLE)
    assert world.handler.closed == 1


def test_a_request_behind_a_large_answer_that_left_at_once_is_not_forgotten():
    world = World()
    world.handler.answers = {b"fetch": b"L" * (module.UNSENT_BYTES_MAX + 1)}
    world.receive(framed(b"fetch") + framed(b"next"))
    world.run()
    assert world.handler.frames == [b"fetch", b"next"]
    assert world.replies.endswith(framed(b"next"))
    assert world.poller.readable


class NotingProbe:
    """Notes what it is told."""

    def __init__(self):
        self.told = []

    def on_sending(self):
        self.told.append("sending")

    def on_sent(self):
        self.told.append("sent")


def test_a_probe_is_notified_when_its_reply_is_sent_and_not_before():
    world, probe = World(), NotingProbe()
    world.transport.room = 6
    world.transport.pieces.append(framed(b"hello"))
    world.connection.on_readable()
    world.connection.notify_when_sent(probe)
    world.poller.end_round()
    assert probe.told == ["sending"], "three of nine bytes are not sent yet"
    world.transport.room = 1 << 60
    world.connection.on_writable()
    assert probe.told == ["sending", "sending", "sent"]
    assert world.connection.send_listener is None


def test_bytes_are_counted_both_ways():
    world = World()
    world.receive(framed(b"hello"), framed(b"you"))
    assert world.connection.received_bytes == world.connection.sent_bytes == len(framed(b"hello") + framed(b"you"))
