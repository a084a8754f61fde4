"""What workers (worker.py) have written into their logs, and the promises that are checked against it.

The letters are those of the reliability list: A aborted records are never seen, T all of a transaction or nothing, U
nothing twice, O order, E what was copied is what was there, G a group's offset never passes a record that no reader
saw, M a reader skips nothing and sees nothing that is gone later.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.history import Place, Stored, shown
from tests.faults.worker import INPUT, LEDGER, OUTPUT, PARTITIONS

Event = list[Any]


class Transaction(NamedTuple):
    """One transaction as its writer knows it: `ending` is empty when the writer was killed in it."""

    writer: str
    number: int
    records: list[tuple[Place, bytes]]
    ending: str


class Logs:
    """The logs of all workers, by name."""

    def __init__(self, folder: Path) -> None:
        self.events: dict[str, list[Event]] = {path.stem: read_log(path) for path in sorted(folder.glob("*.log"))}

    def transactions(self) -> list[Transaction]:
        found = []
        for writer, events in self.events.items():
            endings = {event[1]: event[0] for event in events if event[0] in ("committed", "aborted", "unknown")}
            for _, number, _, records in (event for event in events if event[0] == "begin"):
                placed = [((topic, partition), value.encode()) for topic, partition, value in records]
                found.append(Transaction(writer, number, placed, endings.get(number, "")))
        return found

    def of(self, kind: str) -> list[tuple[str, Event]]:
        return [(worker, event) for worker, events in self.events.items() for event in events if event[0] == kind]

    def summary(self, stored: Stored) -> str:
        endings = Counter(each.ending or "killed" for each in self.transactions())
        copies = Counter(event[0] for name, events in self.events.items() if "Copier" in name for event in events)
        records = {topic: sum(len(rows) for place, rows in stored.items() if place[0] == topic) for topic, _ in stored}
        return (
            f"transactions {dict(endings)}, copies {dict(copies)}, committed records {records}, "
            f"seen {len(self.of('seen'))}, places committed {len(self.of('place'))}, sums {len(self.of('sum'))}"
        )


def read_log(path: Path) -> list[Event]:
    """A kill may have cut the last line of a process; the next process went on behind it."""
    events = []
    for line in path.read_text().splitlines():
        try:
            events.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return events


def transaction_violations(logs: Logs, stored: Stored, places: dict[int, int]) -> list[str]:
    """Every broken promise; `stored` is a final read of committed records, `places` are the readers' offsets."""
    found = [f"{worker} was told {event[1]}" for worker, event in logs.of("problem") if worker.startswith("Follower")]
    found += check_endings(logs.transactions(), stored)
    found += check_copies(stored)
    found += check_readers(logs, stored)
    found += check_group(logs, stored, places)
    found += [f"X8: {worker} saw a sum of {event[3]}: {event}" for worker, event in logs.of("sum") if event[3] != 0]
    return found


def check_endings(transactions: list[Transaction], stored: Stored) -> list[str]:
    found = []
    where = {(place, value): offset for place, rows in stored.items() for offset, value in rows}
    for place, rows in stored.items():
        twice = [value for value, count in Counter(value for _, value in rows).items() if count > 1]
        if twice and place[0] != LEDGER:
            found.append(f"U: {len(twice)} values occur more than once in {place}: {shown(twice)}")
    last: dict[tuple[str, Place], int] = {}
    for each in transactions:
        offsets = [(place, where.get((place, value), -1)) for place, value in each.records]
        there = sum(offset >= 0 for _, offset in offsets)
        if each.ending == "aborted" and there:
            found.append(f"A: aborted but there: {each}")
        elif each.ending == "committed" and there < len(offsets):
            found.append(f"D: committed but lost: {each}")
        elif 0 < there < len(offsets):
            found.append(f"T: {there} of {len(offsets)} records of {each}")
        if there and offsets[0][0][0] != LEDGER:  # equal bookings have no order
            for place, offset in offsets:
                if offset < last.get((each.writer, place), -1):
                    found.append(f"O: {each.writer} {each.number} is out of order in {place}")
                last[each.writer, place] = offset
    return found


def check_copies(stored: Stored) -> list[str]:
    found = []
    for partition in range(PARTITIONS):
        there = [value for _, value in stored[INPUT, partition]]
        copied = [value for _, value in stored[OUTPUT, partition]]
        if there != copied:
            differing = (index for index, (one, other) in enumerate(zip(there, copied, strict=False)) if one != other)
            found.append(
                f"E: partition {partition}: {len(there)} records, {len(copied)} copies, "
                f"lost {shown(sorted(set(there) - set(copied)))}, extra {shown(sorted(set(copied) - set(there)))}, "
                f"first difference at {next(differing, -1)}"
            )
    return found


def check_readers(logs: Logs, stored: Stored) -> list[str]:
    """A reader of committed records sees the final state; a tailing reader sees it from the start, in order."""
    found = []
    by_offset = {place: dict(rows) for place, rows in stored.items()}
    for worker, events in logs.events.items():
        seen: dict[Place, list[tuple[int, bytes]]] = {}
        for _, topic, partition, offset, value in (event for event in events if event[0] == "seen"):
            seen.setdefault((topic, partition), []).append((offset, value.encode()))
        for place, rows in seen.items():
            wrong = [row for row in rows if by_offset[place].get(row[0]) != row[1]]
            if wrong:
                found.append(f"A, M: {worker} saw in {place} what is not there: {shown(wrong)}")
            if worker.startswith("Follower") and rows != stored[place][: len(rows)]:
                found.append(f"M: {worker} skipped or repeated something in {place}")
    return found


def check_group(logs: Logs, stored: Stored, places: dict[int, int]) -> list[str]:
    found = []
    seen = {(event[2], event[3]) for worker, event in logs.of("seen") if worker.startswith("GroupReader")}
    for partition, place in places.items():
        unseen = [
            offset for offset, _ in stored[INPUT, partition] if offset < place and (partition, offset) not in seen
        ]
        if unseen:
            found.append(f"G: the group is at {place} of partition {partition}, no reader saw {shown(unseen)}")
        told = max((event[2] for _, event in logs.of("place") if event[1] == partition), default=0)
        if told > place:
            found.append(f"G: place {told} of partition {partition} was acknowledged, now it is {place}")
    return found
