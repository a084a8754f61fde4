"""Requests for APIs or versions that this broker does not support: F13 of the failure cases. Pure.

Such a request closes its connection, as with Kafka, and the client gets no reason. So the broker records the client id
and library (KIP-511), and the request. Clients choose their names freely and may retry forever, so everything is
bounded: rows, the length of names, and log lines.
"""

from __future__ import annotations

from typing import Final, NamedTuple

ROWS_MAX: Final = 200  # by client and request: the rest is counted as OTHERS
NAME_LENGTH_MAX: Final = 100
KEPT_MS: Final = 24 * 60 * 60 * 1000  # after that, a client that was updated is no longer shown
LINE_MS: Final = 60 * 1000  # between two log lines about the same client
OTHERS: Final = "(others)"


class UnsupportedRequest(NamedTuple):
    """A client and its unsupported request."""

    client_id: str
    software_name: str
    software_version: str
    request: str
    version: int

    @classmethod
    def by(
        cls, client_id: str | None, software_name: str, software_version: str, request: str, version: int
    ) -> UnsupportedRequest:
        """Create an entry; sanitizes the names, because clients choose them."""
        return cls(shown(client_id or ""), shown(software_name), shown(software_version), request, version)


class RequestRow:
    """The number of requests, and the time of the last one."""

    def __init__(self) -> None:
        self.count = 0
        self.last_ms = 0


class UnsupportedRequests:
    """All unsupported requests of one broker since its start."""

    def __init__(self) -> None:
        self.rows: dict[UnsupportedRequest, RequestRow] = {}
        self._lines: dict[tuple[str, str], tuple[int, int]] = {}  # by host and client id: last line, and requests since

    def record(self, host: str, asked: UnsupportedRequest, now_ms: int) -> int | None:
        """Count a request. Returns None, or the number of requests of this client without a line: then log one now.

        `now_ms` is monotonic.
        """
        row = self._row(asked, now_ms)
        row.count += 1
        row.last_ms = now_ms
        return self._suppressed_lines((host, asked.client_id), now_ms)

    def _row(self, asked: UnsupportedRequest, now_ms: int) -> RequestRow:
        found = self.rows.get(asked)
        if found is None and len(self.rows) >= ROWS_MAX:
            self.forget_old(now_ms)
        if found is None and len(self.rows) >= ROWS_MAX:
            asked = UnsupportedRequest(OTHERS, OTHERS, OTHERS, OTHERS, 0)
        return self.rows.setdefault(asked, RequestRow()) if found is None else found

    def forget_old(self, now_ms: int) -> None:
        self.rows = {asked: row for asked, row in self.rows.items() if now_ms - row.last_ms < KEPT_MS}

    def _suppressed_lines(self, client: tuple[str, str], now_ms: int) -> int | None:
        if client not in self._lines and len(self._lines) >= ROWS_MAX:
            self._lines = {name: line for name, line in self._lines.items() if now_ms - line[0] < LINE_MS}
        if client not in self._lines and len(self._lines) >= ROWS_MAX:
            client = (OTHERS, OTHERS)
        last_ms, untold = self._lines.get(client, (now_ms - LINE_MS, 0))
        is_told = now_ms - last_ms >= LINE_MS
        self._lines[client] = (now_ms, 0) if is_told else (last_ms, untold + 1)
        return untold if is_told else None

    def __repr__(self) -> str:
        return f"<UnsupportedRequests {sum(row.count for row in self.rows.values())} of {len(self.rows)} kinds>"


def shown(name: str) -> str:
    """Return a name for logs and metrics: short, and on one line."""
    return "".join(each if each.isprintable() else "?" for each in name[:NAME_LENGTH_MAX])
