"""A histogram with fixed buckets: one search and two additions per value. Compiled with mypyc where possible.

Buckets grow by the square root of two, so that the error of a percentile is a fifth at most. Percentiles and means are
computed when they are read, never when a value is added.
"""

from __future__ import annotations

from typing import Final

TIMES_NS: Final = [int(8_192 * 2 ** (step / 2)) for step in range(48)]  # 8 microseconds to 97 seconds
SIZES: Final = [int(16 * 2 ** (step / 2)) for step in range(48)]  # 16 bytes to 190 megabytes


class Histogram:
    """Counts of values by bucket."""

    def __init__(self, bounds: list[int]) -> None:
        self.bounds = bounds  # bucket i holds values below bounds[i]; one more bucket holds the rest
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0
        self.sum = 0
        self.smallest = 0
        self.largest = 0

    def add(self, value: int, weight: int = 1) -> None:
        """Add one value, or one that represents several."""
        bounds = self.bounds
        low = 0
        high = len(bounds)
        while low < high:
            middle = (low + high) >> 1
            if value < bounds[middle]:
                high = middle
            else:
                low = middle + 1
        self.counts[low] += weight
        self.sum += value * weight
        if self.total == 0 or value < self.smallest:
            self.smallest = value
        self.total += weight
        self.largest = max(self.largest, value)

    def __repr__(self) -> str:
        return f"<Histogram {self.total} values up to {self.largest}>"


def quantile(bounds: list[int], counts: list[int], share: float) -> float:
    """Return the value below which this share of the values lies, within the precision of the buckets; 0 without
    values.
    """
    total = sum(counts)
    if total == 0:
        return 0.0
    wanted = share * total
    seen = 0
    for place, count in enumerate(counts):
        if count and seen + count >= wanted:
            low = bounds[place - 1] if place else 0
            high = bounds[place] if place < len(bounds) else 2 * bounds[-1]
            return low + (high - low) * (wanted - seen) / count
        seen += count
    return float(2 * bounds[-1])


def deviation(bounds: list[int], counts: list[int]) -> float:
    """Return the standard deviation, with every value at the middle of its bucket."""
    total = sum(counts)
    if total < 2:
        return 0.0
    edges = [0, *bounds, 2 * bounds[-1]]
    middles = [(edges[place] + edges[place + 1]) / 2 for place in range(len(counts))]
    mean = sum(middle * count for middle, count in zip(middles, counts, strict=True)) / total
    squares = sum((middle - mean) ** 2 * count for middle, count in zip(middles, counts, strict=True))
    deviation: float = (squares / (total - 1)) ** 0.5
    return deviation
