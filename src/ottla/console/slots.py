"""Limits on what runs at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ottla.console.api.errors import ApiError, Sentence


class Slots:
    """At most `most` at once; the next one is refused with a sentence, and may come again after some seconds."""

    def __init__(self, most: int, refusal: str, retry_seconds: int, status: int = 429) -> None:
        self.most = most
        self.taken = 0
        self._refusal = refusal
        self._retry_seconds = retry_seconds
        self._status = status

    def __repr__(self) -> str:
        return f"<Slots {self.taken} of {self.most}>"

    def check(self) -> None:
        """Raises ApiError if all slots are taken."""
        if self.taken >= self.most:
            headers = {"Retry-After": str(self._retry_seconds)}
            raise ApiError(self._status, "TOO_MANY", Sentence(self._refusal, self.most), headers)

    @contextmanager
    def take(self) -> Iterator[None]:
        """Take a slot for one `with` block. Raises ApiError."""
        self.check()
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1
