"""The error of a request."""

from __future__ import annotations

from collections.abc import Mapping


class HttpError(Exception):
    """An answer other than success. An application decides how its body looks (`HttpApp.error_response`)."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers or {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.status}: {self.message[:80]}>"
