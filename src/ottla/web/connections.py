"""HTTP connection limits: uvicorn's h11 protocol with timeouts for slow requests and unread responses.

Rules:
1. A request must be complete within REQUEST_SECONDS_MAX of its first byte; the first one of a connection within that
   time of the accept, however slowly bytes arrive. A late request is answered with 408 and the connection closed. The
   timer does not run while we process.
2. The client must read some of a response every TAKING_SECONDS, or the connection is closed. uvicorn alone waits for
   ever: a few hundred silent connections would exhaust `limit_concurrency`.
3. At most half of `limit_concurrency` may be half-open (without a complete request). Beyond that the oldest half-open
   connection is answered with 408 at once. When few slots are left, the longest idle connection is closed.
4. A request with an ambiguous length is answered with 400 and the connection closed (RFC 9112, section 6.1): a proxy in
   front may have passed on a second request in the same bytes (request smuggling).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_BYTES_MAX: Final = 64 << 10  # if the server names no limit
REQUEST_TIMEOUT_SECONDS: Final = 10.0
WRITE_TIMEOUT_SECONDS: Final = 30.0
_TIMEOUT_BODY: Final = b'{"error": "TOO_LATE", "message": "the request did not come to its end within 10 s"}\r\n'
TIMEOUT_RESPONSE: Final = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_TIMEOUT_BODY), _TIMEOUT_BODY)
)


class StrictConnection(h11.Connection):
    """h11 accepts Transfer-Encoding together with Content-Length and ignores the latter."""

    def next_event(self) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if b"transfer-encoding" in names and (b"content-length" in names or event.http_version < b"1.1"):
                raise h11.RemoteProtocolError("the request has both Transfer-Encoding and Content-Length")
        return event


class TimeoutProtocol(H11Protocol):
    """One HTTP connection with timeouts."""

    _request_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _waiting_since = 0.0  # start of the wait for a request

    def __init__(self, config: Config, *arguments: Any, **named: Any) -> None:
        super().__init__(config, *arguments, **named)
        self.conn = StrictConnection(h11.SERVER, config.h11_max_incomplete_event_size or HEAD_BYTES_MAX)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_request_timer()
        self._evict_connections()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_request_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._waiting_since = self.loop.time()
        if self._write_timer is None and self.transport.get_write_buffer_size():
            self._start_write_timer()  # the transport may be closed before everything is sent
        self._update_request_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_request_timer()
        self._stop_write_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop_write_timer()
        self._start_write_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_write_timer()

    @property
    def is_half_open(self) -> bool:
        return self._request_timer is not None and not self.transport.is_closing()

    @property
    def is_idle(self) -> bool:
        is_answered = self.cycle is None or self.cycle.response_complete
        return is_answered and self._request_timer is None and not self.transport.is_closing()

    # ---- requests

    def _update_request_timer(self) -> None:
        """Start or stop the request timer, depending on what has arrived."""
        is_begun = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        if self.transport.is_closing() or not (is_begun or self.conn.their_state is h11.SEND_BODY):
            self._stop_request_timer()
        elif self._request_timer is None:
            self._start_request_timer()

    def _start_request_timer(self) -> None:
        self._waiting_since = self.loop.time()
        self._request_timer = self.loop.call_later(REQUEST_TIMEOUT_SECONDS, self._on_request_timeout)

    def _stop_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _on_request_timeout(self) -> None:
        self._stop_request_timer()
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            if self.cycle.response_started:
                self.transport.abort()
                return
            self.cycle.disconnected = True  # the application waits for the rest of the body
            self.cycle.message_event.set()
        self.transport.write(TIMEOUT_RESPONSE)
        self.transport.close()

    def _evict_connections(self) -> None:
        limit = self.limit_concurrency
        if limit is None or len(self.connections) <= limit // 2:
            return
        others: Collection[TimeoutProtocol] = [each for each in self.connections if isinstance(each, TimeoutProtocol)]
        half_open = [each for each in others if each.is_half_open]
        if len(half_open) > limit // 2:
            min(half_open, key=_waiting_since)._on_request_timeout()
        elif len(self.connections) > limit * 9 // 10:
            idle = [each for each in others if each.is_idle]
            if idle:
                min(idle, key=_waiting_since).transport.close()

    # ---- responses

    def _start_write_timer(self) -> None:
        self._write_timer = self.loop.call_later(
            WRITE_TIMEOUT_SECONDS, self._check_write_progress, self.transport.get_write_buffer_size()
        )

    def _check_write_progress(self, bytes_before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if not left:
            self._write_timer = None
        elif left >= bytes_before:
            self.transport.abort()
        else:
            self._start_write_timer()

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


def _waiting_since(connection: TimeoutProtocol) -> float:
    return connection._waiting_since
