"""The cost of a function as its number of calls: the same on every machine. Compiled functions are not counted."""

from __future__ import annotations

import sys
from collections.abc import Callable


def calls_of(function: Callable[[], object]) -> int:
    """How many calls, those of built-in functions included."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls
