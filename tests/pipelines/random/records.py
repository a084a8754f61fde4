"""Records of a case: most are good, some late, repeated, broken, empty or without key."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random

from tests.pipelines.random.rows import Values

START_MS = 1_767_225_600_000  # 2026-01-01
CLOSING_MS = 600_000  # no window is so long, and no watermark waits so long
KEYS = ("a", "b", "c", "d", "ä☃", 'q"u,o')
TAGS = ("red", "green", "blue")


@dataclass
class Record:
    """What is produced."""

    partition: int
    key: str | None
    value: str | None


class RecordMaker:
    """Time goes on from one to the next."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.id = 0
        self.now_ms = START_MS

    def some(self, partitions: int) -> list[Record]:
        """One, or twice the same."""
        chance = self.chance
        self.now_ms += chance.choice((0, 250, 1000, 3000, 9000))
        broken = chance.random()
        if broken < 0.08:
            return [self._broken(partitions)]
        self.id += 1
        at: int | None = self.now_ms - chance.choice((0, 0, 0, 1500, 15_000, 40_000))
        shift = chance.random()
        if shift < 0.06:
            at = self.now_ms - 900_000
        elif shift < 0.09:
            at = None
        elif shift < 0.1:
            at = self.now_ms + 300_000
        key = chance.choice((*KEYS, None))
        tags = chance.choice((None, [], ["red"], ["red", "blue"], list(TAGS)))
        value: Values = {"id": self.id if chance.random() < 0.95 else None, "k": key, "at": at and written_time(at)}
        value |= {"n": chance.choice((None, *range(10))), "tags": tags}
        record = Record(partition_of(key, partitions), key, json.dumps(value))
        return [record] * (2 if chance.random() < 0.1 else 1)

    def other(self, partitions: int) -> Record:
        """For the stream that is joined; its time is near that of the main one."""
        chance = self.chance
        if chance.random() < 0.08:
            return self._broken(partitions)
        since: int | None = self.now_ms - chance.choice((0, 0, 1000, 2500, 15_000, -4000))
        shift = chance.random()
        if shift < 0.05:
            since = self.now_ms - 900_000
        elif shift < 0.08:
            since = None
        key = chance.choice((*KEYS, None))
        value: Values = {"k": key, "w": chance.choice((None, *range(10))), "since": since and written_time(since)}
        return Record(partition_of(key, partitions), key, json.dumps(value))

    def closing(self, partitions: int) -> Record:
        """So far ahead of all others that every window before it is over; fit for both streams."""
        self.id += 1
        at = written_time(self.now_ms + CLOSING_MS)
        value: Values = {"id": self.id, "k": "a", "n": 1, "tags": ["red"], "at": at, "w": 1, "since": at}
        return Record(partition_of("a", partitions), "a", json.dumps(value))

    def city(self) -> Record:
        """For the stream that is a table: another city, none, or what is no city at all."""
        key = self.chance.choice(KEYS)
        city = self.chance.choice(("Oslo", "Rome", "Rome", None, "broken"))
        value = json.dumps({"k": key, "city": city}) if city not in (None, "broken") else city
        return Record(0, key, value)

    def _broken(self, partitions: int) -> Record:
        texts = ("hello", "", '{"id": "abc"}', '{"id": 1} {"id": 2}', '{"id": 7, "at": 1700000000}', "[1]", None, "{")
        return Record(self.chance.randrange(partitions), None, self.chance.choice(texts))


def partition_of(key: str | None, partitions: int) -> int:
    return 0 if key is None else KEYS.index(key) % partitions


def written_time(at_ms: int) -> str:
    seconds, rest = divmod(at_ms, 1000)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{rest:03}Z"
