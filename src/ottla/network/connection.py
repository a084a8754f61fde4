"""One client's connection: frames in, replies out, in the order of the requests.

Rules:
1. A frame is passed on as a view of a buffer that is reused: do not keep it after the call.
2. Replies are sent in the order of their requests, even if a later one is ready first.
3. The connection is not read while the client does not read its responses, has too many pending requests, or is
   throttled.
4. No code here awaits: the poller calls on_readable() and on_writable(), the handler replies now or later.
5. A request that may overlap with others starts while they are pending, unless one of them is exclusive. Any other
   request starts when all before it have their replies, and is exclusive until it has its own.
Compiled with mypyc where possible.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from ottla.base.file_range import FileRange
from ottla.base.security import ANONYMOUS
from ottla.base.tasks import notify_safely
from ottla.network.buffers import SHARED_BYTES, BufferPool
from ottla.network.close_reason import CloseReason, reason_of
from ottla.network.receiver_thread import OffloadedReceiver
from ottla.network.send_queue import SendQueue, file_ranges_of, release_in_batches
from ottla.network.socket_options import PacingControl
from ottla.network.transport import Transport
from ottla.protocol.codec import Encoded


class ConnectedClient:
    """Facts about the client of a connection."""

    def __init__(self, host: str, port: int, listener_name: str) -> None:
        self.host, self.port, self.listener_name, self.client_id = host, port, listener_name, ""
        self.principal, self.is_delegated = ANONYMOUS, False  # delegated: logged in with a delegation token
        self.is_authenticated = True  # false on a listener with authentication, until the login succeeds
        self.sends_bare_sasl_tokens = False  # its frames are bare SASL tokens (SaslHandshake v0)
        self.login: Any = None  # login state on such a listener; opaque here
        self.quota_shares: Any = None  # its quotas, once resolved; opaque here
        self.commit_form: Any = None  # the form of its offset commits; opaque here
        self.last_throttled_by: Any = None  # the quota that has throttled it last
        # Until the client sends them (KIP-511); they are not verified.
        self.software_name = self.software_version = "unknown"


class Cancellable(Protocol):
    """A waiting request that must be cancelled when its connection closes."""

    def cancel(self) -> None: ...


class SendListener(Protocol):
    """A listener for the time at which one reply is sent."""

    def on_sending(self) -> None: ...

    def on_sent(self) -> None: ...


SIZE_BYTES: Final = 4
UNSENT_BYTES_MAX: Final = 1024 * 1024
PENDING_MAX: Final = 100
FRAMES_PER_ROUND: Final = 128  # then other connections are served
SENT_BYTES_PER_ROUND: Final = 4 * 1024 * 1024
BUFFER_GROWTH_FACTOR: Final = 4  # growth factor of a buffer, so that at most a third of a large frame is copied
# Upper limit for a buffer that is taken at once because the last frame was large.
EXPECTED_BYTES_MAX: Final = 2 * 1024 * 1024
EXPAND_COST_BYTES: Final = 1024 * 1024  # cost of expanding some hundred ranges of a reply, in bytes of the send budget

_size: Final = struct.Struct(">i")


class RequestHandler(Protocol):
    """Handles frames: the broker's dispatcher."""

    def on_frame(self, connection: Connection, frame: memoryview) -> bool:
        """Handle one request. False: offer it again when the earlier requests have their replies."""
        ...


class ConnectionPoller(Protocol):
    """The part of the poller that a connection uses."""

    def interest(self, descriptor: int, readable: bool, writable: bool) -> None: ...

    def flush_later(self, watched: Connection) -> None: ...

    def unwatch(self, descriptor: int) -> None: ...


class PendingReply:
    """The reserved place of a later reply in the order of its connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.output: Encoded | None = None
        self.is_complete = False

    def complete(self, output: Encoded | None) -> None:
        """Set the reply; None if the request has none (acks=0)."""
        assert not self.is_complete, "a reply is completed once"
        self.is_complete = True
        if self.connection.is_closed:
            if output is not None:
                release_in_batches(file_ranges_of(output), self.connection.loop)
            return
        self.output = output
        self.connection.on_reply_completed(self)

    def make_exclusive(self) -> None:
        """Start no other request until this one has its reply or calls release_exclusive()."""
        assert self.connection.exclusive_reply is None or self.connection.exclusive_reply is self, (
            "only one request is exclusive"
        )
        self.connection.exclusive_reply = self

    def release_exclusive(self) -> None:
        connection = self.connection
        if connection.exclusive_reply is self:
            connection.exclusive_reply = None
            connection.resume()


class Connection:
    """The state of one connection between two calls of the poller."""

    def __init__(
        self,
        transport: Transport,
        descriptor: int,
        poller: ConnectionPoller,
        loop: asyncio.AbstractEventLoop,
        buffers: BufferPool,
        handler: RequestHandler,
        on_closed: Callable[[Connection], None],
        client: ConnectedClient,
        frame_bytes_max: int,
        receiver_thread: OffloadedReceiver | None = None,
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
        self.last_active_tick = -1  # since the last sweep: so is a connection that has sent nothing yet
        self.is_closed = False
        self.close_reason: CloseReason | None = None
        self.close_detail = ""
        self.waiting_requests: set[Cancellable] = set()  # waiting requests, to be cancelled when the connection closes
        self.close_listeners: dict[str, Callable[[], None]] = {}  # other close listeners, by name
        # receiving
        self.frame_buffer: memoryview | None = None  # a partly received frame, or frames that have to wait
        self.buffered_bytes = 0
        self.expected_bytes = 0  # size of the last large frame; the next one probably has it too
        self.is_reading = True
        self.has_deferred_frame = False  # the first frame in `own` may not start before earlier replies are sent
        self.receiver_thread = receiver_thread
        self.is_offloaded = False  # another thread fills `own` and uses the transport: neither may be released
        # sending
        self.pending: deque[PendingReply] = deque()
        self.exclusive_reply: PendingReply | None = None  # no other request may start while this one is pending
        self.throttle_timer: asyncio.TimerHandle | None = None  # while it is set, no request is read or started
        self.send_queue = SendQueue()
        self.unsent_chunks = self.send_queue.chunks
        self.is_writing = False  # the socket buffer is full: the poller reports when it has space
        self.is_flushing = False  # the poller calls flush() at the end of its round
        self.pace: PacingControl | None = None
        # counting
        self.received_bytes = self.sent_bytes = 0
        self.send_listener: SendListener | None = None
        self.send_listener_end = 0  # `sent_bytes` after the reply of the probe

    # ---- receiving

    def on_readable(self) -> None:
        if self.is_closed or not self.is_reading:
            return
        view = self._receive_buffer()
        if (
            self.expected_bytes > SHARED_BYTES
            and self.receiver_thread is not None
            and self.receiver_thread.try_receive(self, view)
        ):
            self.is_offloaded = True
            self._update_reading()
            return
        try:
            received = self.transport.receive_into(view)
        except BlockingIOError:
            self._keep_remainder(view, 0, self.buffered_bytes)
            return
        except OSError as error:
            self.abandon(reason_of(error), error.strerror or "connection lost")
            return
        if received == 0:
            self.abandon(CloseReason.CLIENT)
            return
        self.last_active_tick = -1
        self.received_bytes += received
        self._consume(self.buffered_bytes + received)

    def on_received(self, received: int, error: OSError | None) -> None:
        """Process the result of a receive in another thread: a byte count, 0 at the end, negative without data."""
        self.is_offloaded = False
        if self.is_closed:
            self._release_resources()
        elif error is not None:
            self.abandon(reason_of(error), error.strerror or "connection lost")
        elif received == 0:
            self.abandon(CloseReason.CLIENT)
        elif received < 0:
            self._update_reading()
        else:
            self.last_active_tick = -1
            self.received_bytes += received
            self._consume(self.buffered_bytes + received)

    def _receive_buffer(self) -> memoryview:
        """Return the buffer for the next bytes: after the existing ones, and not past the end of a large frame."""
        own = self.frame_buffer
        if own is None:
            if self.expected_bytes <= SHARED_BYTES:
                return self.buffers.shared_buffer
            own = self.frame_buffer = self.buffers.allocate(min(self.expected_bytes, EXPECTED_BYTES_MAX))
            return own[: self.expected_bytes]
        have = self.buffered_bytes
        if have < SIZE_BYTES:
            return own[have:]
        needed: int = SIZE_BYTES + _size.unpack_from(own, 0)[0]
        if needed <= SHARED_BYTES <= len(own):
            return own[have:]
        if needed > len(own) and have == len(own):
            own = self._grow(own, min(needed, BUFFER_GROWTH_FACTOR * have))
        return own[have : min(needed, len(own))]

    def _grow(self, own: memoryview, size_bytes: int) -> memoryview:
        larger = self.buffers.allocate(size_bytes)
        larger[: self.buffered_bytes] = own[: self.buffered_bytes]
        self.buffers.deallocate(own)
        self.frame_buffer = larger
        return larger

    def _consume(self, end: int) -> None:
        """Handle every whole frame in the buffer, then keep the rest."""
        own = self.frame_buffer
        view = self.buffers.shared_buffer if own is None else own
        position = 0
        turns_left = FRAMES_PER_ROUND
        self.has_deferred_frame = False
        while end - position >= SIZE_BYTES:
            size: int = _size.unpack_from(view, position)[0]
            if size < 0 or size > self.frame_bytes_max:
                self.abandon(CloseReason.FRAME_SIZE, f"a frame of {size} bytes ({self.frame_bytes_max} are allowed)")
                return
            start = position + SIZE_BYTES
            frame_end = start + size
            if frame_end > end:
                self.expected_bytes = SIZE_BYTES + size
                break
            if turns_left == 0 or not self._may_accept_requests():
                self.has_deferred_frame = True
                break
            if not self.handler.on_frame(self, view[start:frame_end]):
                self.has_deferred_frame = not self.is_closed
                break
            if self.is_closed:
                return
            position = frame_end
            turns_left -= 1
        if self.is_closed:
            return
        self._keep_remainder(view, position, end)
        is_to_flush = len(self.unsent_chunks) > 0 and not self.is_writing
        if is_to_flush and not self.is_flushing:
            self.is_flushing = True
            self.poller.flush_later(self)
        if self.has_deferred_frame or not is_to_flush:
            # At once while frames wait: TLS may deliver more before the flush, and a full buffer has no space.
            self._update_reading()
        if self.has_deferred_frame and turns_left == 0 and self._may_accept_requests():
            self.loop.call_soon(self.consume_deferred)

    def may_start(self, overlaps: bool) -> bool:
        """Return whether a request of this kind may start while others are pending."""
        return not self.pending or (overlaps and self.exclusive_reply is None)

    def _may_accept_requests(self) -> bool:
        return (
            self.send_queue.unsent_bytes <= UNSENT_BYTES_MAX
            and len(self.pending) < PENDING_MAX
            and self.throttle_timer is None
        )

    def _keep_remainder(self, view: memoryview, position: int, end: int) -> None:
        rest = end - position
        own = self.frame_buffer
        self.buffered_bytes = rest
        if rest == 0:
            if own is not None:
                self.buffers.deallocate(own)
                self.frame_buffer = None
            if end <= SHARED_BYTES:
                self.expected_bytes = 0
            return
        if own is None:
            own = self.frame_buffer = self.buffers.allocate(self._initial_capacity(rest))
            own[:rest] = view[position:end]
        elif position:
            own[:rest] = own[position:end]

    def _initial_capacity(self, rest: int) -> int:
        """Return the initial size of a buffer, which depends on received bytes, not on the announced length:

        five bytes must cost only a few kilobytes.
        """
        whole = SHARED_BYTES if self.expected_bytes <= SHARED_BYTES else self.expected_bytes
        return max(rest, min(whole, BUFFER_GROWTH_FACTOR * rest))

    def consume_deferred(self) -> None:
        """Continue with frames that were received but had to wait."""
        if self.has_deferred_frame and not self.is_closed:
            self._consume(self.buffered_bytes)

    def _update_reading(self) -> None:
        """Enable reading, unless frames are waiting or the client does not read its responses."""
        if self.is_closed:
            return
        should_read = not self.has_deferred_frame and not self.is_offloaded and self._may_accept_requests()
        if should_read != self.is_reading:
            self.is_reading = should_read
            self.poller.interest(self.descriptor, should_read, self.is_writing)

    # ---- replying

    def reply(self, output: Encoded) -> None:
        """Reply to a request at once; the reply is sent after all earlier ones."""
        if self.pending:
            place = PendingReply(self)
            place.is_complete = True
            place.output = output
            self.pending.append(place)
        else:
            self.send_queue.add(output, not self.is_writing)

    def reserve_reply(self, overlaps: bool) -> PendingReply:
        """Reserve the place of a later reply."""
        place = PendingReply(self)
        self.pending.append(place)
        if not overlaps:
            place.make_exclusive()
        return place

    def throttle(self, seconds: float) -> None:
        """Read no requests from this client for this time (KIP-219); accepted requests still get their replies."""
        if self.is_closed:
            return
        until = self.loop.time() + seconds
        if self.throttle_timer is not None:
            until = max(until, self.throttle_timer.when())
            self.throttle_timer.cancel()
        self.throttle_timer = self.loop.call_at(until, self._on_throttle_end)
        self._update_reading()

    def _on_throttle_end(self) -> None:
        self.throttle_timer = None
        self.resume()

    def notify_when_sent(self, probe: SendListener) -> None:
        """Notify this probe when the last reply is being sent and was sent; one probe at a time."""
        if self.send_listener is None and not self.pending:
            self.send_listener = probe
            self.send_listener_end = self.sent_bytes + self.send_queue.unsent_bytes

    def on_reply_completed(self, place: PendingReply) -> None:
        if self.exclusive_reply is place:
            self.exclusive_reply = None
        pending = self.pending
        while pending and pending[0].is_complete:
            output = pending.popleft().output
            if output is not None:
                self.send_queue.add(output, not self.is_writing)
        if self.unsent_chunks and not self.is_writing:
            self._send()
        self.resume()

    def resume(self) -> None:
        """Resume reading, because the reason for a pause may have ended."""
        if self.is_closed:
            return
        if self.has_deferred_frame and self._may_accept_requests() and self.may_start(overlaps=True):
            # Not called directly: a handler may complete replies within on_frame().
            self.loop.call_soon(self.consume_deferred)
        else:
            self._update_reading()

    # ---- sending

    def on_writable(self) -> None:
        if not self.is_closed:
            self._send()
            self.resume()

    def flush(self) -> None:
        """Send the replies of this round."""
        self.is_flushing = False
        if not self.is_closed and not self.is_writing:
            self._send()
            self.resume()

    def _send(self) -> None:
        out, outgoing = self.unsent_chunks, self.send_queue
        budget = SENT_BYTES_PER_ROUND
        probe = self.send_listener
        if probe is not None:
            probe.on_sending()
        try:
            while out and budget > 0:
                chunk = out[0]
                if isinstance(chunk, FileRange):
                    budget -= self._send_range(chunk, budget)
                else:
                    sent = self.transport.send(chunk, len(out) > 1)
                    outgoing.unsent_bytes -= sent
                    self.sent_bytes += sent
                    budget -= sent
                    if sent == len(chunk):
                        out.popleft()
                    else:
                        out[0] = memoryview(chunk)[sent:]
                if not out and outgoing.pending_replies:
                    outgoing.expand_next()
                    budget -= EXPAND_COST_BYTES
        except BlockingIOError:
            pass
        except OSError as error:
            self.abandon(reason_of(error), error.strerror or "connection lost")
            return
        if probe is not None and self.sent_bytes >= self.send_listener_end:
            self.send_listener = None
            probe.on_sent()
        should_write = len(out) > 0
        if should_write != self.is_writing:
            self.is_writing = should_write
            self.poller.interest(self.descriptor, self.is_reading, should_write)
            if should_write and self.pace is not None:
                self.pace.on_socket_full(self.loop.time())

    def _send_range(self, file_range: FileRange, budget: int) -> int:
        sent = self.transport.send_file(file_range, budget)
        if sent == 0:
            raise OSError(0, "a log file is shorter than the range to send")
        self.send_queue.unsent_bytes -= sent
        self.sent_bytes += sent
        if sent == file_range.length:
            self.unsent_chunks.popleft()
            file_range.release()
        else:
            file_range.position += sent
            file_range.length -= sent
        return sent

    # ---- the end

    def abandon(self, reason: CloseReason, detail: str = "") -> None:
        """Close now. Unsent data is lost; accepted requests continue without a reply."""
        if self.is_closed:
            return
        self.is_closed = True
        self.close_reason, self.close_detail = reason, detail
        self.poller.unwatch(self.descriptor)
        if not self.is_offloaded:
            self._release_resources()
        ranges = self.send_queue.clear()
        for place in self.pending:
            if place.output is not None:
                ranges += file_ranges_of(place.output)
        self.pending.clear()
        release_in_batches(ranges, self.loop)
        self.exclusive_reply = None
        if self.throttle_timer is not None:
            self.throttle_timer.cancel()
        for request in list(self.waiting_requests):
            notify_safely(request.cancel)
        self.waiting_requests.clear()
        for watcher in self.close_listeners.values():
            notify_safely(watcher)
        self.close_listeners.clear()
        self.on_closed(self)

    def _release_resources(self) -> None:
        self.transport.close()
        if self.frame_buffer is not None:
            self.buffers.deallocate(self.frame_buffer)
            self.frame_buffer = None

    @property
    def is_idle(self) -> bool:
        """Whether no request is being received, handled or sent."""
        return not self.pending and not self.unsent_chunks and self.buffered_bytes == 0 and not self.is_offloaded

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "waiting" if self.has_deferred_frame else "open"
        unsent = self.send_queue.unsent_bytes
        return f"<Connection {self.client.host} {state}, {len(self.pending)} pending, {unsent} bytes unsent>"
