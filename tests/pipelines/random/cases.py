"""A case, made from a seed (making.py): a pipeline, its records, and what goes wrong between and during its runs.

The same seed is the same case. Each round adds records to the topics and runs the pipeline with `--once`; before the
run something may be taken away or changed, and in it something may fail.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml
from tests.pipelines.random import steps as step
from tests.pipelines.random.places import Place, World
from tests.pipelines.random.records import Record

CITIES = "cities"  # a stream, and its topic


@dataclass
class Round:
    """One run, with the accidents before and during it."""

    records: list[Record]
    others: dict[str, list[Record]] = field(default_factory=dict)  # of the topics of other streams
    accident: str | None = None
    point: str | None = None  # where the run fails
    hits: int = 1  # when it gets there for this time
    kills_broker: bool = False  # and it is the broker that dies, not the run
    dice: int = 0  # for what the accident chooses
    is_left: bool = False  # as it died: the next round begins there, and may have an accident

    def told(self) -> str:
        words = [f"{len(self.records)} records"]
        words += [f"{len(records)} in {topic}" for topic, records in self.others.items()]
        words += [f"accident: {self.accident}"] if self.accident else []
        who = "the broker" if self.kills_broker else "the run"
        words += [f"{who} dies at {self.point}, time {self.hits}"] if self.point else []
        words += ["and is left so"] if self.is_left else []
        return ", ".join(words)


@dataclass
class Query:
    """A stream with sinks."""

    name: str
    steps: list[step.Step]
    output: str
    places: list[Place]


@dataclass
class Side:
    """A stream without sinks that others are put together with; its topic has its name."""

    steps: list[step.Step]
    partitions: int
    per_batch: int | None


@dataclass
class Case:
    """`shared` are the steps of a stream that all queries read; none if there is a single query."""

    seed: int
    partitions: int
    per_batch: int | None
    shared: list[step.Step]
    queries: list[Query]
    rounds: list[Round]
    sends_late: bool = False
    sends_dead: bool = True
    sides: dict[str, Side] = field(default_factory=dict)

    @property
    def is_split(self) -> bool:
        return len(self.queries) > 1

    def way(self, query: Query) -> list[tuple[str, int, step.Step]]:
        """All steps to the sinks of a query: stream, number, step."""
        shared = [("events", number, each) for number, each in enumerate(self.shared, start=1)]
        return shared + [(query.name, number, each) for number, each in enumerate(query.steps, start=1)]

    def document(self, world: World) -> dict[str, Any]:
        origin = source(world, "in", self.per_batch)
        streams: dict[str, Any] = {}
        if self.has_cities:
            parse = {"parse": {"format": "json", "schema": "k string, city string"}}
            streams[CITIES] = {"from": source(world, CITIES, None), "steps": [parse]}
        for name, side in self.sides.items():
            streams[name] = {"from": source(world, name, side.per_batch), "steps": written(side.steps)}
        if self.is_split:
            streams["events"] = {"from": origin, "steps": written(self.shared)}
        for query in self.queries:
            streams[query.name] = {
                "from": "events" if self.is_split else origin,
                "steps": written(query.steps),
                "output": query.output,
                "to": [place.written(world) for place in query.places],
            }
        head: dict[str, Any] = {"name": world.name, "bootstrap.servers": world.bootstrap, "max_dead": "100 %"}
        if not self.sends_dead:
            head["dead_letters"] = False
        if self.sends_late:
            head["late_rows"] = f"{world.name}-late"
        return {**head, "streams": streams}

    def text(self, world: World) -> str:
        return yaml.safe_dump(self.document(world), sort_keys=False, allow_unicode=True, width=110)

    def all_steps(self) -> list[step.Step]:
        return [*self.shared, *(each for query in self.queries for each in query.steps)]

    @property
    def tables(self) -> list[step.JoinTable]:
        """Joins with the stream of cities."""
        return [each for each in self.all_steps() if isinstance(each, step.JoinTable) and each.source != "table"]

    @property
    def has_cities(self) -> bool:
        return bool(self.tables)

    @property
    def topics(self) -> dict[str, int]:
        """Their names, without that of the case, and partitions."""
        sides = {name: side.partitions for name, side in self.sides.items()}
        return {"in": self.partitions, **sides, **({CITIES: 1} if self.has_cities else {})}


def source(world: World, topic: str, per_batch: int | None) -> dict[str, Any]:
    return {"topic": f"{world.name}-{topic}", **({"max_per_batch": per_batch} if per_batch else {})}


def written(steps: list[step.Step]) -> list[dict[str, Any]]:
    return [{each.name: each.written()} for each in steps]
