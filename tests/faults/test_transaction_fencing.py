"""X3, X4: producers that are gone and producers that come back from the dead."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.group_calls import find_coordinator
from tests.conformance.peer import Peer
from tests.conformance.transaction_calls import TransactionCalls
from tests.conformance.waiting import eventually
from tests.faults.broker_deaths import FEW_INTERNAL_PARTITIONS
from tests.faults.crew import Crew, read_committed
from tests.faults.test_exactly_once import SETTINGS, make_topics
from tests.faults.test_transaction_steps import QUICK_EXPIRY, read_output, stable_offset
from tests.faults.transaction_clients import OUTPUT, PARTITIONS
from tests.faults.transaction_history import Logs, check_endings
from tests.faults.worker import INPUT

ZOMBIE, TWIN = "TransactionalWriter-0", "TransactionalWriter-0_twin"
TIMEOUT_MS = 1000
BrokerFactory = Callable[..., Any]


def leave_open(broker: Any, rounds: int) -> None:
    """Each round a producer is gone in the middle; behind it comes a record that a reader waits for."""
    with Peer(broker.bootstrap) as peer:
        peer.create_topic(OUTPUT, PARTITIONS)
        find_coordinator(peer, "gone", 1)
        for number in range(rounds):
            partition = number % PARTITIONS
            with Peer(broker.bootstrap) as doomed:
                calls = TransactionCalls(doomed, f"gone-{number}")
                who = calls.start(timeout_ms=TIMEOUT_MS)
                assert calls.produce(who, OUTPUT, 0, [b"never"], partition=partition).error_code == 0
            first = stable_offset(peer, partition)
            assert first < peer.end_offset(OUTPUT, partition), "its transaction is open"
            began = time.monotonic()
            is_free = lambda: stable_offset(peer, partition) == peer.end_offset(OUTPUT, partition)  # noqa: B023, E731
            assert eventually(is_free, TIMEOUT_MS / 1000 + 10), f"round {number}: readers are stuck"
            assert time.monotonic() - began > TIMEOUT_MS / 2000, "not before its time"
            assert TransactionCalls(peer, f"gone-{number}").describe().transaction_state == "CompleteAbort"
    assert not any(read_output(broker.bootstrap).values())
    broker.assert_no_traceback()


def test_a_producer_that_is_gone_blocks_readers_no_longer_than_its_timeout(broker_factory: BrokerFactory) -> None:
    leave_open(broker_factory(**FEW_INTERNAL_PARTITIONS, **QUICK_EXPIRY), 2)


@pytest.mark.faults
def test_thirty_abandoned_producers_block_no_client(broker_factory: BrokerFactory) -> None:
    leave_open(broker_factory(**FEW_INTERNAL_PARTITIONS, **QUICK_EXPIRY), 30)


def raise_zombies(broker: Any, folder: Path, rounds: int) -> None:
    """A writer is paused, another with its transactional id takes over, then the first one continues."""
    make_topics(broker)
    crew = Crew(broker.bootstrap, folder, 1)
    try:
        for _ in range(rounds):
            with one_more(folder, ZOMBIE, "aborted"):
                crew.start(ZOMBIE)
            time.sleep(crew.chance.uniform(0.0, 0.2))
            crew.send(ZOMBIE, signal.SIGSTOP)
            with one_more(folder, TWIN, "committed"):
                crew.start(TWIN)
            with one_more(folder, ZOMBIE, "problem"):
                crew.send(ZOMBIE, signal.SIGCONT)
            crew.end([TWIN], signal.SIGKILL)
            crew.end([ZOMBIE])
        logs = Logs(folder)
        stored = read_committed(broker.bootstrap)
        print(logs.summary(stored), len(logs.of("problem")), "times fenced")
        assert not (found := check_endings(logs.transactions(), stored)), found[:10]
        assert sum(len(stored[INPUT, index]) for index in range(3)) > 20
        broker.assert_no_traceback()
    finally:
        crew.discard()


@contextmanager
def one_more(folder: Path, name: str, kind: str) -> Iterator[None]:
    """Do something, and wait until a worker has written another event of this kind into its log."""

    def count() -> int:
        path = folder / f"{name}.log"
        return path.read_text().count(f'["{kind}",') if path.exists() else 0

    before = count()
    yield
    assert eventually(lambda: count() > before, 30.0), f"{name} was never {kind}"


def test_a_zombie_is_fenced(broker_factory: BrokerFactory, tmp_path: Path) -> None:
    raise_zombies(broker_factory(**SETTINGS), tmp_path / "logs", 1)


@pytest.mark.faults
def test_fifty_zombies_are_fenced(broker_factory: BrokerFactory, tmp_path: Path) -> None:
    raise_zombies(broker_factory(**SETTINGS), tmp_path / "logs", 50)


@pytest.mark.parametrize("version", [1, 2])
def test_a_fenced_producer_can_do_nothing_any_more(broker_factory: BrokerFactory, version: int) -> None:
    """INVALID_PRODUCER_EPOCH (47) for batches and offsets, PRODUCER_FENCED (90) for other steps; nothing is stored."""
    broker = broker_factory(**FEW_INTERNAL_PARTITIONS)
    produce, offsets, end = (11, 3, 4) if version == 1 else (12, 5, 5)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic(OUTPUT, PARTITIONS)
        find_coordinator(peer, "shared", 1)
        find_coordinator(peer, "group", 0)
        calls = TransactionCalls(peer, "shared")
        old = calls.start()
        if version == 1:
            calls.add(old, {OUTPUT: [0]})
        assert calls.produce(old, OUTPUT, 0, version=produce).error_code == 0
        new = calls.start()
        assert new.producer_id == old.producer_id
        stored = peer.end_offset(OUTPUT)
        assert calls.produce(old, OUTPUT, 1, version=produce).error_code == 47
        assert calls.produce(old, OUTPUT, 0, version=produce, partition=1).error_code == 47
        assert calls.add(old, {OUTPUT: [1]}) == {OUTPUT: {1: 90}}
        assert calls.add_offsets(old, "group") == 90
        assert calls.commit_offsets(old, "group", {OUTPUT: {0: 7}}, offsets)[OUTPUT][0] == 47
        assert calls.end(old, commit=True, version=end).error_code == 90
        assert peer.end_offset(OUTPUT) == stored
        assert peer.end_offset(OUTPUT, 1) == 0
    assert not any(read_output(broker.bootstrap).values())
