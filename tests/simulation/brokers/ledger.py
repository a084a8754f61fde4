"""What was promised to clients, and what they saw: every broken promise of the cluster's data is found here.

Rules of the data:
1. A record that was acknowledged is there at the end, once, at its offset, in the order of its producer.
2. What a consumer has seen at an offset is what every consumer sees there, for ever.
3. A transaction is seen by read_committed as a whole or not at all: not if it was aborted or never committed.
4. The committed offset of a group does not go back.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.simulation.brokers.world import World

Place = tuple[str, int]  # topic, partition


class Sent(NamedTuple):
    """The producer of a record and its sequence number, as its value says."""

    producer: str
    number: int


class Transaction:
    """What one transaction was to do, and what its producer knows of its end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.written: list[tuple[Place, str]] = []  # values that the brokers have acknowledged
        self.outcome: bool | None = None  # committed, aborted, or unknown

    def __repr__(self) -> str:
        return f"<Transaction {self.name} {self.outcome}>"


class Ledger:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.acked: dict[Place, dict[int, str]] = {}  # offset -> value
        self.seen: dict[Place, dict[int, str]] = {}
        self.transactions: dict[str, Transaction] = {}
        self.committed_view: dict[Place, dict[int, str]] = {}  # what read_committed saw
        self.floors: dict[tuple[str, Place], int] = {}  # group and partition -> the offset that was committed
        self.owners: dict[tuple[str, int, int], str] = {}
        self.acked_count = 0

    def note_ack(self, place: Place, offset: int, value: str) -> None:
        acked = self.acked.setdefault(place, {})
        before = acked.setdefault(offset, value)
        if before != value:
            self._world.break_(f"{place}: {before} and {value} were both acknowledged at offset {offset}")
        self.acked_count += 1
        self._compare(place, offset, value)

    def note_seen(self, reader: str, place: Place, offset: int, value: str, *, is_committed: bool) -> None:
        self._compare(place, offset, value)
        self.seen.setdefault(place, {})[offset] = value
        if is_committed:
            self.committed_view.setdefault(place, {})[offset] = value
            if value.startswith("t"):
                self._check_transaction(reader, place, offset, value)

    def _compare(self, place: Place, offset: int, value: str) -> None:
        seen = self.seen.get(place, {}).get(offset)
        if seen is not None and seen != value:
            self._world.break_(f"{place}: {value} at offset {offset}, where {seen} was seen before")
        acked = self.acked.get(place, {}).get(offset)
        if acked is not None and acked != value:
            self._world.break_(f"{place}: {value} is at offset {offset}, where {acked} was acknowledged")

    def _check_transaction(self, reader: str, place: Place, offset: int, value: str) -> None:
        transaction = self.transactions[value.rpartition("/")[0]]
        if transaction.outcome is False:
            self._world.break_(f"{reader} sees {value} at {place} {offset}, which was aborted")

    # ---- groups

    def note_commit(self, group: str, place: Place, offset: int) -> None:
        self.floors[group, place] = max(offset, self.floors.get((group, place), 0))

    def note_fetched_offset(self, group: str, place: Place, offset: int, floor: int) -> None:
        """`floor` is what was committed for sure before the question was asked."""
        if offset < floor:
            self._world.break_(f"group {group} has {offset} for {place}, after {floor} was committed")

    def note_owner(self, group: str, generation: int, partition: int, member: str) -> None:
        owner = self.owners.setdefault((group, generation, partition), member)
        if owner != member:
            self._world.break_(f"{owner} and {member} both own {partition} in generation {generation} of {group}")

    def floor(self, group: str, place: Place) -> int:
        return self.floors.get((group, place), 0)

    # ---- the end

    def check_log(self, place: Place, log: dict[int, str]) -> None:
        """All that a partition holds (without markers), as read at the end by read_uncommitted."""
        for offset, value in self.acked.get(place, {}).items():
            if log.get(offset) != value:
                self._world.break_(f"{place}: {value} was acknowledged at {offset}, where {log.get(offset)} is now")
        last: dict[str, int] = {}
        for offset in sorted(log):
            producer, _, number = log[offset].rpartition("/")
            if int(number) <= last.get(producer, -1):
                self._world.break_(f"{place}: {log[offset]} at {offset} comes after {producer}/{last[producer]}")
            last[producer] = int(number)

    def check_transactions(self, committed: dict[Place, dict[int, str]]) -> None:
        """`committed` is all that read_committed sees at the end."""
        there: dict[str, set[str]] = {}
        for log in committed.values():
            for value in log.values():
                if value.startswith("t"):
                    there.setdefault(value.rpartition("/")[0], set()).add(value)
        for name, transaction in self.transactions.items():
            values = {value for _, value in transaction.written}
            found = there.get(name, set())
            if transaction.outcome is False and found:
                self._world.break_(f"{name} was aborted, and read_committed sees {sorted(found)}")
            if (transaction.outcome is True or found) and not values <= found:
                self._world.break_(f"{name}: of {sorted(values)} read_committed sees only {sorted(found)}")

    def check_counts(self, committed: dict[Place, dict[int, str]], final: dict[str, int]) -> None:
        """Every count below the group's committed offset was written by one transaction, and none above."""
        writers: dict[str, dict[int, set[str]]] = {name: {} for name in final}
        for log in committed.values():
            for value in log.values():
                if value.startswith("t"):
                    name, count, _ = value[1:].rpartition("/")[0].split(".")
                    writers[name].setdefault(int(count), set()).add(value.rpartition("/")[0])
        for name, by_count in writers.items():
            for count, found in by_count.items():
                if len(found) > 1:
                    self._world.break_(f"count {count} of {name} was written by {sorted(found)}")
            if sorted(by_count) != list(range(final[name])):
                self._world.break_(f"{name} has committed {final[name]}, and wrote {sorted(by_count)}")
