"""Asking for the answer to a key until there is one, within bounds. What decides is pure: no clock, no socket.

What is about the moment (`AwayError`: no connection, no answer in time, too busy) is tried again after growing pauses;
what is about the question (`LookupFailedError`) is not. All keys of a batch share the time for pauses, so that a server
that is away does not hold up a batch for longer; and when many keys in a row found nobody, the rest is not asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

PAUSE_FIRST_SECONDS = 0.1
PAUSE_SECONDS_MAX = 10.0
AWAY_MAX = 20  # keys in a row
REASON_CHARACTERS_MAX = 300

Key = tuple[Any, ...]
Row = dict[str, Any]


class LookupFailedError(Exception):
    """There is no answer, and asking again would not help: the text says why."""


class AwayError(Exception):
    """There is no answer now. `after_seconds`: when to come again, if that was said."""

    def __init__(self, text: str, after_seconds: float | None = None) -> None:
        self.after_seconds = after_seconds
        super().__init__(text)


class Answer(NamedTuple):
    """`row` None: nothing is known of the key, or with `problem` that could not be found out."""

    row: Row | None
    problem: str | None = None


class Place(Protocol):
    """Where one asks: one connection, of one thread."""

    def ask(self, key: Key) -> Row | None:
        """None if nothing is known of the key. Raises LookupFailedError, AwayError."""

    def close(self) -> None: ...


@dataclass
class Patience:
    """Of one batch, shared by its threads."""

    seconds: float
    away: int = 0  # keys in a row for which nobody was there
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def pause(self, attempt: int, wished: float | None) -> float | None:
        """How long to wait before the next attempt; None if there is to be none."""
        with self.lock:
            if self.seconds <= 0:
                return None
            wanted = PAUSE_FIRST_SECONDS * 2**attempt if wished is None else wished
            seconds = min(wanted, PAUSE_SECONDS_MAX, self.seconds)
            self.seconds -= seconds
            return seconds

    def note(self, was_there: bool) -> None:
        with self.lock:
            self.away = 0 if was_there else self.away + 1

    @property
    def is_over(self) -> bool:
        return self.away >= AWAY_MAX


def asked(place: Place, key: Key, patience: Patience, sleep: Callable[[float], None]) -> Answer:
    """Never raises for what a server may do."""
    attempt = 0
    while True:
        if patience.is_over:
            return Answer(None, f"not asked: there was no answer to {AWAY_MAX} others in a row")
        try:
            found = place.ask(key)
        except LookupFailedError as problem:
            patience.note(was_there=True)
            return Answer(None, str(problem)[:REASON_CHARACTERS_MAX])
        except AwayError as problem:
            seconds = patience.pause(attempt, problem.after_seconds)
            if seconds is None:
                patience.note(was_there=False)
                attempts = f"{attempt + 1} attempt{'s' if attempt else ''}"
                return Answer(None, f"no answer after {attempts}: {problem}"[:REASON_CHARACTERS_MAX])
            sleep(seconds)
            attempt += 1
        else:
            patience.note(was_there=True)
            return Answer(found)
