"""Answers to plain questions without the detour over h11 and a task: ten times as many in a second.

Rules:
1. Only a GET that came whole and alone, on a connection where nothing else is going on, whose every line is plain. All
   else goes the usual way, so that its strict parser still judges whatever is odd.
2. What is answered is what the application answers, run to its end at once. If it would have to wait, it goes the usual
   way.
3. The same bytes get the same answer for as long as nothing has changed in the registry: then it is known already. A
   node that leads no more forgets what it knew, since others may have changed something.
"""

from __future__ import annotations

import re
from typing import Any, Final

import h11

from ottla.operations.http_connections import LimitedProtocol
from ottla.registry.http.app import RegistryApp, Reply
from ottla.registry.subjects.state import State

REQUEST_BYTES_MAX: Final = 4_096
KNOWN_MAX: Final = 1_000
KNOWN_BYTES_MAX: Final = 16_384  # of one answer
END: Final = b"\r\n\r\n"
LINE: Final = re.compile(rb"GET (/[!-~]*) HTTP/1\.1")
HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~]*)")
ODD: Final = frozenset({b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer"})
REASONS: Final = {
    200: b"OK",
    403: b"Forbidden",
    404: b"Not Found",
    406: b"Not Acceptable",
    422: b"Unprocessable Entity",
}


class QuickAnswers:
    """What is known at the state's revision."""

    def __init__(self, app: RegistryApp, state: State) -> None:
        self.app = app
        self.state = state
        self.known: dict[bytes, bytes] = {}
        self.revision = (-1, -1, False)

    def __repr__(self) -> str:
        return f"<QuickAnswers {len(self.known)} known at revision {self.revision[0]}>"

    def answer(self, request: bytes) -> bytes | None:
        """Status line and headers but for the date, a NUL where that belongs, and the body; None: not for us."""
        registry = self.app.registry
        revision = (self.state.revision, registry.leadership.term, registry.has_read_all)
        if self.revision != revision:
            self.known.clear()
            self.revision = revision
        found = self.known.get(request)
        if found is not None:
            return found
        scope = read_scope(request)
        reply = self.app.at_once(scope) if scope is not None else None
        if reply is None or reply.status not in REASONS:
            return None
        found = _written(reply)
        if len(found) <= KNOWN_BYTES_MAX:
            if len(self.known) >= KNOWN_MAX:
                self.known.clear()
            self.known[request] = found
        return found


def quick_protocol(answers: QuickAnswers) -> type[LimitedProtocol]:
    """The protocol of a server that answers so."""

    class QuickProtocol(LimitedProtocol):
        def data_received(self, data: bytes) -> None:
            if len(data) <= REQUEST_BYTES_MAX and data.startswith(b"GET ") and data.endswith(END) and self._is_free():
                found = answers.answer(bytes(data))
                if found is not None:
                    self._answer(found)
                    return
            super().data_received(data)

        def _is_free(self) -> bool:
            return (
                (self.cycle is None or self.cycle.response_complete)
                and self.conn.their_state is h11.IDLE
                and not self.conn.trailing_data[0]
                and not self.flow.write_paused
                and not self.transport.is_closing()
            )

        def _answer(self, found: bytes) -> None:
            self._unset_keepalive_if_required()
            self._stop_clock()
            self._since = self.loop.time()
            head = b"".join(b"%b: %b\r\n" % header for header in self.server_state.default_headers)
            self.transport.write(found.replace(b"\0", head, 1))
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    return QuickProtocol


def read_scope(request: bytes) -> dict[str, Any] | None:
    """A plain request taken apart; None if there is anything odd about it."""
    lines = request[: -len(END)].split(b"\r\n")
    first = LINE.fullmatch(lines[0])
    if first is None or END in request[: -len(END)]:
        return None
    headers = []
    hosts = 0
    for line in lines[1:]:
        header = HEADER.fullmatch(line)
        if header is None:
            return None
        name, value = header[1].lower(), header[2].rstrip(b" \t")
        if name in ODD or (name == b"connection" and value.lower() != b"keep-alive"):
            return None
        hosts += name == b"host"
        headers.append((name, value))
    path, _, query = first[1].partition(b"?")
    if hosts != 1 or b"format=" in query or b"#" in path:
        return None
    return {
        "type": "http",
        "method": "GET",
        "path": path.decode(),
        "raw_path": path,
        "query_string": query,
        "headers": headers,
    }


def _written(reply: Reply) -> bytes:
    head = b"HTTP/1.1 %d %b\r\n" % (reply.status, REASONS[reply.status])
    headers = b"".join(b"%b: %b\r\n" % header for header in reply.headers)
    return head + b"\0" + headers + b"\r\n" + reply.body
