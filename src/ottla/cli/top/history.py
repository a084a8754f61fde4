"""The last values of a figure, as a line of blocks."""

from __future__ import annotations

from collections import deque
from typing import Final

HISTORY: Final = 60
BLOCKS: Final = "▁▂▃▄▅▆▇█"


class History:
    """The last values of a rate, for a sparkline."""

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=HISTORY)

    def add(self, value: float) -> None:
        self._values.append(value)

    def line(self, width: int) -> str:
        values = list(self._values)[-width:]
        largest = max(values, default=0.0) or 1.0
        return "".join(BLOCKS[min(7, int(value / largest * 8))] for value in values).rjust(width)

    def __repr__(self) -> str:
        return f"<History of {len(self._values)}>"
