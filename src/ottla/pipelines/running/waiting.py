"""What a query waits for while nothing happens, in words for the screen. Pure but for the question to the broker.

Spark says what a query is doing. Asking for offsets and reading take moments; where one of them goes on and on, the
broker may be away, and it is asked: a look at the clock alone would blame it for a large batch.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import datetime, timedelta

SUSPICION_S = 2.0
PAUSE_S = 2.0  # between two questions
CONNECT_S = 0.5
READING = "Processing"
AT_BROKER = ("Getting offsets", READING)  # how Spark's words begin while a broker is needed
AWAY = "broker away"
AT_START = "Initializing"


class Waiting:
    """Of one query. `is_reachable` asks whether any broker takes a connection."""

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
        """By the clock of `look`; None while a broker is there, or nobody has missed it."""
        return self._since_s if self._is_away else None

    def look(self, message: str, batches: int, now_s: float) -> str:
        """`message` is that of the query's status, `batches` how many this run has done."""
        words = next((each for each in AT_BROKER if message.startswith(each)), message)
        if words != self._words:
            self._words = words
            if not self._is_away or words not in AT_BROKER:  # one that is away is not back because Spark turns to it
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
        """What is told once when a broker has gone, and once when it is back; `at` is now."""
        before = self.away_since_s
        self.look(message, batches, now_s)
        since = self.away_since_s
        if before is None and since is not None:
            return f"{AWAY} since {at - timedelta(seconds=now_s - since):%H:%M:%S} UTC, waiting"
        return "" if before is None or since is not None else f"broker back after {now_s - before:.0f} s"


def takes_connections(bootstrap: str) -> bool:
    """Any of the brokers; what cannot be read as an address is no proof that one is away."""
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
