"""Regular expressions of schemas: whether one is any, and RE2 to run it, whose time is linear in what it is run on."""

from __future__ import annotations

import re
from typing import Any

import re2

from ottla.registry.formats.parsed import InvalidSchemaError

LENGTH_MAX = 10_000
CLASSES = re.compile(r"\\[pP](?:\{[^}]*\}|[A-Z])")  # \p{L}: many languages of patterns know more of them than ours
OPTIONS = re2.Options()
OPTIONS.log_errors = False
OPTIONS.max_mem = 1 << 18


def check_pattern(pattern: object) -> str:
    """RE2 runs them; what it does not know, as a look ahead, is a pattern too if Python can read it."""
    if not isinstance(pattern, str):
        raise InvalidSchemaError(f"A pattern is a text, not {str(pattern)[:100]}")
    if len(pattern) > LENGTH_MAX:
        raise InvalidSchemaError(f"A pattern is longer than {LENGTH_MAX}")
    if compiled_pattern(pattern) is None:
        try:
            re.compile(CLASSES.sub("a", pattern))
        except (re.error, RecursionError, OverflowError):
            raise InvalidSchemaError(f"Not a pattern: {pattern[:200]}") from None
    return pattern


def compiled_pattern(pattern: str) -> Any:
    """None: RE2 does not know it. It is never run by an engine that may take for ever."""
    try:
        return re2.compile(pattern, OPTIONS)
    except re2.error:
        return None
