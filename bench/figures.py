"""Figures of one measurement, and the few statistics that the report needs."""

from collections.abc import Iterable, Sequence
from statistics import median

Figures = dict[str, float]

PERCENTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed (nearest rank); `ordered` is sorted."""
    if not ordered:
        raise ValueError("no values")
    rank = -int(-share * len(ordered) // 1)  # rounded up
    return ordered[min(max(rank, 1), len(ordered)) - 1]


def latency_figures(latencies_ns: Iterable[int]) -> Figures:
    ordered = sorted(latencies_ns)
    if not ordered:
        return {}
    figures = {name: percentile(ordered, share) / 1e6 for name, share in PERCENTILES.items()}
    return figures | {"max_ms": ordered[-1] / 1e6, "samples": float(len(ordered))}


def median_or_none(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    if numerator is None or denominator is None or denominator == 0:
        return None
    return numerator / denominator
