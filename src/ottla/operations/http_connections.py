"""What an HTTP client may not do to us: uvicorn's own protocol with clocks for requests that never end and answers that
nobody takes, and with room for those who do ask something. For the console, the monitor, and whoever else serves HTTP.

Rules:
1. A request is there as a whole within REQUEST_SECONDS_MAX of its first byte, a connection's first one of its opening,
   however slowly the bytes drip. What is not is answered with 408, and the connection ends. While we are the ones who
   take time no clock runs.
2. Of an answer something is taken every TAKING_SECONDS, or the connection ends. uvicorn alone would wait for ever: a
   few hundred silent connections would keep everybody else out, and some readers who do not read take all places.
3. At most half of all connections (`limit_concurrency`) may be half-open: without a whole request. Past that the oldest
   of them is answered with 408 at once. When hardly any connection is left, the one that is idle for longest gives way.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

BACKLOG: Final = 256
REQUEST_SECONDS_MAX: Final = 10.0
TAKING_SECONDS: Final = 30.0
_LATE: Final = b'{"error": "TOO_LATE", "message": "the request did not come to its end within 10 s"}\r\n'
LATE_ANSWER: Final = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_LATE), _LATE)
)


class LimitedProtocol(H11Protocol):
    """One connection."""

    _deadline: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None
    _since = 0.0  # when it began to wait for a request

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_request()
        self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._since = self.loop.time()
        if self._taking is None and self.transport.get_write_buffer_size():
            self._look_again()  # it may be closed before all of it is taken
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        self._stop_taking()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop_taking()
        self._look_again()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_taking()

    @property
    def is_half_open(self) -> bool:
        return self._deadline is not None and not self.transport.is_closing()

    @property
    def is_idle(self) -> bool:
        is_answered = self.cycle is None or self.cycle.response_complete
        return is_answered and self._deadline is None and not self.transport.is_closing()

    # Requests

    def _look(self) -> None:
        """Start or stop the clock by what has come of the request."""
        is_begun = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        if self.transport.is_closing() or not (is_begun or self.conn.their_state is h11.SEND_BODY):
            self._stop_clock()
        elif self._deadline is None:
            self._expect_request()

    def _expect_request(self) -> None:
        self._since = self.loop.time()
        self._deadline = self.loop.call_later(REQUEST_SECONDS_MAX, self._give_up)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._stop_clock()
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            if self.cycle.response_started:
                self.transport.abort()
                return
            self.cycle.disconnected = True  # somebody waits for the rest of the body
            self.cycle.message_event.set()
        self.transport.write(LATE_ANSWER)
        self.transport.close()

    def _make_room(self) -> None:
        limit = self.limit_concurrency
        if limit is None or len(self.connections) <= limit // 2:
            return
        others: Collection[LimitedProtocol] = [each for each in self.connections if isinstance(each, LimitedProtocol)]
        half_open = [each for each in others if each.is_half_open]
        if len(half_open) > limit // 2:
            min(half_open, key=_since)._give_up()
        elif len(self.connections) > limit * 9 // 10:
            idle = [each for each in others if each.is_idle]
            if idle:
                min(idle, key=_since).transport.close()

    # Answers

    def _look_again(self) -> None:
        self._taking = self.loop.call_later(
            TAKING_SECONDS, self._look_at_taking, self.transport.get_write_buffer_size()
        )

    def _look_at_taking(self, bytes_before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if not left:
            self._taking = None
        elif left >= bytes_before:
            self.transport.abort()
        else:
            self._look_again()

    def _stop_taking(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None


def _since(connection: LimitedProtocol) -> float:
    return connection._since


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; raises OSError.

    Its protocol is named: asyncio sets TCP_NODELAY only then; without it an answer may wait 40 ms for its body.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    listener.listen(BACKLOG)
    return listener
