"""Evaluates a case in plain Python: what must be in every sink, among the letters and in the account.

Which records make a batch is Spark's choice, and read from the checkpoint; that batches follow each other without a
gap and end where the topics end is checked. Everything else is computed here, the watermark included: it is the least
of those of all streams, each of which is 0 in a run until the stream has told its time, and it never goes back.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.pipelines.random.cases import Case, Query
from tests.pipelines.random.places import World
from tests.pipelines.random.records import Record
from tests.pipelines.random.rows import Count, Moment, Place, Row
from tests.pipelines.random.steps import Step
from tests.pipelines.random.two_streams import TwoStreams

Ends = dict[str, dict[int, int]]  # topic, without the name of the case -> partition -> offset
Logs = dict[str, list[list[Record]]]  # topic -> partition by partition


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
    streams: dict[str, int] = field(default_factory=dict)  # how far each watermark step has come in this run

    def begin_run(self) -> None:
        self.streams.clear()

    def add(self, logs: Logs, ends: Ends, world: World) -> None:
        """A batch that ends there."""
        moment = Moment(self.following, self.watermark, self.query.output)
        counts: dict[str, Count] = {}
        rows = self._read("in", logs, ends, world)
        for stream, number, step in self.case.way(self.query):
            label = f"{stream} {number} {step.name}"
            if isinstance(step, TwoStreams):
                others = self._read(step.side, logs, ends, world)
                for at, each in enumerate(self.case.sides[step.side].steps, start=1):
                    others, counts[f"{step.side} {at} {each.name}"] = each.apply(
                        others, moment, f"{step.side} {at} {each.name}"
                    )
                rows, counts[label] = step.apply_two(rows, others, moment, label)
            else:
                rows, counts[label] = step.apply(rows, moment, label)
        self.batches.append(rows)
        self.counts.append(counts)
        self.dead += Counter(set(moment.dead))  # of a record that was exploded there is one letter
        self.late += Counter(set(moment.late))
        self.watermark = moment.watermark
        for label, come in moment.seen.items():
            self.streams[label] = max(self.streams.get(label, 0), come or 0)
        self.following = max(self.following, min(self.streams.values(), default=0))
        self.ends = {topic: dict(each) for topic, each in ends.items()}

    def _read(self, topic: str, logs: Logs, ends: Ends, world: World) -> list[Row]:
        name = f"{world.name}-{topic}"
        return [
            Row({"key": record.key, "value": record.value}, (name, number, at), (name, number, at))
            for number, end in sorted(ends.get(topic, {}).items())
            for at in range(self.ends.get(topic, {}).get(number, 0), end)
            for record in [logs[topic][number][at]]
        ]

    def counted(self, last: int) -> dict[str, Count]:
        """The account of a run that did so many batches."""
        total = {label: Count() for label in self._labels()}
        for counts in self.counts[len(self.counts) - last :]:
            total = {label: total[label] + count for label, count in counts.items()}
        for count in total.values():  # what died may have been held since an earlier run
            count.came = max(count.came, count.filtered + count.late + count.dead)
            count.kept = count.came - count.filtered - count.late - count.dead
        return total

    def topics(self) -> list[str]:
        return ["in", *(step.side for _, _, step in self.case.way(self.query) if isinstance(step, TwoStreams))]

    def _labels(self) -> list[str]:
        labels = []
        for stream, number, step in self.case.way(self.query):
            if isinstance(step, TwoStreams):
                sides: list[Step] = self.case.sides[step.side].steps
                labels += [f"{step.side} {at} {each.name}" for at, each in enumerate(sides, start=1)]
            labels.append(f"{stream} {number} {step.name}")
        return labels

    def streams_used(self) -> set[str]:
        return {label.split()[0] for label in self._labels()}


def expected_dead(queries: list[Evaluated]) -> Counter[tuple[Place, str]]:
    """Dead letters of a shared stream belong to the first query."""
    found: Counter[tuple[Place, str]] = Counter()
    taken: set[str] = set()
    for each in queries:
        found += Counter({key: count for key, count in each.dead.items() if key[1].split()[0] not in taken})
        taken |= each.streams_used()
    return found
