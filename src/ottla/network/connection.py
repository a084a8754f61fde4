"""One client's connection: frames in, replies out, in the order of the requests.

Rules:
1. A frame is handed over as a view of a buffer that is used again afterwards: nobody keeps it past the call.
2. Replies leave in the order in which their requests came, also when a later one is ready first.
3. A client that does not read its answers, has too many requests under way, or is throttled is not read from.
4. Nothing here awaits: the poller calls on_readable() and on_writable(), the handler answers now or later.
5. A request that overlaps with others may start while they are unanswered, unless one of them wants to be alone. Every
   other request starts when all before it are answered, and is alone until it is answered itself.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from ottla.base.file_range import FileRange
from ottla.base.tasks import tell
from ottla.network.buffers import SHARED_BYTES, SMALLEST_BYTES, Buffers
from ottla.network.client_facts import Cancellable, ClientFacts, Probe
from ottla.network.link_options import Pace
from ottla.network.receiver import Aside
from ottla.network.small_ranges import chunks_of
from ottla.network.transport import Transport
from ottla.protocol.codec import Encoded

SIZE_BYTES: Final = 4
UNSENT_BYTES_MAX: Final = 1024 * 1024
PENDING_MAX: Final = 100
FRAMES_PER_TURN: Final = 128  # then the others have their turn
SENT_BYTES_PER_TURN: Final = 4 * 1024 * 1024
JOINED_BYTES_MAX: Final = 64 * 1024  # small replies are joined into one send up to this size

_size: Final = struct.Struct(">i")


class FrameHandler(Protocol):
    """Who understands the frames: the broker's dispatcher."""

    def on_frame(self, connection: Connection, frame: memoryview) -> bool:
        """Deal with one request; False = not yet, offer it again when the earlier requests are answered."""
        ...


class Rounds(Protocol):
    """The poller, as a connection sees it."""

    def interest(self, descriptor: int, readable: bool, writable: bool) -> None: ...

    def flush_later(self, watched: Connection) -> None: ...

    def unwatch(self, descriptor: int) -> None: ...


class PendingReply:
    """The place of a reply that is not ready yet in the line of its connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.output: Encoded | None = None
        self.is_complete = False

    def complete(self, output: Encoded | None) -> None:
        """Fill the place; None = this request gets no reply (acks=0)."""
        assert not self.is_complete, "a reply is completed once"
        self.is_complete = True
        if self.connection.is_closed:
            if output is not None:
                release_ranges(output)
            return
        self.output = output
        self.connection.on_place_filled(self)

    def stand_alone(self) -> None:
        """Nothing may start beside this request until it is answered or lets others start."""
        assert self.connection.alone is None or self.connection.alone is self, "one request at a time is alone"
        self.connection.alone = self

    def let_others_start(self) -> None:
        connection = self.connection
        if connection.alone is self:
            connection.alone = None
            connection.resume()


class Connection:
    """State of one connection between two calls of the poller."""

    def __init__(
        self,
        transport: Transport,
        descriptor: int,
        poller: Rounds,
        loop: asyncio.AbstractEventLoop,
        buffers: Buffers,
        handler: FrameHandler,
        on_closed: Callable[[Connection], None],
        client: ClientFacts,
        frame_bytes_max: int,
        aside: Aside | None = None,
    ) -> None:
        self.transport = transport
        self.descriptor = descriptor
        self.poller = poller
        self.loop = loop
        self.buffers = buffers
        self.handler = handler
        self.on_closed = on_closed
        self.client = client
        self.frame_bytes_max = frame_bytes_max
        self.last_active_tick = 0
        self.is_closed = False
        self.close_reason = ""
        self.waiting: set[Cancellable] = set()  # requests that are parked somewhere and must know when we close
        self.watchers: dict[str, Callable[[], None]] = {}  # whoever else wants to know, under a name of its own
        # receiving
        self.own: memoryview | None = None  # a frame that is not whole yet, or that has to wait
        self.have = 0
        self.expected = 0  # size of the last large frame: the next one probably has it too
        self.is_reading = True
        self.is_waiting = False  # the first frame in `own` may not start before earlier replies are out
        self.aside = aside
        self.is_aside = False  # another thread fills `own` and uses the transport: neither may be given away meanwhile
        # sending
        self.pending: deque[PendingReply] = deque()
        self.alone: PendingReply | None = None  # beside this one nothing may start
        self.throttled: asyncio.TimerHandle | None = None  # while it is there nothing is read or started
        self.out: deque[bytearray | memoryview | FileRange] = deque()
        self.unsent_bytes = 0
        self.is_writing = False  # the socket is full: the poller tells when there is room
        self.is_flushing = False  # the poller calls flush() at the end of its round
        self.pace: Pace | None = None
        # counting
        self.received_bytes = self.sent_bytes = 0
        self.probe: Probe | None = None
        self.probe_end = 0  # `sent_bytes` when the reply that the probe follows is out

    # ---- receiving

    def on_readable(self) -> None:
        if self.is_closed or not self.is_reading:
            return
        view = self._receive_buffer()
        if self.expected > SHARED_BYTES and self.aside is not None and self.aside.takes(self, view):
            self.is_aside = True
            self._update_reading()
            return
        try:
            received = self.transport.receive_into(view)
        except BlockingIOError:
            self._keep(view, 0, self.have)
            return
        except OSError as error:
            self.abandon(error.strerror or "connection lost")
            return
        if received == 0:
            self.abandon("closed by the client")
            return
        self.last_active_tick = -1
        self.received_bytes += received
        self._consume(self.have + received)

    def on_received(self, received: int, error: OSError | None) -> None:
        """What came of receiving beside the loop: so many bytes, 0 at the end, less if there was nothing."""
        self.is_aside = False
        if self.is_closed:
            self._give_back()
        elif error is not None:
            self.abandon(error.strerror or "connection lost")
        elif received == 0:
            self.abandon("closed by the client")
        elif received < 0:
            self._update_reading()
        else:
            self.last_active_tick = -1
            self.received_bytes += received
            self._consume(self.have + received)

    def _receive_buffer(self) -> memoryview:
        """Where the next bytes go: behind what is there, and not past the end of a large frame."""
        own = self.own
        if own is None:
            if self.expected <= SHARED_BYTES:
                return self.buffers.shared
            own = self.own = self.buffers.take(self.expected)
            return own[: self.expected]
        have = self.have
        if have < SIZE_BYTES:
            return own[have:]
        needed: int = SIZE_BYTES + _size.unpack_from(own, 0)[0]
        if needed <= SHARED_BYTES <= len(own):
            return own[have:]
        if needed > len(own) and have == len(own):
            own = self._grow(own, min(needed, 2 * have))
        return own[have : min(needed, len(own))]

    def _grow(self, own: memoryview, size_bytes: int) -> memoryview:
        larger = self.buffers.take(size_bytes)
        larger[: self.have] = own[: self.have]
        self.buffers.give(own)
        self.own = larger
        return larger

    def _consume(self, end: int) -> None:
        """Hand over every whole frame in the buffer, then keep the rest."""
        own = self.own
        view = self.buffers.shared if own is None else own
        position = 0
        turns_left = FRAMES_PER_TURN
        self.is_waiting = False
        while end - position >= SIZE_BYTES:
            size: int = _size.unpack_from(view, position)[0]
            if size < 0 or size > self.frame_bytes_max:
                self.abandon(f"a frame of {size} bytes ({self.frame_bytes_max} are allowed)")
                return
            start = position + SIZE_BYTES
            frame_end = start + size
            if frame_end > end:
                self.expected = SIZE_BYTES + size
                break
            if turns_left == 0 or not self._has_room():
                self.is_waiting = True
                break
            if not self.handler.on_frame(self, view[start:frame_end]):
                self.is_waiting = not self.is_closed
                break
            if self.is_closed:
                return
            position = frame_end
            turns_left -= 1
        if self.is_closed:
            return
        self._keep(view, position, end)
        if self.out and not self.is_writing:
            if not self.is_flushing:
                self.is_flushing = True
                self.poller.flush_later(self)
        else:
            self._update_reading()
        if self.is_waiting and turns_left == 0 and self._has_room():
            self.loop.call_soon(self.on_turn)

    def may_start(self, overlaps: bool) -> bool:
        """Whether a request of this kind may begin beside those that are not answered yet."""
        return not self.pending or (overlaps and self.alone is None)

    def _has_room(self) -> bool:
        return self.unsent_bytes <= UNSENT_BYTES_MAX and len(self.pending) < PENDING_MAX and self.throttled is None

    def _keep(self, view: memoryview, position: int, end: int) -> None:
        rest = end - position
        own = self.own
        self.have = rest
        if rest == 0:
            if own is not None:
                self.buffers.give(own)
                self.own = None
            if end <= SHARED_BYTES:
                self.expected = 0
            return
        if own is None:
            own = self.own = self.buffers.take(self._first_capacity(rest))
            own[:rest] = view[position:end]
        elif position:
            own[:rest] = own[position:end]

    def _first_capacity(self, rest: int) -> int:
        """Small frames keep little; frames that fit the shared buffer get one like it, so that several come at once."""
        if self.expected <= SMALLEST_BYTES // 4:
            return max(rest, SMALLEST_BYTES)
        if self.expected <= SHARED_BYTES:
            return SHARED_BYTES
        return max(rest, min(self.expected, 2 * rest))

    def on_turn(self) -> None:
        """Go on with frames that were received but had to wait."""
        if self.is_waiting and not self.is_closed:
            self._consume(self.have)

    def _update_reading(self) -> None:
        """Read on, unless frames are waiting already or the client does not take its answers."""
        if self.is_closed:
            return
        should_read = not self.is_waiting and not self.is_aside and self._has_room()
        if should_read != self.is_reading:
            self.is_reading = should_read
            self.poller.interest(self.descriptor, should_read, self.is_writing)

    # ---- replying

    def reply(self, output: Encoded) -> None:
        """Answer a request at once: it leaves behind all replies before it."""
        if self.pending:
            place = PendingReply(self)
            place.is_complete = True
            place.output = output
            self.pending.append(place)
        else:
            self._queue(output)

    def park(self, overlaps: bool) -> PendingReply:
        """Keep the place of a reply that comes later."""
        place = PendingReply(self)
        self.pending.append(place)
        if not overlaps:
            place.stand_alone()
        return place

    def throttle(self, seconds: float) -> None:
        """Take nothing more from this client for so long (KIP-219); what was accepted is answered meanwhile."""
        if self.is_closed:
            return
        until = self.loop.time() + seconds
        if self.throttled is not None:
            until = max(until, self.throttled.when())
            self.throttled.cancel()
        self.throttled = self.loop.call_at(until, self._on_throttle_end)
        self._update_reading()

    def _on_throttle_end(self) -> None:
        self.throttled = None
        self.resume()

    def follow(self, probe: Probe) -> None:
        """Tell this probe when the reply that was given last is being sent and is out; one probe at a time."""
        if self.probe is None and not self.pending:
            self.probe = probe
            self.probe_end = self.sent_bytes + self.unsent_bytes

    def on_place_filled(self, place: PendingReply) -> None:
        if self.alone is place:
            self.alone = None
        pending = self.pending
        while pending and pending[0].is_complete:
            output = pending.popleft().output
            if output is not None:
                self._queue(output)
        if self.out and not self.is_writing:
            self._send()
        self.resume()

    def resume(self) -> None:
        """Something that held requests back may be over."""
        if self.is_closed:
            return
        if self.is_waiting and self._has_room() and self.may_start(overlaps=True):
            # Not called directly: a handler may be completing replies from inside on_frame().
            self.loop.call_soon(self.on_turn)
        else:
            self._update_reading()

    def _queue(self, output: Encoded) -> None:
        if not output.holes:
            self._append(output)
            return
        for chunk in chunks_of(output):
            self._append(chunk)

    def _append(self, chunk: bytearray | FileRange) -> None:
        out = self.out
        if isinstance(chunk, FileRange):
            self.unsent_bytes += chunk.length
            out.append(chunk)
            return
        self.unsent_bytes += len(chunk)
        if out:
            last = out[-1]
            if isinstance(last, bytearray) and len(last) + len(chunk) <= JOINED_BYTES_MAX and not self.is_writing:
                last += chunk
                return
        out.append(chunk)

    # ---- sending

    def on_writable(self) -> None:
        if not self.is_closed:
            self._send()
            self.resume()

    def flush(self) -> None:
        """Send what this round's requests were answered with."""
        self.is_flushing = False
        if not self.is_closed and not self.is_writing:
            self._send()
            self.resume()

    def _send(self) -> None:
        out = self.out
        budget = SENT_BYTES_PER_TURN
        probe = self.probe
        if probe is not None:
            probe.on_sending()
        try:
            while out and budget > 0:
                chunk = out[0]
                if isinstance(chunk, FileRange):
                    budget -= self._send_range(chunk, budget)
                else:
                    sent = self.transport.send(chunk, len(out) > 1)
                    self.unsent_bytes -= sent
                    self.sent_bytes += sent
                    budget -= sent
                    if sent == len(chunk):
                        out.popleft()
                    else:
                        out[0] = memoryview(chunk)[sent:]
        except BlockingIOError:
            pass
        except OSError as error:
            self.abandon(error.strerror or "connection lost")
            return
        if probe is not None and self.sent_bytes >= self.probe_end:
            self.probe = None
            probe.on_sent()
        should_write = len(out) > 0
        if should_write != self.is_writing:
            self.is_writing = should_write
            self.poller.interest(self.descriptor, self.is_reading, should_write)
            if should_write and self.pace is not None:
                self.pace.on_full(self.loop.time())

    def _send_range(self, file_range: FileRange, budget: int) -> int:
        sent = self.transport.send_file(file_range, budget)
        if sent == 0:
            raise OSError(0, "a log file is shorter than the range that was to be sent")
        self.unsent_bytes -= sent
        self.sent_bytes += sent
        if sent == file_range.length:
            self.out.popleft()
            file_range.release()
        else:
            file_range.position += sent
            file_range.length -= sent
        return sent

    # ---- the end

    def abandon(self, reason: str) -> None:
        """Close now; what was not sent is lost, what was accepted goes on without a reply."""
        if self.is_closed:
            return
        self.is_closed = True
        self.close_reason = reason
        self.poller.unwatch(self.descriptor)
        if not self.is_aside:
            self._give_back()
        for chunk in self.out:
            if isinstance(chunk, FileRange):
                chunk.release()
        self.out.clear()
        for place in self.pending:
            if place.output is not None:
                release_ranges(place.output)
        self.pending.clear()
        self.alone = None
        if self.throttled is not None:
            self.throttled.cancel()
        for request in list(self.waiting):
            tell(request.cancel)
        self.waiting.clear()
        for watcher in self.watchers.values():
            tell(watcher)
        self.watchers.clear()
        self.on_closed(self)

    def _give_back(self) -> None:
        self.transport.close()
        if self.own is not None:
            self.buffers.give(self.own)
            self.own = None

    @property
    def is_idle(self) -> bool:
        """Nothing is being received, answered or sent."""
        return not self.pending and not self.out and self.have == 0 and not self.is_aside

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "waiting" if self.is_waiting else "open"
        return f"<Connection {self.client.host} {state}, {len(self.pending)} pending, {self.unsent_bytes} bytes unsent>"


def release_ranges(output: Encoded) -> None:
    """Give the ranges of a reply back that will not be sent."""
    for _, file_range in output.holes:
        file_range.release()
