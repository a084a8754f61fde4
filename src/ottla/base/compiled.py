"""Whether the hot files run compiled, or as plain Python, which serves the same and costs several times as much.

Nobody notices by the answers: an installation without a C compiler, or from a wheel that was built without one, works.
So a broker says it when it starts, and the metrics and `ottla doctor` tell it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from ottla.base import clock

CURE: Final = "install a wheel that was compiled, or install again where a C compiler is"
COST: Final = "it serves the same, and costs several times the CPU"


def is_compiled() -> bool:
    """All hot files are compiled together, or none is: one tells of all."""
    return not (clock.__file__ or "").endswith(".py")


def plain_words(*, is_plain: bool, environment: Mapping[str, str] = os.environ) -> str | None:
    """One line for the log; None if there is nothing to say."""
    if not is_plain:
        return None
    if environment.get("OTTLA_PURE"):
        return f"ottla runs as plain Python, because OTTLA_PURE is set: {COST}"
    return f"ottla runs as plain Python: {COST}. To change that, {CURE}"
