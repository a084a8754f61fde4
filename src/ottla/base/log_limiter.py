"""Lines of a log that would repeat many times a second: a person reads them once in a while."""

from __future__ import annotations


class LogLimiter:
    """Says when the next one is due; times are those of whatever clock the owner has."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._due: dict[str, float] = {}

    def is_due(self, now: float, about: str = "") -> bool:
        """Whether to write it now; each subject has a time of its own."""
        if now < self._due.get(about, now):
            return False
        self._due[about] = now + self._pause
        return True

    def __repr__(self) -> str:
        return f"<LogLimiter about {sorted(self._due)}>"
