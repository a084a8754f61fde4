"""The answers that clients got during faults, and the promises that are checked against them afterwards.

The letters are those of the reliability list: D acknowledged means stored, U nothing twice for an idempotent producer,
O the order of each producer is kept in each partition, C one value per partition and offset for every reader, M a
tailing reader skips nothing and sees nothing that is gone later.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

Place = tuple[str, int]  # topic and partition
Stored = dict[Place, list[tuple[int, bytes]]]  # (offset, value) in the order in which they were read

EXAMPLES_MAX = 5


@dataclass
class Sent:
    """Everything about one producer."""

    is_idempotent: bool
    acknowledged: dict[Place, dict[bytes, int]] = field(default_factory=dict)  # value -> offset, -1 if unknown
    failures: dict[bytes, str] = field(default_factory=dict)  # value -> why the producer gave it up

    @property
    def acknowledged_count(self) -> int:
        return sum(len(values) for values in self.acknowledged.values())


class History:
    """Collects from many threads; values are `producer:number` with numbers that only rise in each partition."""

    def __init__(self) -> None:
        self.producers: dict[str, Sent] = {}
        self.seen: Stored = {}  # by the reader that follows
        self.problems: list[str] = []  # answers that must never occur
        self._lock = threading.Lock()

    def add_producer(self, name: str, *, is_idempotent: bool) -> None:
        self.producers[name] = Sent(is_idempotent)

    def acknowledge(self, place: Place, value: bytes, offset: int) -> None:
        sent = self.producers[producer_of(value)]
        with self._lock:
            sent.acknowledged.setdefault(place, {})[value] = offset

    def give_up(self, value: bytes, reason: object) -> None:
        with self._lock:
            self.producers[producer_of(value)].failures[value] = str(reason)

    def see(self, place: Place, offset: int, value: bytes) -> None:
        self.seen.setdefault(place, []).append((offset, value))

    def complain(self, problem: str) -> None:
        with self._lock:
            self.problems.append(problem)

    @property
    def acknowledged_count(self) -> int:
        with self._lock:
            return sum(sent.acknowledged_count for sent in self.producers.values())

    def __repr__(self) -> str:
        counts = {name: sent.acknowledged_count for name, sent in self.producers.items()}
        return f"<History acknowledged={counts} seen={sum(map(len, self.seen.values()))} problems={len(self.problems)}>"


def violations(history: History, stored: Stored) -> list[str]:
    """Every broken promise, in words; empty is what we want."""
    found = list(history.problems)
    by_offset = {place: dict(records) for place, records in stored.items()}
    for place, records in stored.items():
        found += check_offsets("C: the final read of", place, records)
        found += check_order(place, records)
    for name, sent in history.producers.items():
        for place, values in sent.acknowledged.items():
            found += check_acknowledged(name, place, values, by_offset.get(place, {}))
        if sent.is_idempotent:
            found += check_unique(name, stored)
    for place, records in history.seen.items():
        found += check_offsets("M: the reader of", place, records)
        found += check_seen(place, records, by_offset.get(place, {}))
    return found


def check_offsets(who: str, place: Place, records: list[tuple[int, bytes]]) -> list[str]:
    """Offsets start at 0 and have no gaps: these runs delete and compact nothing."""
    for expected, (offset, _) in enumerate(records):
        if offset != expected:
            return [f"{who} {place} got offset {offset} where {expected} was due"]
    return []


def check_order(place: Place, records: list[tuple[int, bytes]]) -> list[str]:
    """O: first occurrences of a producer's numbers rise (a producer without idempotence may repeat itself)."""
    highest: dict[str, int] = {}
    known: set[bytes] = set()
    for offset, value in records:
        producer, number = producer_of(value), number_of(value)
        if value not in known and number < highest.get(producer, -1):
            return [f"O: {place} has {value!r} at offset {offset} behind {producer}:{highest[producer]}"]
        known.add(value)
        highest[producer] = max(number, highest.get(producer, -1))
    return []


def check_acknowledged(name: str, place: Place, values: dict[bytes, int], by_offset: dict[int, bytes]) -> list[str]:
    there = set(by_offset.values())
    lost = sorted((offset, value) for value, offset in values.items() if value not in there)
    moved = [(o, v, by_offset.get(o)) for v, o in values.items() if o >= 0 and v in there and by_offset.get(o) != v]
    found = []
    if lost:
        found.append(f"D: {len(lost)} acknowledged values of {name} are lost from {place}: {shown(lost)}")
    if moved:
        found.append(
            f"C: {len(moved)} values of {name} are not where they were acknowledged in {place}: {shown(moved)}"
        )
    return found


def check_unique(name: str, stored: Stored) -> list[str]:
    prefix = f"{name}:".encode()
    found = []
    for place, records in stored.items():
        offsets: dict[bytes, list[int]] = {}
        for offset, value in records:
            if value.startswith(prefix):
                offsets.setdefault(value, []).append(offset)
        twice = [(value, places) for value, places in offsets.items() if len(places) > 1]
        if twice:
            found.append(f"U: {len(twice)} values of {name} occur more than once in {place}: {shown(twice)}")
    return found


def check_seen(place: Place, records: list[tuple[int, bytes]], by_offset: dict[int, bytes]) -> list[str]:
    gone = [(offset, value, by_offset.get(offset)) for offset, value in records if by_offset.get(offset) != value]
    return [f"M: {len(gone)} records of {place} were seen and are not there now: {shown(gone)}"] if gone else []


def producer_of(value: bytes) -> str:
    return value.partition(b":")[0].decode()


def number_of(value: bytes) -> int:
    return int(value.split(b":")[1])


def shown(examples: Iterable[object]) -> str:
    return ", ".join(str(example).replace("x" * 10, "") for example in list(examples)[:EXAMPLES_MAX])
