"""Errors in SQL text."""

from __future__ import annotations

from collections.abc import Iterable


class SqlError(ValueError):
    """Text that is not allowed or not SQL; the text has the reason, and `at` the position."""

    def __init__(self, words: str, at: int | None = None) -> None:
        super().__init__(words)
        self.at = at


class UnknownTableError(SqlError):
    """Reads a table that is not allowed."""

    def __init__(self, name: str, known: Iterable[str], at: int | None = None) -> None:
        super().__init__(f"reads {name}; it may only read {', '.join(sorted(known))}", at)
        self.name = name
