"""X1, X2, X3: the broker is killed at every step of a transaction, before, in the middle of and after the write.

A transaction ends the way that prepare says; without prepare its producer goes on, or it is aborted in time. Readers of
committed records see all of it or nothing, and none of them is ever stuck.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.conformance.group_calls import find_coordinator
from tests.conformance.peer import LATEST, Peer, list_offsets_request
from tests.conformance.raw import ConnectionClosedError
from tests.conformance.waiting import eventually
from tests.faults.broker_deaths import MortalBroker, mortal_broker
from tests.faults.loads import LIBRDKAFKA
from tests.faults.transaction_clients import (
    GROUP,
    OUTPUT,
    PARTITIONS,
    SOURCE,
    ConfluentTransactions,
    TransactionClient,
    VersionTwoTransactions,
    values_of,
)

BEFORE_PREPARE = [("ADD_PARTITIONS", 1), ("DATA", 2), ("ADD_OFFSETS", 1), ("OFFSETS", 1)]
MARKERS = [("MARKER", number) for number in range(1, PARTITIONS + 2)]  # one more for the group's offsets
COMMIT = [*BEFORE_PREPARE, ("PREPARE_COMMIT", 1), *MARKERS, ("COMPLETE_COMMIT", 1)]
ABORT = [("PREPARE_ABORT", 1), *MARKERS, ("COMPLETE_ABORT", 1)]
DECIDED = {"MARKER", "COMPLETE_COMMIT", "COMPLETE_ABORT"}
CLIENTS = {"librdkafka": ConfluentTransactions, "version 2": VersionTwoTransactions}
LSO_SECONDS_MAX = 10.0
QUICK_EXPIRY = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 200}
BrokerFactory = Callable[..., Any]
Death = tuple[str, int, str]


class TransactionRun:
    """The answers about each transaction, and what must be stored afterwards."""

    def __init__(self, mortal: MortalBroker) -> None:
        self.mortal = mortal
        self.number = 0
        self.committed: list[int] = []
        with Peer(mortal.bootstrap) as peer:
            peer.create_topic(OUTPUT, PARTITIONS)
            peer.create_topic(SOURCE)
            for key, key_type in ((GROUP, 0), ("mover", 1)):  # the first request creates the internal topics
                find_coordinator(peer, key, key_type)

    def live_through(self, client: TransactionClient, death: Death, *, is_commit: bool) -> None:
        """One transaction during which the broker dies and comes back."""
        self.number += 1
        self.mortal.arm(*death)
        with ThreadPoolExecutor(1) as executor:
            ending = executor.submit(client.run, self.number, is_commit=is_commit)
            self.mortal.start_again_after_death()
            is_committed = ending.result()
        assert is_committed == is_commit, (death, "the producer was told something else")
        self.note(death, is_committed)

    def be_abandoned(self, client: VersionTwoTransactions, death: Death, *, is_commit: bool) -> None:
        """The same with a producer that never comes back."""
        self.number += 1
        self.mortal.arm(*death)
        with pytest.raises((ConnectionClosedError, OSError)):
            client.run(self.number, is_commit=is_commit)
        self.mortal.start_again_after_death()
        is_decided = death[0] in DECIDED or (death[0].startswith("PREPARE") and death[2] == "after")
        self.note(death, is_commit and is_decided)

    def note(self, death: Death, is_committed: bool) -> None:
        if is_committed:
            self.committed.append(self.number)
        assert eventually(self.is_nothing_open, LSO_SECONDS_MAX), f"{death}: the last stable offset does not move"
        assert group_offset(self.mortal.bootstrap) == max(self.committed, default=-1001), death

    def is_nothing_open(self) -> bool:
        with Peer(self.mortal.bootstrap) as peer:
            return all(stable_offset(peer, index) == peer.end_offset(OUTPUT, index) for index in range(PARTITIONS))

    def check(self) -> None:
        stored = read_output(self.mortal.bootstrap)
        for partition in range(PARTITIONS):
            expected = [value for number in self.committed for value in values_of(number, partition)]
            assert stored[partition] == expected, f"T: partition {partition} after {self.mortal.deaths} deaths"
        self.mortal.broker.assert_no_traceback()
        print(f"{self.mortal.deaths} deaths, {self.number} transactions, {len(self.committed)} committed")


def stable_offset(peer: Peer, partition: int) -> int:
    request = list_offsets_request(OUTPUT, LATEST, partition, isolation_level=1)
    return int(peer.ask(request, 8).topics[0].partitions[0].offset)


def group_offset(bootstrap: str) -> int:
    """The group's place in SOURCE; waits while a transaction might still move it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, **LIBRDKAFKA})
    (place,) = consumer.committed([TopicPartition(SOURCE, 0)], timeout=20)
    consumer.close()
    assert place.error is None, place.error
    return int(place.offset)


def read_output(bootstrap: str) -> dict[int, list[bytes]]:
    options = {
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
    }
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", **options, **LIBRDKAFKA})
    consumer.assign([TopicPartition(OUTPUT, partition, 0) for partition in range(PARTITIONS)])
    found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    unread = set(found)
    while unread:
        for message in consumer.consume(1000, 0.02):
            if message.error() is None:
                found[message.partition() or 0].append(message.value() or b"")
            else:
                unread.discard(message.partition() or 0)
    consumer.close()
    return found


def run_all(mortal: MortalBroker, client_name: str, whens: list[str], rounds: int) -> None:
    run = TransactionRun(mortal)
    client: TransactionClient = CLIENTS[client_name](mortal.bootstrap, "mover")
    client.run(0, is_commit=True)
    run.committed.append(0)
    for number in range(rounds):
        for index, (step, nth) in enumerate(COMMIT):
            run.live_through(client, (step, nth, whens[(number + index) % len(whens)]), is_commit=True)
        for index, (step, nth) in enumerate(ABORT):
            run.live_through(client, (step, nth, whens[(number + index) % len(whens)]), is_commit=False)
    client.close()
    run.check()


def abandon_all(mortal: MortalBroker, whens: list[str], rounds: int, endings: list[bool]) -> None:
    run = TransactionRun(mortal)
    for number in range(rounds):
        for steps, is_commit in ((COMMIT if is_commit else ABORT, is_commit) for is_commit in endings):
            for index, (step, nth) in enumerate(steps):
                name = f"mover-{number}-{is_commit}-{index}"
                client = VersionTwoTransactions(mortal.bootstrap, name, timeout_ms=1000, is_stubborn=False)
                death = (step, nth, whens[(number + index) % len(whens)])
                run.be_abandoned(client, death, is_commit=is_commit)
                client.close()
    run.check()


@pytest.mark.parametrize("client_name", CLIENTS)
def test_a_kill_at_every_step_changes_no_ending(
    broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, client_name: str
) -> None:
    run_all(mortal_broker(broker_factory, monkeypatch, tmp_path), client_name, ["after", "half", "before"], 1)


@pytest.mark.faults
@pytest.mark.parametrize("client_name", CLIENTS)
def test_many_kills_at_every_step_change_no_ending(
    broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, client_name: str
) -> None:
    run_all(mortal_broker(broker_factory, monkeypatch, tmp_path), client_name, ["after", "half", "before"], 20)


def test_a_producer_that_is_gone_leaves_what_prepare_says(
    broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    abandon_all(mortal_broker(broker_factory, monkeypatch, tmp_path, **QUICK_EXPIRY), ["after"], 1, [True])


@pytest.mark.faults
def test_many_producers_that_are_gone_leave_what_prepare_says(
    broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mortal = mortal_broker(broker_factory, monkeypatch, tmp_path, **QUICK_EXPIRY)
    abandon_all(mortal, ["after", "half", "before"], 20, [True, False])
