"""Steps that would not give the same again, in plain Python: `enrich` asks a database, `stateful` runs code that
remembers. What dies in them, or behind `enrich`, has its letter all the same."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.pipelines.random.rows import Count, Moment, Row, Values
from tests.pipelines.random.steps import Marking, Timed

PLANS = {"a": "gold", "b": "basic", "d": "gold", 'q"u,o': None}
CODE = """\


class Seen:
    def on_row(self, row, state):
        state["seen"] = (state["seen"] or 0) + 1
        if row["n"] == 6:
            raise RuntimeError("six")
        if row["n"] == 5:
            return None
        return {"seen": state["seen"], "n": row["n"]}
"""


def make_plans(file: Path) -> None:
    database = sqlite3.connect(file)
    try:
        database.execute("CREATE TABLE plans (k TEXT PRIMARY KEY, plan TEXT)")
        database.executemany("INSERT INTO plans VALUES (?, ?)", PLANS.items())
        database.commit()
    finally:
        database.close()


@dataclass
class Enrich(Marking):
    """A plan for some of the keys."""

    on_missing: str
    name = "enrich"

    def written(self) -> dict[str, Any]:
        question = {"sqlite": "plans.db", "query": "SELECT plan FROM plans WHERE k = :k", "schema": {"plan": "string"}}
        return {**question, "on_missing": self.on_missing}

    def judge(self, row: Row) -> Values | None:
        if row.values["k"] not in PLANS:
            if self.on_missing == "dead":
                raise ValueError
            if self.on_missing == "filter":
                return None
        return {**row.values, "plan": PLANS.get(row.values["k"])}


@dataclass
class Stateful(Timed):
    """Counts the rows of a key in the order of their time; what dies is not counted."""

    held: list[Row] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    name = "stateful"

    def written(self) -> dict[str, Any]:
        return {"code": "functions:Seen", "by": ["k"], "state": {"seen": "int"}, "schema": {"seen": "int", "n": "long"}}

    def apply(self, rows: list[Row], moment: Moment, label: str) -> tuple[list[Row], Count]:
        known = [row for row in rows if row.values["k"] is not None]
        timely = self.timely(known, moment, label)
        self.held += timely
        ready = sorted(
            (row for row in self.held if row.values["at"] <= moment.watermark), key=lambda row: int(row.values["at"])
        )
        self.held = [row for row in self.held if row.values["at"] > moment.watermark]
        made, dead = [], 0
        for row in ready:
            key = row.values["k"]
            if row.values["n"] == 6:
                dead += 1
                moment.dead += [] if row.place is None else [(row.place, label)]
                continue
            self.seen[key] = self.seen.get(key, 0) + 1
            if row.values["n"] != 5:
                values = {"k": key, "seen": self.seen[key], "n": row.values["n"], "at": row.values["at"]}
                made.append(Row(values, None, (row.values["at"],)))  # code has made it: it is no record any more
        late, filtered = len(known) - len(timely), len(rows) - len(known)
        return made, Count(len(rows), len(timely) - dead, filtered, late, dead, len(made))
