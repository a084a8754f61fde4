"""Turns results into lines: medians of the rounds, ratios of the medians, goals and whether they are met."""

from dataclasses import dataclass

from bench.figures import median_or_none, ratio
from bench.goals import KAFKA, OTTLA, Row, rows
from bench.results import Results

DASH = "\N{EN DASH}"
CPU_UNITS = {
    "cpu_us_per_request": "µs/request",
    "cpu_us_per_record": "µs/record",
    "cpu_s_per_gb": "s/GB",
    "broker_cpu_s": "s",
}


@dataclass(frozen=True)
class Line:
    """A row with its figures; None where a system was not measured."""

    row: Row
    kafka: float | None
    ottla: float | None
    ottla_low: float | None
    ottla_high: float | None
    kafka_cpu: float | None
    ottla_cpu: float | None

    @property
    def ratio(self) -> float | None:
        return None if self.row.share_of else ratio(self.ottla, self.kafka)

    @property
    def is_met(self) -> bool | None:
        return self.row.goal.is_met(self.ottla, self.ratio) if self.row.goal else None

    @property
    def missed_by(self) -> float | None:
        return self.row.goal.missed_by(self.ottla, self.ratio) if self.row.goal else None

    @property
    def goal_text(self) -> str:
        if self.row.goal is None:
            return ""
        return self.row.goal.text if self.row.goal.is_ratio else f"{self.row.goal.text} {self.row.unit}".strip()

    @property
    def verdict(self) -> str:
        return {None: "", True: "yes", False: "NO"}[self.is_met]

    def value_text(self, value: float | None) -> str:
        return format_value(value, self.row.unit)

    def cpu_text(self, value: float | None) -> str:
        return format_value(value, CPU_UNITS[self.row.cpu]) if self.row.cpu else ""


def lines(results: Results) -> list[Line]:
    """A line for every row that at least one system was measured for."""
    found = [_line(results, row) for row in rows()]
    return [line for line in found if line.kafka is not None or line.ottla is not None]


def format_value(value: float | None, unit: str) -> str:
    if value is None:
        return DASH
    number = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
    return f"{number} {unit}".strip()


def format_ratio(value: float | None) -> str:
    return DASH if value is None else f"{value:.2f}"


def _line(results: Results, row: Row) -> Line:
    ours = _values(results, row, OTTLA)
    cpu = row.cpu_path
    return Line(
        row=row,
        kafka=median_or_none(_values(results, row, KAFKA)),
        ottla=median_or_none(ours),
        ottla_low=min(ours, default=None),
        ottla_high=max(ours, default=None),
        kafka_cpu=results.median(KAFKA, cpu) if cpu else None,
        ottla_cpu=results.median(OTTLA, cpu) if cpu else None,
    )


def _values(results: Results, row: Row, system: str) -> list[float]:
    if row.share_of is None:
        return results.values(system, row.path)
    other, separator, path = row.share_of.partition(":")
    if not separator:
        return results.shares(system, row.path, system, row.share_of)
    return results.shares(system, row.path, other, path)
