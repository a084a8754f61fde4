"""Row counts of every step: input = output + filtered + late + dead.

Steps that mark rows are counted by the observation that settles them; steps that merge rows or run unknown code, by the
observations before and after them. A sink that has rejected rows is listed after the steps of its stream. All figures
are sums over the batches added so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.operations.pipeline_runs.snapshots import StepCount

if TYPE_CHECKING:  # figures can be shown without Spark
    from ottla.pipelines.model.pipeline import Stream
    from ottla.pipelines.steps.frame import AppliedStep
    from ottla.pipelines.steps.lateness import LateRows

Observed = Mapping[str, Mapping[str, Any]]  # observation -> figure -> value; null for a batch without rows


class Taken(NamedTuple):
    """Rows that a sink has written or rejected since the last call; `number` is its index in its stream, from 0."""

    number: int
    place: str
    rows: int
    refused: int


class Account:
    """The sums of one query."""

    def __init__(self, passages: Iterable[AppliedStep], sources: Iterable[tuple[str, str]] = ()) -> None:
        """`sources`: streams that read topics, each with the observation that counts its records."""
        self.passages = list(passages)
        self.sources = list(sources)
        self.sums: dict[str, Counter[str]] = {}
        self.late: Counter[AppliedStep] = Counter()
        self.sinks: dict[tuple[str, int, str], Counter[str]] = {}

    def __repr__(self) -> str:
        return f"Account({self.steps()})"

    def add(self, observed: Observed, late: Iterable[LateRows] = ()) -> None:
        """Add the figures of one batch, as Spark reports them, and its late rows."""
        for name, figures in observed.items():
            sums = self.sums.setdefault(name, Counter())
            sums.update({key: value for key, value in figures.items() if isinstance(value, int)})
        for each in late:
            self.late[each.passage] += each.rows

    def add_taken(self, stream: Stream, taken: Iterable[Taken]) -> None:
        """Add the counts of the stream's sinks."""
        for each in taken:
            key = stream.name, len(stream.steps) + 1 + each.number, f"to {each.place}"
            self.sinks.setdefault(key, Counter()).update(kept=each.rows, dead=each.refused)

    def steps(self) -> list[StepCount]:
        return [*(self._count(passage) for passage in self.passages), *self._refusing()]

    def records(self) -> dict[str, int]:
        """Records read by each source stream; a stream that a query uses twice is read twice and counted once."""
        found: Counter[str] = Counter()
        for stream, observation in self.sources:
            found[stream] = max(found[stream], self.sums.get(observation, Counter())["in"])
        return dict(found)

    def _refusing(self) -> Iterator[StepCount]:
        """A sink that has rejected nothing needs no line: it got the output of the last step."""
        for key, sums in self.sinks.items():
            if sums["dead"]:
                yield StepCount(*key, sums.total(), sums["kept"], 0, 0, sums["dead"], sums["kept"])

    def _count(self, passage: AppliedStep) -> StepCount:
        sums = self.sums.get(passage.observation, Counter())
        if passage.marks_rows:
            return self._marked(passage, sums)
        came = sum(self.sums.get(name, Counter())["out"] for name in passage.input_observations)
        dead = sums[f"dead_{passage.mark}"] if passage.kills else 0
        made = sums["in"] - dead
        late = self.late[passage]
        where = sum(self.sums.get(name, Counter())["filtered"] for name in passage.filter_observations)
        filtered = where if passage.kind == "merges" else max(came - late - made, 0)
        came = max(came, filtered + late + dead)  # dead rows may have arrived in an earlier run and been held since
        return self._row(passage, came, came - filtered - late - dead, filtered, late, dead, made)

    def _marked(self, passage: AppliedStep, sums: Counter[str]) -> StepCount:
        gone_before = sum(
            sums[f"filtered_{earlier.mark}"] + sums[f"dead_{earlier.mark}"]
            for earlier in self.passages
            if earlier.observation == passage.observation
            and (earlier.marks_rows or earlier.kills)
            and earlier.mark < passage.mark
        )
        came = sums["in"] - gone_before
        filtered, dead = sums[f"filtered_{passage.mark}"], sums[f"dead_{passage.mark}"]
        kept = came - filtered - dead
        return self._row(passage, came, kept, filtered, 0, dead, kept)

    def _row(
        self, passage: AppliedStep, came: int, kept: int, filtered: int, late: int, dead: int, made: int
    ) -> StepCount:
        return StepCount(passage.stream, passage.number, passage.step, came, kept, filtered, late, dead, made)


def dead_in(observed: Observed) -> int:
    """Rows that died in one batch."""
    return sum(value or 0 for each in observed.values() for key, value in each.items() if key.startswith("dead_"))


def letters_in(observed: Observed, passages: Iterable[AppliedStep], streams: Container[str]) -> int:
    """Dead rows that become dead letters after the batch: those in steps of these streams, before rows were merged
    and before external lookups."""
    count = 0
    for passage in passages:
        if passage.kind in ("merges", "opaque", "asks"):
            break
        if passage.kind == "marks" and passage.stream in streams:
            count += observed.get(passage.observation, {}).get(f"dead_{passage.mark}") or 0
    return count
