"""Evaluates a case in plain Python: what must be in every sink, among the letters and in the account.

Which records make a batch is Spark's choice, and read from the checkpoint; that batches follow each other without a
gap and end where the topic ends is checked. Everything else is computed here, the watermark included.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from pipelines.random.cases import Case, Query
from pipelines.random.places import World
from pipelines.random.records import Record
from pipelines.random.rows import Count, Moment, Place, Row
from pipelines.random.steps import Watermark

Ends = dict[int, int]  # partition -> offset


@dataclass
class Evaluated:
    """One query so far."""

    case: Case
    query: Query
    ends: Ends = field(default_factory=dict)
    batches: list[list[Row]] = field(default_factory=list)  # what came out
    counts: list[dict[str, Count]] = field(default_factory=list)  # batch by batch
    dead: Counter[tuple[Place, str]] = field(default_factory=Counter)
    late: Counter[tuple[Place, str]] = field(default_factory=Counter)
    watermark: int = 0  # of the last batch
    following: int = 0  # of the next one

    def add(self, logs: list[list[Record]], ends: Ends, world: World) -> None:
        """A batch that ends there."""
        topic = f"{world.name}-in"
        rows = [
            Row({"value": logs[number][at].value}, (topic, number, at), (topic, number, at))
            for number, end in sorted(ends.items())
            for at in range(self.ends.get(number, 0), end)
        ]
        moment = Moment(self.following, self.watermark, self.query.output)
        counts: dict[str, Count] = {}
        for stream, number, step in self.case.way(self.query):
            label = f"{stream} {number} {step.name}"
            rows, counts[label] = step.apply(rows, moment, label)
        self.batches.append(rows)
        self.counts.append(counts)
        self.dead += Counter(set(moment.dead))  # of a record that was exploded there is one letter
        self.late += Counter(set(moment.late))
        self.watermark = moment.watermark
        self.following = max(self.following, moment.newest or 0)
        self.ends = dict(ends)

    def counted(self, last: int) -> dict[str, Count]:
        """The account of a run that did so many batches."""
        total = {f"{stream} {number} {step.name}": Count() for stream, number, step in self.case.way(self.query)}
        for counts in self.counts[len(self.counts) - last :]:
            total = {label: total[label] + count for label, count in counts.items()}
        return total

    @property
    def has_watermark(self) -> bool:
        return any(isinstance(step, Watermark) for _, _, step in self.case.way(self.query))


def expected_dead(queries: list[Evaluated]) -> Counter[tuple[Place, str]]:
    """Letters of a stream that several queries share are those of the first."""
    found: Counter[tuple[Place, str]] = Counter()
    for at, each in enumerate(queries):
        found += Counter(
            {key: count for key, count in each.dead.items() if at == 0 or not key[1].startswith("events ")}
        )
    return found
