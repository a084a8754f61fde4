"""How long a folder is left alone whose disk does not let the cleaner work, a full one most of the time."""

from __future__ import annotations

from typing import Final

WAIT_MS_MIN: Final = 1_000
WAIT_MS_MAX: Final = 60_000


class CleanerBackoff:
    """Each failure in a row doubles the time until the next try in the same folder of `log.dirs`."""

    def __init__(self) -> None:
        self._waits: dict[str, tuple[int, int]] = {}  # by folder: not before when, and how long that was

    def may_try(self, folder: str, now_ms: int) -> bool:
        wait = self._waits.get(folder)
        return wait is None or now_ms >= wait[0]

    def note_failure(self, folder: str, now_ms: int) -> bool:
        """Whether it is the first one since the last success: only that is worth a message."""
        before = self._waits.get(folder)
        wait_ms = WAIT_MS_MIN if before is None else min(2 * before[1], WAIT_MS_MAX)
        self._waits[folder] = (now_ms + wait_ms, wait_ms)
        return before is None

    def note_success(self, folder: str) -> None:
        self._waits.pop(folder, None)

    def __repr__(self) -> str:
        return f"<CleanerBackoff {self._waits}>"
