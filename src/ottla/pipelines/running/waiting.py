"""What a query waits for while nothing happens, as text for the screen. Pure, except for the broker check.

Spark reports the activity of a query. Fetching offsets and reading normally take moments; if one of them lasts long,
the broker may be unavailable, so it is checked: the duration alone could also mean a large batch.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import datetime, timedelta

SUSPICION_S = 2.0
PAUSE_S = 2.0  # between two checks
CONNECT_S = 0.5
READING = "Processing"
AT_BROKER = ("Getting offsets", READING)  # prefixes of Spark's status while it needs a broker
AWAY = "broker away"
AT_START = "Initializing"


class Waiting:
    """The waiting state of one query. `is_reachable` checks whether any broker accepts a connection."""

    def __init__(self, is_reachable: Callable[[], bool]) -> None:
        self.is_reachable = is_reachable
        self._words = ""
        self._since_s = 0.0
        self._asked_s: float | None = None
        self._is_away = False

    def __repr__(self) -> str:
        return f"Waiting({self._words}{', broker away' if self._is_away else ''})"

    @property
    def away_since_s(self) -> float | None:
        """By the clock of `look`; None while a broker is reachable, or none was needed."""
        return self._since_s if self._is_away else None

    def look(self, message: str, batches: int, now_s: float) -> str:
        """`message` is that of the query's status, `batches` the number of batches in this run."""
        words = next((each for each in AT_BROKER if message.startswith(each)), message)
        if words != self._words:
            self._words = words
            # an activity change of Spark does not prove that the broker is back
            if not self._is_away or words not in AT_BROKER:
                self._since_s, self._asked_s, self._is_away = now_s, None, False
        if words in AT_BROKER and now_s - self._since_s >= SUSPICION_S:
            if self._asked_s is None or now_s - self._asked_s >= PAUSE_S:
                self._asked_s = now_s
                self._is_away = not self.is_reachable()
                self._since_s = self._since_s if self._is_away else now_s
            if self._is_away:
                return f"{AWAY} for {now_s - self._since_s:.0f} s"
        is_starting = message.startswith(AT_START) or (not batches and words == READING)
        return "waiting for Spark" if is_starting else ""

    def news(self, message: str, batches: int, now_s: float, at: datetime) -> str:
        """One message when the broker has become unavailable, and one when it is back; `at` is now."""
        before = self.away_since_s
        self.look(message, batches, now_s)
        since = self.away_since_s
        if before is None and since is not None:
            return f"{AWAY} since {at - timedelta(seconds=now_s - since):%H:%M:%S} UTC, waiting"
        return "" if before is None or since is not None else f"broker back after {now_s - before:.0f} s"


def takes_connections(bootstrap: str) -> bool:
    """Whether any of the brokers accepts connections; an unparsable address proves nothing."""
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
        except OSError:
            continue
        except ValueError:
            return True
        return True
    return False
