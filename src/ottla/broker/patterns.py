"""Regular expressions that clients send: RE2, as in Kafka.

Its time grows with the text and never faster, so no client can stall the broker with a pattern.
"""

from __future__ import annotations

from typing import Any

import re2

PatternError = re2.error

_QUIET = re2.Options()
_QUIET.log_errors = False  # the client is told; the library would write to our stderr as well


def compile_pattern(text: str) -> Any:
    """Raises PatternError with the reason."""
    return re2.compile(text, _QUIET)
