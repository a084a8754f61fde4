"""What an HTTP client may not do to us: uvicorn's own protocol with clocks for requests that never end.

Rules:
1. A request is there as a whole within REQUEST_SECONDS_MAX of its first byte, a connection's first one of its opening,
   however slowly the bytes drip. What is not is answered with 408, and the connection ends.
2. An answer that nobody takes within ANSWER_SECONDS_MAX ends the connection.
3. Headers, connections and the time that an idle connection is kept are bounded by `make_server`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS_MAX: Final = 10.0
ANSWER_SECONDS_MAX: Final = 60.0
KEEP_ALIVE_SECONDS: Final = 30
STOP_SECONDS_MAX: Final = 3
HEADER_BYTES_MAX: Final = 16 << 10
CONNECTIONS_MAX: Final = 500
BACKLOG: Final = 128
_LATE: Final = b"the request did not come to its end within 10 s\n"
LATE_ANSWER: Final = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_LATE), _LATE)
)


class LimitedProtocol(H11Protocol):
    """One connection."""

    _deadline: asyncio.TimerHandle | None = None
    _is_receiving = False  # which of the two clocks runs

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._stop_clock()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        super().connection_lost(exc)

    def _look(self) -> None:
        """Start or stop the clock by what has come of the request."""
        if self.transport.is_closing():
            self._stop_clock()
        elif self.conn.their_state is h11.SEND_BODY or (
            self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]
        ):
            if not self._is_receiving:
                self._stop_clock()
                self._expect_request()
        elif self.conn.their_state is not h11.IDLE and (self._deadline is None or self._is_receiving):
            self._stop_clock()
            self._deadline = self.loop.call_later(ANSWER_SECONDS_MAX, self.transport.abort)

    def _expect_request(self) -> None:
        self._is_receiving = True
        self._deadline = self.loop.call_later(REQUEST_SECONDS_MAX, self._give_up)

    def _stop_clock(self) -> None:
        self._is_receiving = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(LATE_ANSWER)
            self.transport.close()
        elif not self.cycle.response_started:  # somebody waits for the rest of the body
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self.transport.write(LATE_ANSWER)
            self.transport.close()
        else:
            self.transport.abort()


class HttpServer(uvicorn.Server):
    """A server on a loop of somebody else, who also hears the signals."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


def make_server(app: Callable[..., Any]) -> HttpServer:
    """`await make_server(app).serve([bind(host, port)])` serves until `should_exit` is set."""
    config = uvicorn.Config(
        app,
        http=LimitedProtocol,
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS_MAX,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
    )
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what a client does wrong is told to the client
    return HttpServer(config)


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)
