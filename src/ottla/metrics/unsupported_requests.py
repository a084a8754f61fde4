"""Who asked for an API, or a version of one, that this broker does not speak: F13 of the failure cases.  Pure.

Such a request closes its connection, as with Kafka, and the client sees no reason. So the broker keeps one: who it was,
by client id and library (KIP-511), and what was asked. Clients name themselves as they like and try again for ever, so
everything is bounded: rows, the length of names, and lines of the log.
"""

from __future__ import annotations

from typing import Final, NamedTuple

ROWS_MAX: Final = 200  # of clients and what they asked: more than that is counted as OTHERS
NAME_LENGTH_MAX: Final = 100
KEPT_MS: Final = 24 * 60 * 60 * 1000  # then a client that has been brought up to date is told of no more
LINE_MS: Final = 60 * 1000  # between two lines about the same client
OTHERS: Final = "(others)"


class Asked(NamedTuple):
    """A client, and what it asked for in vain."""

    client_id: str
    software_name: str
    software_version: str
    request: str
    version: int

    @classmethod
    def by(cls, client_id: str | None, software_name: str, software_version: str, request: str, version: int) -> Asked:
        """With names as they may be shown: clients choose them."""
        return cls(shown(client_id or ""), shown(software_name), shown(software_version), request, version)


class Row:
    """How often, and when the last time."""

    def __init__(self) -> None:
        self.count = 0
        self.last_ms = 0


class UnsupportedRequests:
    """Of one broker, since it started."""

    def __init__(self) -> None:
        self.rows: dict[Asked, Row] = {}
        self._lines: dict[tuple[str, str], tuple[int, int]] = {}  # host and client id: last line, and requests since

    def note(self, host: str, asked: Asked, now_ms: int) -> int | None:
        """Count it. A number: say so in the log, and that so many more of this client were not told; None: say nothing.

        `now_ms` never goes back.
        """
        row = self._row(asked, now_ms)
        row.count += 1
        row.last_ms = now_ms
        return self._untold((host, asked.client_id), now_ms)

    def _row(self, asked: Asked, now_ms: int) -> Row:
        found = self.rows.get(asked)
        if found is None and len(self.rows) >= ROWS_MAX:
            self.forget_old(now_ms)
        if found is None and len(self.rows) >= ROWS_MAX:
            asked = Asked(OTHERS, OTHERS, OTHERS, OTHERS, 0)
        return self.rows.setdefault(asked, Row()) if found is None else found

    def forget_old(self, now_ms: int) -> None:
        self.rows = {asked: row for asked, row in self.rows.items() if now_ms - row.last_ms < KEPT_MS}

    def _untold(self, client: tuple[str, str], now_ms: int) -> int | None:
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
    """Short, and on one line: it goes into the log and onto the page of metrics."""
    return "".join(each if each.isprintable() else "?" for each in name[:NAME_LENGTH_MAX])
