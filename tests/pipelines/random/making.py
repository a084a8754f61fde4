"""Generates cases: steps, sinks, records and accidents from a seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.pipelines.random import analysis, asking, two_streams
from tests.pipelines.random import steps as step
from tests.pipelines.random.accidents import ACCIDENTS
from tests.pipelines.random.cases import CITIES, Case, Query, Round, Side
from tests.pipelines.random.failing import POINTS
from tests.pipelines.random.places import Copy, Files, Place, Table, Topic
from tests.pipelines.random.placing import Placing
from tests.pipelines.random.records import RecordMaker
from tests.pipelines.random.rows import Condition, Values, conditions

CHANGED = (
    "window changed",
    "filter changed",
    "parse changed",
    "stream renamed",
    "sinks in another order",
    "one more sink",
)
TYPES = {"id": "long", "k": "string", "n": "long", "at": "timestamp", "tags": "array<string>"}
TYPES |= {"m": "long", "tag": "string", "city": "string", "plan": "string"}
IN_TIME = (
    "dedup",
    "window",
    "sliding",
    "order",
    "session",
    "top",
    "top",
    "anomalies",
    "join",
    "join",
    "as_of",
    "as_of",
    "associations",
    "associations",
    "stateful",
    "stateful window",
)
KINDS = ("none", "total", "sql total", "sql window", *IN_TIME)
LATE_KINDS = tuple(kind for kind in IN_TIME if kind != "dedup")
COPIES = 0.08
GROUPS = (step.Window, analysis.Sessions, analysis.Top, analysis.Associations)


def make_case(seed: int, servers: tuple[str, ...] = (), has_accidents: bool = True, has_delta: bool = False) -> Case:
    """`servers`: those that run beside SQLite, `postgres` and `redis`."""
    return Maker(seed, servers, has_accidents, has_delta).case()


class Maker:
    """Generates one case."""

    def __init__(self, seed: int, servers: tuple[str, ...], has_accidents: bool, has_delta: bool) -> None:
        self.seed = seed
        self.chance = Random(seed)
        self.has_accidents = has_accidents
        self.records = RecordMaker(self.chance)
        self.placing = Placing(self.chance, servers, has_delta)
        self.sides: dict[str, Side] = {}

    def case(self) -> Case:
        if Random(f"copy {self.seed}").random() < COPIES:  # dice of its own: all other seeds stay what they were
            return self.copy()
        chance = self.chance
        partitions = chance.choice((1, 1, 2, 3))
        per_batch = chance.choice((None, None, 10))
        is_split = chance.random() < 0.2
        is_late = chance.random() < 0.25
        first: list[step.Step] = [step.Parse(chance.random() < 0.5, chance.choice(("die", "filter")))]
        if chance.random() < 0.12:
            first += self.union()
        shared, columns = self.stateless(first, is_late)
        names = ("left", "right") if is_split else ("main",)
        queries = [self.query(name, shared, columns, is_late) for name in names]
        if not is_split:
            queries[0].steps[:0] = shared
        case = Case(self.seed, partitions, per_batch, shared if is_split else [], queries, [], is_late)
        case.sides = self.sides
        case.sends_dead = chance.random() < 0.9
        case.rounds = self.rounds(case)
        return case

    def copy(self) -> Case:
        """Records that go from topic to topic as they are."""
        chance = self.chance
        deliveries = chance.choice((["exactly-once"], ["exactly-once"], ["exactly-once", "at-least-once"]))
        places: list[Place] = [
            Copy(f"main{number}", ["key", "value"], False, None, delivery) for number, delivery in enumerate(deliveries)
        ]
        query = Query("main", [], "append", places)
        case = Case(self.seed, chance.choice((1, 2, 3)), chance.choice((None, 10)), [], [query], [])
        case.rounds = self.rounds(case)
        return case

    # steps

    def stateless(self, steps: list[step.Step], keeps_origin: bool) -> tuple[list[step.Step], list[str]]:
        """Some steps, and the columns behind them."""
        columns = ["id", "k", "n", "at", "tags"]
        columns += [name for each in steps if isinstance(each, two_streams.Union) for name in each.lacking]
        makers: list[Callable[[list[str]], step.Step | None]]
        makers = [self.filter, self.rule, self.derive, self.select, self.explode, self.join, self.function]
        makers += [self.enrich]
        makers += [] if keeps_origin else [self.sql]
        for _ in range(self.chance.choice((0, 1, 1, 2, 3))):
            made = self.chance.choice(makers)(columns)
            if made is not None and not (isinstance(made, step.Explode | step.JoinTable) and has(steps, type(made))):
                steps.append(made)
                columns = columns_after(made, columns)
        return steps, columns

    def condition(self, columns: list[str]) -> Condition:
        return self.chance.choice([each for each in conditions() if set(each.columns) <= set(columns)])

    def union(self) -> list[step.Step]:
        """A database may be asked on one side of it: then only that one has been asked for letters before."""
        chance, own = self.chance, Random(f"union {self.seed}")
        steps: list[step.Step] = [step.Parse(chance.random() < 0.5, chance.choice(("die", "filter")))]
        if chance.random() < 0.5:
            steps.append(step.Filter(self.condition(["k", "n"])))
        self.sides[two_streams.MORE] = Side(steps, chance.choice((1, 2)), chance.choice((None, None, 10)))
        asking_side = own.choice(("neither", "neither", "this", "other"))
        if asking_side == "neither":
            return [two_streams.Union()]
        asked = asking.Enrich(own.choice(("null", "dead", "dead", "filter")))
        if asking_side == "other":
            steps.append(asked)
        return [*([asked] if asking_side == "this" else []), two_streams.Union(("plan",))]

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
        kind, source = self.chance.choice(("inner", "left", "semi")), self.chance.choice(("table", "newest"))
        return step.JoinTable(kind, source) if "city" not in columns else None

    def enrich(self, columns: list[str]) -> step.Step | None:
        if "plan" in columns or self.chance.random() < 0.4:
            return None
        return asking.Enrich(self.chance.choice(("null", "dead", "dead", "filter")))

    def function(self, columns: list[str]) -> step.Step | None:
        if self.chance.random() < 0.5:
            return None
        return step.RowFunction(columns, {name: TYPES[name] for name in columns})

    def sql(self, columns: list[str]) -> step.Step:
        return step.Sql(columns, self.condition(columns))

    def query(self, name: str, before: list[step.Step], columns: list[str], is_late: bool) -> Query:
        """`before`: the steps that lead to those that are made here."""
        chance, output = self.chance, "append"
        kind = chance.choice(LATE_KINDS if is_late else KINDS)
        steps: list[step.Step] = []
        if kind == "associations" and "tag" not in columns:
            if "tags" in columns:
                steps.append(step.Explode(keep_empty=False))
                columns = columns_after(steps[0], columns)
            else:
                kind = "top"
        if kind in ("total", "sql total"):
            steps.append(self.total(kind, columns))
            output = chance.choice(("update", "update", "complete"))
        elif kind != "none":
            steps += self.in_time(kind, columns)
            if kind in ("window", "sliding", "sql window") and not has(steps, step.Deduplicate):
                output = chance.choice(("append", "append", "update", "complete"))
        for each in steps[has(steps, step.Explode) :]:
            columns = columns_after(each, columns)
        if kind not in ("none", "dedup", "order") and self.placing.has_condition(columns) and chance.random() < 0.3:
            is_rule = isinstance(steps[-1], asking.Stateful) or Random(f"rule {self.seed} {name}").random() < 0.4
            steps.append((step.Rule if is_rule else step.Filter)(self.condition(columns)))
        order = order_behind([*before, *steps])
        return Query(name, steps, output, self.placing.places(name, columns, output, order))

    def total(self, kind: str, columns: list[str]) -> step.Step:
        if kind == "total":
            return step.Window(0, 0, self.by(columns))
        condition = self.condition(columns) if self.chance.random() < 0.4 else None
        return analysis.SqlTotals(0, 0, self.keys(columns), condition=condition)

    def in_time(self, kind: str, columns: list[str]) -> list[step.Step]:
        """A watermark, and what needs one."""
        chance = self.chance
        delay, size = chance.choice((5, 30, 120)), chance.choice((10, 60))
        slide = size // 2 if kind == "sliding" else size
        steps: list[step.Step] = [step.Watermark(delay)]
        can_deduplicate = "id" in columns and "tag" not in columns and kind in ("dedup", "window", "sliding", "order")
        if can_deduplicate and (kind == "dedup" or chance.random() < 0.2):
            steps.append(step.Deduplicate(delay))
        if kind in ("join", "as_of"):
            return [*steps, self.put_together(kind, columns)]
        if kind == "stateful window":
            steps.append(asking.Stateful())
            steps += [step.Rule(self.condition(["k", "seen", "n"]))] if chance.random() < 0.5 else []
        makers: dict[str, Callable[[], step.Step]] = {
            "window": lambda: step.Window(size, slide, self.by(columns)),
            "sliding": lambda: step.Window(size, slide, self.by(columns)),
            "order": lambda: step.Order(chance.choice(([], ["k"]))),
            "stateful": asking.Stateful,
            "stateful window": lambda: step.Window(size, slide, chance.choice(([], ["k"]))),
            "session": lambda: analysis.Sessions(chance.choice((3, 10, 60)), self.keys(columns)),
            "top": lambda: self.top(size, columns),
            "anomalies": lambda: analysis.Anomalies(chance.choice(([], ["k"])), *chance.choice(((2, 2), (5, 3)))),
            "associations": lambda: analysis.Associations(
                size, chance.choice((size, size, size // 2)), chance.choice((0.01, 0.3)), chance.choice((0.1, 0.5, 1.0))
            ),
            "sql window": lambda: analysis.SqlTotals(size, size, self.keys(columns)),
        }
        return [*steps, makers[kind]()] if kind in makers else steps

    def top(self, size: int, columns: list[str]) -> step.Step:
        chance = self.chance
        by = chance.choice(([], ["tag"])) if "tag" in columns else []
        slide = chance.choice((size, size, size // 2))
        return analysis.Top(size, slide, ["k"], by, chance.choice((1, 2, 10)), chance.choice((None, "n")))

    def put_together(self, kind: str, columns: list[str]) -> step.Step:
        chance = self.chance
        if two_streams.OTHER not in self.sides:
            steps: list[step.Step] = [two_streams.ParseOther(False, chance.choice(("die", "filter")))]
            steps.append(two_streams.WatermarkOther(chance.choice((5, 30))))
            side = Side(steps, chance.choice((1, 2)), chance.choice((None, None, 10)))
            self.sides[two_streams.OTHER] = side
        if kind == "as_of":
            return two_streams.JoinAsOf(chance.choice(("inner", "left")))
        kinds = ("inner", "inner", "left", "left", "right", "full", "semi")
        is_after = chance.random() < 0.3
        return two_streams.JoinStreams(chance.choice(kinds), chance.choice((2, 10, 60)), is_after, columns)

    def by(self, columns: list[str]) -> list[str]:
        return self.chance.choice(([], ["k"], ["k"], ["tag"] if "tag" in columns else ["k"]))

    def keys(self, columns: list[str]) -> list[str]:
        return self.chance.choice((["k"], ["tag"] if "tag" in columns else ["k"]))

    # records, and what goes wrong

    def rounds(self, case: Case) -> list[Round]:
        chance = self.chance
        rounds: list[Round] = []
        last = chance.choice((1, 2, 2, 3)) - 1
        for number in range(last + 1):
            amount = chance.choice((0, 1, 8, 18)) if number else chance.choice((1, 8, 8, 18))
            each = Round([])
            for _ in range(amount):
                each.records += self.records.some(case.partitions)
                self.add_others(each, case)
            if number == last and chance.random() < 0.75:
                self.close(each, case)
            each.dice = chance.randrange(1 << 30)
            was_left = bool(rounds) and rounds[-1].is_left
            if number and case.has_cities and not was_left:  # a batch that is done again reads the table again
                each.others[CITIES] = [self.records.city() for _ in range(chance.choice((0, 1, 3)))]
            trouble = chance.random() if self.has_accidents else 1.0
            if number and (trouble < 0.55 or was_left):
                each.accident = chance.choice(possible([*ACCIDENTS, *CHANGED], case))
            elif trouble < 0.75:
                each.point, each.hits = chance.choice(possible(POINTS, case)), chance.choice((1, 1, 1, 2))
                each.kills_broker = chance.random() < 0.08
                each.is_left = number < last and chance.random() < 0.5
            rounds.append(each)
        return rounds

    def close(self, each: Round, case: Case) -> None:
        """Advance the watermark, so that waiting steps emit: otherwise there would be little to compare."""
        each.records.append(self.records.closing(case.partitions))
        for name, side in case.sides.items():
            each.others.setdefault(name, []).append(self.records.closing(side.partitions))

    def add_others(self, each: Round, case: Case) -> None:
        for name, side in case.sides.items():
            if self.chance.random() < 0.7:
                records = [self.records.other(side.partitions)]
                if name == two_streams.MORE:
                    records = self.records.some(side.partitions)
                each.others.setdefault(name, []).extend(records)


def possible(names: list[str], case: Case) -> list[str]:
    """Without accidents that these sinks and steps exclude."""
    places: list[Place] = [place for query in case.queries for place in query.places]
    words = {
        "files": any(isinstance(place, Files) for place in places),
        "SQLite": any(isinstance(place, Table) and place.server == "sqlite" for place in places),
        "topic": any(isinstance(place, Topic) and place.is_exact for place in places),
        "state": any(each.has_state for each in case.all_steps()),
        "window": any(type(each) is step.Window for each in case.all_steps()),
        "filter": has(case.all_steps(), step.Filter),
        "parse": has(case.all_steps(), step.Parse),
        "sinks": len(places) > 1,
    }
    words |= {"ledger": words["SQLite"], "table": words["SQLite"], "database": words["SQLite"]}
    words |= {"markers": words["topic"]}
    return [name for name in names if all(is_so for word, is_so in words.items() if word in name)]


def has(steps: list[step.Step], *kinds: type[step.Step]) -> bool:
    return any(isinstance(each, kinds) for each in steps)


def columns_after(made: step.Step, columns: list[str]) -> list[str]:
    if isinstance(made, step.Window | analysis.Sessions):
        is_spanned = isinstance(made, analysis.Sessions) or made.size_s
        return [*(["window_start", "window_end"] if is_spanned else []), *made.by, "rows", "total", "greatest"]
    if isinstance(made, analysis.Top):
        return ["window_start", "window_end", *made.by, "rank", *made.of, "count"]
    if isinstance(made, analysis.Associations):
        figures = ["together", "support", "confidence", "lift", "baskets", "sampled"]
        return ["window_start", "window_end", "when", "then", *figures]
    if isinstance(made, asking.Stateful):
        return ["k", "seen", "n", "at"]
    if isinstance(made, asking.Enrich):
        return [*columns, "plan"]
    if isinstance(made, analysis.Anomalies):
        return [*columns, "score", "expected", "verdict"]
    if isinstance(made, two_streams.JoinStreams | two_streams.JoinAsOf):
        return columns if made.kind == "semi" else [*columns, *two_streams.OTHER_COLUMNS]
    if isinstance(made, step.Explode):
        return [*(name for name in columns if name != "tags"), "tag"]
    if isinstance(made, step.JoinTable):
        return columns if made.kind == "semi" else [*columns, "city"]
    if isinstance(made, step.Select):
        return list(made.columns)
    return [*columns, "m"] if isinstance(made, step.Derive) and "m" not in columns else columns


def order_behind(steps: list[step.Step]) -> str:
    """Which row an upsert keeps there: `topic`, `time`, `groups` or, with `none`, only newest_by says it."""
    if any(isinstance(each, analysis.SqlTotals) and each.size_s for each in steps):
        return "none"
    if has(steps, *GROUPS):
        return "groups"
    if has(steps, step.Order, analysis.Anomalies, two_streams.JoinAsOf, asking.Stateful):
        return "time"
    return "none" if has(steps, step.Sql, two_streams.JoinStreams, two_streams.Union) else "topic"
