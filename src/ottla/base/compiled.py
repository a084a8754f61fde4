"""Whether the performance-critical files run compiled, or as plain Python, which is several times slower.

Both give the same answers, so the difference is not visible to clients. An installation without a C compiler, or from a
wheel built without one, works. A broker therefore logs it at the start, and the metrics and `ottla doctor` report it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from ottla.base import clock

ADVICE: Final = "install a wheel that was compiled, or install again where a C compiler is"
COST: Final = "it serves the same, and costs several times the CPU"


def is_compiled() -> bool:
    """Either all of these files are compiled or none, so one of them answers for all."""
    return not (clock.__file__ or "").endswith(".py")


def plain_python_message(*, is_plain: bool, environment: Mapping[str, str] = os.environ) -> str | None:
    """One line for the log, or None."""
    if not is_plain:
        return None
    if environment.get("OTTLA_PURE"):
        return f"ottla runs as plain Python, because OTTLA_PURE is set: {COST}"
    return f"ottla runs as plain Python: {COST}. To change that, {ADVICE}"
