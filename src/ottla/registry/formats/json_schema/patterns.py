"""Regular expressions of schemas: whether one is any, and whether it fits a name. Time is linear in both."""

from __future__ import annotations

import re

import re2

from ottla.registry.formats.parsed import InvalidSchemaError

LENGTH_MAX = 10_000
CLASSES = re.compile(r"\\[pP](?:\{[^}]*\}|[A-Z])")  # \p{L}: many languages of patterns know more of them than ours
OPTIONS = re2.Options()
OPTIONS.log_errors = False
OPTIONS.max_mem = 1 << 20


def check_pattern(pattern: object) -> str:
    """RE2 runs them; what it does not know, as a look ahead, is a pattern too if Python can read it."""
    if not isinstance(pattern, str):
        raise InvalidSchemaError(f"A pattern is a text, not {str(pattern)[:100]}")
    if len(pattern) > LENGTH_MAX:
        raise InvalidSchemaError(f"A pattern is longer than {LENGTH_MAX}")
    try:
        re2.compile(pattern, OPTIONS)
    except re2.error:
        try:
            re.compile(CLASSES.sub("a", pattern))
        except (re.error, RecursionError, OverflowError):
            raise InvalidSchemaError(f"Not a pattern: {pattern[:200]}") from None
    return pattern


def is_found(pattern: str, name: str) -> bool:
    """What RE2 does not know fits nothing: it is never run by an engine that may take for ever."""
    try:
        return re2.search(pattern, name, OPTIONS) is not None
    except re2.error:
        return False
