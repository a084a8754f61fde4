"""uvicorn's HTTP with two limits more: a request must be there as a whole within seconds of its first byte, and of an
answer something must be taken every half minute; who says nothing or takes nothing is closed. uvicorn alone would wait
for ever: a few hundred silent connections would take the console away from everybody, and four readers who do not read
all places for searches.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

WHOLE_REQUEST_SECONDS = 10.0
TAKING_SECONDS = 30.0
TOO_LATE = (
    b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 74\r\n\r\n"
    b'{"error": "TOO_LATE", "message": "the request did not come within 10 s"}\r\n'
)


class PromptProtocol(H11Protocol):
    """One connection."""

    deadline: asyncio.TimerHandle | None = None
    taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        self._stop_taking()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop_taking()
        self._look_again()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_taking()

    def _look_again(self) -> None:
        self.taking = self.loop.call_later(TAKING_SECONDS, self._look, self.transport.get_write_buffer_size())

    def _look(self, bytes_before: int) -> None:
        if self.transport.get_write_buffer_size() >= bytes_before:
            self.transport.abort()
        else:
            self._look_again()

    def _stop_taking(self) -> None:
        if self.taking is not None:
            self.taking.cancel()
            self.taking = None

    def _watch(self) -> None:
        """A deadline runs from the first byte to the last; not while we are the ones who take time."""
        if self.transport.is_closing() or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_watching()
        elif self.deadline is None:
            self.deadline = self.loop.call_later(WHOLE_REQUEST_SECONDS, self._end)

    def _stop_watching(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def _end(self) -> None:
        if self.conn.our_state is h11.IDLE or self.conn.our_state is h11.SEND_RESPONSE:
            self.transport.write(TOO_LATE)
        self.transport.close()
