"""A case, made from a seed: a pipeline, its records, and what goes wrong between and during its runs.

The same seed is the same case. Each round adds records to the topic and runs the pipeline with `--once`; before the
run something may be taken away or changed, and in it something may fail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import yaml

from pipelines.random import steps as step
from pipelines.random.accidents import ACCIDENTS
from pipelines.random.failing import POINTS
from pipelines.random.places import Files, Place, Table, Topic, World
from pipelines.random.records import Record, RecordMaker
from pipelines.random.rows import Condition, Values, conditions

CHANGED = (
    "window changed",
    "filter changed",
    "parse changed",
    "stream renamed",
    "sinks in another order",
    "one more sink",
)
TYPES = {"id": "long", "k": "string", "n": "long", "at": "timestamp", "tags": "array<string>"}
TYPES |= {"m": "long", "tag": "string", "city": "string"}


@dataclass
class Round:
    """One run, and what comes before and goes wrong in it."""

    records: list[Record]
    accident: str | None = None
    point: str | None = None  # where the run fails
    hits: int = 1  # when it gets there for this time
    kills_broker: bool = False  # and it is the broker that dies, not the run
    dice: int = 0  # for what the accident chooses
    is_left: bool = False  # as it died: the next round begins there, and may have an accident

    def told(self) -> str:
        words = [f"{len(self.records)} records"]
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

    @property
    def is_split(self) -> bool:
        return len(self.queries) > 1

    def way(self, query: Query) -> list[tuple[str, int, step.Step]]:
        """All steps to the sinks of a query: stream, number, step."""
        shared = [("events", number, each) for number, each in enumerate(self.shared, start=1)]
        return shared + [(query.name, number, each) for number, each in enumerate(query.steps, start=1)]

    def document(self, world: World) -> dict[str, Any]:
        origin: dict[str, Any] = {"topic": f"{world.name}-in"}
        if self.per_batch:
            origin["max_per_batch"] = self.per_batch
        streams: dict[str, Any] = {}
        if any(isinstance(each, step.JoinTable) and each.source != "table" for each in self.all_steps()):
            parse = {"parse": {"format": "json", "schema": "k string, city string"}}
            streams["cities"] = {"from": {"topic": f"{world.name}-cities"}, "steps": [parse]}
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


def written(steps: list[step.Step]) -> list[dict[str, Any]]:
    return [{each.name: each.written()} for each in steps]


def make_case(seed: int, has_postgres: bool = False, has_accidents: bool = True) -> Case:
    return Maker(seed, has_postgres, has_accidents).case()


class Maker:
    """Throws the dice."""

    def __init__(self, seed: int, has_postgres: bool, has_accidents: bool) -> None:
        self.seed = seed
        self.chance = Random(seed)
        self.has_postgres = has_postgres
        self.has_accidents = has_accidents
        self.records = RecordMaker(self.chance)

    def case(self) -> Case:
        chance = self.chance
        partitions = chance.choice((1, 1, 2, 3))
        per_batch = chance.choice((None, None, 10))
        is_split = chance.random() < 0.2
        is_late = chance.random() < 0.25
        shared, columns = self.stateless([step.Parse(chance.random() < 0.5, chance.choice(("die", "filter")))], is_late)
        names = ("left", "right") if is_split else ("main",)
        queries = [self.query(name, shared, columns, is_late) for name in names]
        if not is_split:
            queries[0].steps[:0] = shared
        case = Case(self.seed, partitions, per_batch, shared if is_split else [], queries, [], is_late)
        case.sends_dead = chance.random() < 0.9
        case.rounds = self.rounds(case)
        return case

    # steps

    def stateless(self, steps: list[step.Step], keeps_origin: bool) -> tuple[list[step.Step], list[str]]:
        """Some steps, and the columns behind them."""
        columns = ["id", "k", "n", "at", "tags"]
        makers: list[Callable[[list[str]], step.Step | None]]
        makers = [self.filter, self.rule, self.derive, self.select, self.explode, self.join, self.function]
        makers += [] if keeps_origin else [self.sql]
        for _ in range(self.chance.choice((0, 1, 1, 2, 3))):
            made = self.chance.choice(makers)(columns)
            if made is not None and not (isinstance(made, step.Explode | step.JoinTable) and has(steps, type(made))):
                steps.append(made)
                columns = columns_after(made, columns)
        return steps, columns

    def condition(self, columns: list[str]) -> Condition:
        return self.chance.choice([each for each in conditions() if set(each.columns) <= set(columns)])

    def filter(self, columns: list[str]) -> step.Step:
        return step.Filter(self.condition(columns))

    def rule(self, columns: list[str]) -> step.Step:
        return step.Rule(self.condition(columns))

    def derive(self, columns: list[str]) -> step.Step:
        def sum_of(row: Values) -> Any:
            return None if row["n"] is None else row["n"] * 2 + 1

        return self.chance.choice((
            step.Derive("n * 2 + 1", sum_of),
            step.Derive("coalesce(n, -1)", lambda row: -1 if row["n"] is None else row["n"]),
            step.Derive("n DIV nullif(n, n)", lambda _: None),
        ))  # fmt: skip

    def select(self, columns: list[str]) -> step.Step:
        kept = [name for name in columns if name in ("k", "n", "at") or self.chance.random() < 0.5]
        return step.Select(kept)

    def explode(self, columns: list[str]) -> step.Step | None:
        return step.Explode(self.chance.random() < 0.5) if "tags" in columns else None

    def join(self, columns: list[str]) -> step.Step | None:
        kind, source = self.chance.choice(("inner", "left", "semi")), self.chance.choice(("table", "table", "newest"))
        return step.JoinTable(kind, source) if "city" not in columns else None

    def function(self, columns: list[str]) -> step.Step | None:
        if self.chance.random() < 0.5:
            return None
        return step.RowFunction(columns, {name: TYPES[name] for name in columns})

    def sql(self, columns: list[str]) -> step.Step:
        return step.Sql(columns, self.condition(columns))

    def query(self, name: str, before: list[step.Step], columns: list[str], is_late: bool) -> Query:
        """`before`: the steps that lead to those that are made here."""
        chance, output = self.chance, "append"
        steps: list[step.Step] = []
        kind = chance.choice(("none", "none", "dedup", "window", "window", "sliding", "total", "order"))
        if is_late and kind in ("none", "total"):
            kind = "window"
        if kind == "total":
            steps.append(step.Window(0, 0, self.by(columns)))
            output = chance.choice(("update", "update", "complete"))
        elif kind != "none":
            delay = chance.choice((5, 30, 120))
            steps.append(step.Watermark(delay))
            can_deduplicate = "id" in columns and "tag" not in columns
            if can_deduplicate and (kind == "dedup" or chance.random() < 0.2):
                steps.append(step.Deduplicate(delay))
            if kind in ("window", "sliding"):
                size = chance.choice((10, 60))
                steps.append(step.Window(size, size // 2 if kind == "sliding" else size, self.by(columns)))
                if not has(steps, step.Deduplicate):
                    output = chance.choice(("append", "append", "update", "complete"))
            elif kind == "order":
                steps.append(step.Order(chance.choice(([], ["k"]))))
        for each in steps:
            columns = columns_after(each, columns)
        if has(steps, step.Window) and chance.random() < 0.3:
            steps.append(step.Filter(self.condition(columns)))
        order = order_behind([*before, *steps])
        return Query(name, steps, output, self.places(name, columns, output, order))

    def by(self, columns: list[str]) -> list[str]:
        return self.chance.choice(([], ["k"], ["k"], ["tag"] if "tag" in columns else ["k"]))

    # sinks

    def places(self, query: str, columns: list[str], output: str, order: str) -> list[Place]:
        found: list[Place] = []
        lasting = output == "append" and self.chance.random() < 0.2
        for number in range(self.chance.choice((1, 1, 2, 3))):
            kinds = ["table"] if lasting else ["table", "table", "topic", "files", "upsert", "upsert", "repeated"]
            kind = self.chance.choice(kinds)
            if kind == "repeated" and number == 0:
                kind = "topic"  # one at least remembers
            if output == "complete" and self.chance.random() < 0.6:
                kind = "replace"
            found.append(self.place(kind, f"{query}{number}", columns, order, lasting))
        return found

    def place(self, kind: str, label: str, columns: list[str], order: str, lasting: bool) -> Place:
        chance = self.chance
        condition = self.condition(columns) if has_condition(columns) and chance.random() < 0.2 else None
        chosen = [name for name in columns if name in ("k", "n", "rows") or chance.random() < 0.7]
        is_chosen = bool(chosen) and chance.random() < 0.3
        common: Any = (label, chosen if is_chosen else columns, is_chosen, condition)
        server = "postgres" if chance.random() < 0.25 and self.has_postgres else "sqlite"
        key = self.key(columns, order)
        if kind == "upsert" and key is not None:
            newest_by = chance.choice([None, "n"]) if "n" in columns and "n" not in key else None
            if order == "none" and newest_by is None:
                return Table(*common, server=server)
            if is_chosen:
                common = (
                    label,
                    list(dict.fromkeys([*chosen, *key, *([newest_by] if newest_by else [])])),
                    True,
                    condition,
                )
            table = Table(*common, mode="upsert", key=tuple(key), newest_by=newest_by, server=server)
            if order == "topic" and newest_by is None and "n" in columns and chance.random() < 0.3:
                whole = next(each for each in conditions() if each.sql == "k IS NOT NULL")
                table.condition, table.delete_when = whole, chance.choice(conditions()[:2])
            return table
        if kind in ("topic", "repeated"):
            delivery = "exactly-once" if kind == "topic" else "at-least-once"
            return Topic(*common, delivery=delivery, key="k" if "k" in common[1] and chance.random() < 0.5 else None)
        if kind == "files":
            return self.files(common)
        if kind == "replace":
            return Table(*common, mode="replace", server=server)
        return Table(*common, keep_offsets=lasting, server=server)

    def key(self, columns: list[str], order: str) -> list[str] | None:
        """Of an upsert: rows of one key come from one partition, for that is where `k` goes."""
        if order == "groups":
            spans = [name for name in ("window_start",) if name in columns]
            return [*spans, *(name for name in ("k", "tag") if name in columns)] or None
        return ["k"] if "k" in columns else None

    def files(self, common: Any) -> Place:
        label, columns, is_chosen, condition = common
        formats = ["parquet", "json"] if "tags" in columns else ["parquet", "json", "csv"]
        partition_by = "k" if "k" in columns and len(columns) > 1 and self.chance.random() < 0.3 else None
        return Files(label, columns, is_chosen, condition, self.chance.choice(formats), partition_by)

    # records, and what goes wrong

    def rounds(self, case: Case) -> list[Round]:
        chance = self.chance
        rounds = []
        last = chance.choice((2, 2, 3)) - 1
        for number in range(last + 1):
            amount = chance.choice((0, 1, 8, 18)) if number else chance.choice((1, 8, 8, 18))
            each = Round([record for _ in range(amount) for record in self.records.some(case.partitions)])
            each.dice = chance.randrange(1 << 30)
            trouble = chance.random() if self.has_accidents else 1.0
            if number and (trouble < 0.55 or rounds[-1].is_left):
                each.accident = chance.choice(possible([*ACCIDENTS, *CHANGED], case))
            elif trouble < 0.75:
                each.point, each.hits = chance.choice(possible(POINTS, case)), chance.choice((1, 1, 1, 2))
                each.kills_broker = chance.random() < 0.08
                each.is_left = number < last and chance.random() < 0.5
            rounds.append(each)
        return rounds


def possible(names: list[str], case: Case) -> list[str]:
    """Without what cannot happen to these sinks and steps."""
    places = [place for query in case.queries for place in query.places]
    words = {
        "files": any(isinstance(place, Files) for place in places),
        "SQLite": any(isinstance(place, Table) and place.server == "sqlite" for place in places),
        "topic": any(isinstance(place, Topic) and place.is_exact for place in places),
        "state": any(each.has_state for each in case.all_steps()),
        "window": has(case.all_steps(), step.Window),
        "filter": has(case.all_steps(), step.Filter),
        "sinks": len(places) > 1,
    }
    words |= {"ledger": words["SQLite"], "table": words["SQLite"], "database": words["SQLite"]}
    words |= {"markers": words["topic"]}
    return [name for name in names if all(is_so for word, is_so in words.items() if word in name)]


def has(steps: list[step.Step], kind: type[step.Step]) -> bool:
    return any(isinstance(each, kind) for each in steps)


def has_condition(columns: list[str]) -> bool:
    return any(set(each.columns) <= set(columns) for each in conditions())


def columns_after(made: step.Step, columns: list[str]) -> list[str]:
    if isinstance(made, step.Window):
        return [*(["window_start", "window_end"] if made.size_s else []), *made.by, "rows", "total", "greatest"]
    if isinstance(made, step.Explode):
        return [*(name for name in columns if name != "tags"), "tag"]
    if isinstance(made, step.JoinTable):
        return columns if made.kind == "semi" else [*columns, "city"]
    if isinstance(made, step.Select):
        return list(made.columns)
    return [*columns, "m"] if isinstance(made, step.Derive) and "m" not in columns else columns


def order_behind(steps: list[step.Step]) -> str:
    """Which row an upsert keeps there: `topic`, `time`, `groups` or, with `none`, only newest_by says it."""
    if has(steps, step.Window):
        return "groups"
    if has(steps, step.Order):
        return "time"
    return "none" if has(steps, step.Sql) else "topic"
