"""Completion of words at the prompt of `ottla sql`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ottla.pipelines.sql.tables import RECORD_COLUMNS
from ottla.pipelines.sql.tokens import PIECES

FIRST = ("SELECT", "WITH", "CREATE", "DROP", "SHOW", "DESCRIBE", "EXPLAIN", "SET", "HELP", "QUIT")
AFTER = {
    "SHOW": ("TABLES;", "TOPICS;", "PIPELINES;"), "CREATE": ("TABLE", "PIPELINE", "OR REPLACE"), "DROP": ("TABLE",),
    "GROUP": ("BY",), "ORDER": ("BY",), "EMIT": ("CHANGES",), "INTO": ("TOPIC", "TABLE"), "EXPLAIN": ("SELECT",),
}  # fmt: skip
BEFORE_TABLE = ("FROM", "JOIN", "DESCRIBE", "DESC", "TABLE", "TOPIC")
OTHERS = (
    "FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "JOIN", "LEFT JOIN", "ON", "AS", "AND", "OR", "NOT",
    "EMIT CHANGES;", "INTERVAL", "count(", "sum(", "avg(", "min(", "max(", "window(", "session_window(",
)  # fmt: skip


def candidates(before: str, begun: str, tables: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return completions of the word `begun`; `before` is the text in front of it on the line."""
    last = _last_word(before)
    if not last:
        found: Sequence[str] = FIRST
    elif last in BEFORE_TABLE:
        found = [_quoted(name) for name in tables]
    elif last in AFTER:
        found = AFTER[last]
    else:
        found = [*(_quoted(name) for name in columns), *RECORD_COLUMNS, *OTHERS]
    return [f"{name}{'' if name[-1] in '(;' else ' '}" for name in found if name.lower().startswith(begun.lower())]


def _last_word(text: str) -> str:
    """Return the last word in capitals, or "" at the beginning of a statement."""
    words = [match[0] for match in PIECES.finditer(text) if match.lastgroup not in ("blank", "comment")]
    return "" if not words or words[-1] == ";" else words[-1].upper()


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else f"`{name}`"
