"""Stop signals: the first one requests a stop, the second one stops immediately.

PySpark installs its own handler whenever it starts Spark, so ottla's is installed again after each start. During a
start a signal stops immediately, because no query is running.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

NUMBERS = (signal.SIGINT, signal.SIGTERM)


class StopAsked:
    """A context manager that restores the previous handlers at its end."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self._before = {number: signal.getsignal(number) for number in NUMBERS}

    def __repr__(self) -> str:
        return f"StopAsked({self.event.is_set()})"

    def __enter__(self) -> Self:
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Inside this context a signal raises an exception."""
        self._restore()
        try:
            yield
        finally:
            self._listen()

    def _listen(self) -> None:
        for number in NUMBERS:
            signal.signal(number, self._on_signal)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: object) -> None:
        if self.event.is_set():
            raise KeyboardInterrupt
        self.event.set()
