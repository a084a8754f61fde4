"""All figures of a run, as they are written to results.json.

rounds[N][system][section][measurement][figure], where system is kafka, ottla or physical (the machine alone)
"""

import json
from pathlib import Path
from typing import Any

from bench.figures import Figures, median_or_none
from bench.options import SECTIONS, SYSTEMS


class Results:
    """Saved after every section, so that an interrupted run keeps what it has."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    @classmethod
    def load(cls, path: Path) -> "Results":
        return cls(json.loads(path.read_text()))

    def __repr__(self) -> str:
        return f"<Results of {len(self.rounds)} rounds, {len(self.failures)} failures>"

    @property
    def rounds(self) -> list[dict[str, Any]]:
        rounds: list[dict[str, Any]] = self.data.setdefault("rounds", [])
        return rounds

    @property
    def failures(self) -> list[str]:
        failures: list[str] = self.data.setdefault("failures", [])
        return failures

    @property
    def is_publishable(self) -> bool:
        """Whether this is a complete run of the whole benchmark: only that is published to docs/."""
        options = self.data["options"]
        is_whole = set(options["sections"]) == set(SECTIONS) and set(options["systems"]) == set(SYSTEMS)
        return bool(self.data["is_complete"]) and is_whole and not options["is_non_blocking"]

    def add(self, round_index: int, system: str, section: str, measurements: dict[str, Figures]) -> None:
        while len(self.rounds) <= round_index:
            self.rounds.append({})
        self.rounds[round_index].setdefault(system, {}).setdefault(section, {}).update(measurements)

    def fail(self, round_index: int, system: str, section: str, message: str) -> None:
        self.failures.append(f"round {round_index + 1}, {system}, {section}: {message}")

    def values(self, system: str, path: str) -> list[float]:
        """The figure at section.measurement.figure in every round that has it."""
        section, measurement, figure = path.split(".")
        found = (entry.get(system, {}).get(section, {}).get(measurement, {}).get(figure) for entry in self.rounds)
        return [value for value in found if value is not None]

    def shares(self, system: str, path: str, of_system: str, of_path: str) -> list[float]:
        """The ratio of two figures, round by round: both were measured within minutes."""
        return [
            part[0] / whole[0]
            for part, whole in (
                (single.values(system, path), single.values(of_system, of_path)) for single in self._single_rounds()
            )
            if part and whole and whole[0]
        ]

    def median(self, system: str, path: str) -> float | None:
        return median_or_none(self.values(system, path))

    def measurements(self) -> list[tuple[str, Figures]]:
        """Every measurement of every round and system, with its section."""
        return [
            (section, figures)
            for entry in self.rounds
            for sections in entry.values()
            for section, measurements in sections.items()
            for figures in measurements.values()
        ]

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.data, indent=1) + "\n")

    def _single_rounds(self) -> "list[Results]":
        return [Results({"rounds": [entry]}) for entry in self.rounds]
