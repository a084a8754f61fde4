"""Throws the dice for sinks."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.pipelines.random.places import Delta, Files, Place, Served, Table, Topic
from tests.pipelines.random.rows import LISTS, Condition, conditions

KINDS = ("table", "table", "topic", "files", "upsert", "upsert", "repeated", "http")
REMEMBERING = ("table", "topic", "files", "upsert", "delta")


class Placing:
    """Where the rows of a query go."""

    def __init__(self, chance: Random, servers: tuple[str, ...], has_delta: bool) -> None:
        self.chance = chance
        self.servers = ["sqlite", "sqlite", "alchemy", *servers]
        # Delta's own log takes as long as all the rest of a run: it has enough cases with a third of them.
        self.kinds = [*KINDS, *(["delta"] if has_delta and chance.random() < 0.33 else [])]

    def places(self, query: str, columns: list[str], output: str, order: str) -> list[Place]:
        found: list[Place] = []
        lasting = output == "append" and self.chance.random() < 0.2
        for number in range(self.chance.choice((1, 1, 2, 3))):
            kind = self.chance.choice(["table"] if lasting else self.kinds)
            if number == 0 and kind not in REMEMBERING:
                kind = "topic"  # one at least remembers
            if output == "complete" and self.chance.random() < 0.6:
                kind = "replace"
            found.append(self.place(kind, f"{query}{number}", columns, order, lasting))
        return found

    def has_condition(self, columns: list[str]) -> bool:
        return any(set(each.columns) <= set(columns) for each in conditions())

    def condition(self, columns: list[str]) -> Condition:
        return self.chance.choice([each for each in conditions() if set(each.columns) <= set(columns)])

    def place(self, kind: str, label: str, columns: list[str], order: str, lasting: bool) -> Place:
        chance = self.chance
        condition = self.condition(columns) if self.has_condition(columns) and chance.random() < 0.2 else None
        chosen = [name for name in columns if name in ("k", "n", "rows") or chance.random() < 0.7]
        is_chosen = bool(chosen) and chance.random() < 0.3
        common: Any = (label, chosen if is_chosen else columns, is_chosen, condition)
        server = chance.choice(self.servers)
        key = self.key(columns, order)
        if kind == "upsert" and key is not None:
            return self.upsert(common, columns, order, key, server)
        if kind in ("topic", "repeated"):
            delivery = "exactly-once" if kind == "topic" else "at-least-once"
            return Topic(*common, delivery=delivery, key="k" if "k" in common[1] and chance.random() < 0.5 else None)
        if kind == "files":
            return self.files(common)
        if kind == "delta":
            return Delta(*common)
        if kind == "http":
            return Served(*common, rows=chance.choice((1, 7, 500)), format=chance.choice(("json", "json-lines")))
        if kind == "replace":
            return Table(*common, mode="replace", server=server)
        return Table(*common, keep_offsets=lasting, server=server)

    def upsert(self, common: Any, columns: list[str], order: str, key: list[str], server: str) -> Place:
        chance = self.chance
        label, chosen, is_chosen, condition = common
        newest_by = chance.choice([None, "n"]) if "n" in columns and "n" not in key else None
        if order == "none" and newest_by is None:
            return Table(*common, server=server)
        if is_chosen:
            chosen = list(dict.fromkeys([*chosen, *key, *([newest_by] if newest_by else [])]))
        table = Table(
            label,
            chosen,
            is_chosen,
            condition,
            mode="upsert",
            key=tuple(key),
            newest_by=newest_by,
            server=server,
            is_ordered=order != "none",
        )
        if order == "topic" and newest_by is None and "n" in columns and chance.random() < 0.3:
            whole = next(each for each in conditions() if each.sql == "k IS NOT NULL")
            table.condition, table.delete_when = whole, chance.choice(conditions()[:2])
        return table

    def key(self, columns: list[str], order: str) -> list[str] | None:
        """Of an upsert: rows of one key come from one partition, for that is where `k` goes."""
        if "when" in columns:
            return None
        if order == "groups":
            spans = [name for name in ("window_start",) if name in columns]
            return [*spans, *(name for name in ("k", "tag") if name in columns)] or None
        return ["k"] if "k" in columns else None

    def files(self, common: Any) -> Place:
        label, columns, is_chosen, condition = common
        formats = ["parquet", "json"] if set(LISTS) & set(columns) else ["parquet", "json", "csv"]
        partition_by = "k" if "k" in columns and len(columns) > 1 and self.chance.random() < 0.3 else None
        return Files(label, columns, is_chosen, condition, self.chance.choice(formats), partition_by)
