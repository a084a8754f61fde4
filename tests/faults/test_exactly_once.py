"""A checker after the manner of Jepsen over produce, consume and transactions: X3, X4, X7, X8, I2, G.

Writers, tellers, copiers, readers and a follower are processes of their own. They and the broker are killed, stopped in
an orderly way, and held still for longer than their session; in the end everything that was promised must be there.
"""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.conformance.peer import Peer
from tests.faults.crew import Crew, group_places, wait_for_copies
from tests.faults.transaction_history import Logs, transaction_violations
from tests.faults.worker import INPUT, LEDGER, OUTPUT, PARTITIONS, READERS

SETTINGS = {
    "offsets_topic_num_partitions": 3,
    "transaction_state_log_num_partitions": 3,
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 500,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 500,
    "log_initial_task_delay_ms": 50,
    "log_flush_offset_checkpoint_interval_ms": 100,
}
BrokerFactory = Callable[..., Any]


def make_topics(broker: Any) -> None:
    with Peer(broker.bootstrap) as peer:
        for topic in (INPUT, OUTPUT, LEDGER):
            peer.create_topic(topic, PARTITIONS)


def check(broker: Any, folder: Path, faults: list[str], seed: int) -> None:
    make_topics(broker)
    crew = Crew(broker.bootstrap, folder, seed)
    try:
        for name in ("Follower-0", "TransactionalWriter-0", "TransactionalWriter-1", "Teller-0", "Teller-1"):
            crew.start(name)
        for name in ("Copier-0", "Copier-1", "GroupReader-0", "GroupReader-1"):
            crew.start(name)
        time.sleep(1)
        for fault in faults:
            time.sleep(crew.chance.uniform(0.3, 1.5))
            crew.disturb(broker, fault)
        time.sleep(1)
        crew.end(crew.names("Transactional", "Teller"))
        stored = wait_for_copies(broker.bootstrap)
        time.sleep(0.5)  # for the follower's last look
        crew.end(crew.names("Copier", "GroupReader", "Follower"))
        logs = Logs(folder)
        found = transaction_violations(logs, stored, group_places(broker.bootstrap, READERS))
        summary = f"{crew.faults}: {logs.summary(stored)}"
        print(summary)
        assert not found, "\n".join([summary, *found[:20]])
        assert len(stored[INPUT, 0]) > 10, summary
        assert not [path for path in folder.glob("*.err") if "Traceback" in path.read_text()], "a worker has died"
        broker.assert_no_traceback()
    finally:
        crew.discard()


def test_nothing_that_was_promised_is_broken_by_kills(broker_factory: BrokerFactory, tmp_path: Path) -> None:
    faults = ["kill broker", "kill worker", "freeze worker", "kill broker", "stop broker", "stop worker", "kill broker"]
    check(broker_factory(**SETTINGS), tmp_path / "logs", faults, 1)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(3))
def test_nothing_that_was_promised_is_broken_by_many_kills(
    broker_factory: BrokerFactory, tmp_path: Path, seed: int
) -> None:
    kinds = ["kill broker", "kill broker", "stop broker", "kill worker", "stop worker", "freeze worker"]
    chance = random.Random(seed)
    check(broker_factory(**SETTINGS), tmp_path / "logs", [chance.choice(kinds) for _ in range(60)], seed)


@pytest.mark.faults
@pytest.mark.parametrize("bounce", ["kill broker", "stop broker", "kill worker", "stop worker"])
def test_a_hundred_thousand_records_are_copied_exactly_once(
    broker_factory: BrokerFactory, tmp_path: Path, bounce: str
) -> None:
    """X7: transactions of 750 records, broker or copiers bounced three times, in an orderly way and not."""
    broker = broker_factory(**SETTINGS)
    make_topics(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(100_000):
        producer.produce(INPUT, f"loader:{number}:", partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.flush(30)
    assert producer.flush(30) == 0
    crew = Crew(broker.bootstrap, tmp_path / "logs", 1)
    try:
        crew.start("Copier-0")
        crew.start("Copier-1")
        for _ in range(3):
            time.sleep(1.5)
            crew.disturb(broker, bounce)
        stored = wait_for_copies(broker.bootstrap)
        crew.end(crew.names("Copier"))
        logs = Logs(crew.folder)
        print(bounce, logs.summary(stored))
        assert not transaction_violations(logs, stored, {})
        assert sum(len(stored[OUTPUT, index]) for index in range(PARTITIONS)) == 100_000
        broker.assert_no_traceback()
    finally:
        crew.discard()
