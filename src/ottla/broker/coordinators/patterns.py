"""Regular expressions that clients send: RE2, as in Kafka.

Its time grows with the text and never faster, so no client can stall the broker with a pattern.
"""

from __future__ import annotations

from typing import Any


class PatternError(Exception):
    """Why a pattern cannot be used, in the library's words."""


def compile_pattern(text: str) -> Any:
    """Raises PatternError."""
    import re2  # noqa: PLC0415 (no start of a broker needs it)

    options = re2.Options()
    options.log_errors = False  # the client is told; the library would write to our stderr as well
    try:
        return re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0]
        raise PatternError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None
