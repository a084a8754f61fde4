"""Transactional producers that do not give up: each runs whole transactions and says how they ended.

A transaction of these tests writes two values to every partition of OUTPUT and moves the group's place in SOURCE.
"""

import time
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import Producer as ConfluentProducer
from tests.conformance.peer import Peer
from tests.conformance.raw import ConnectionClosedError
from tests.conformance.transaction_calls import Producer, TransactionCalls
from tests.faults.loads import LIBRDKAFKA
from tests.faults.worker import within

OUTPUT, SOURCE, GROUP = "output", "source", "copiers"
PARTITIONS = 3
VALUES_EACH = 2
PATIENCE_SECONDS = 60.0
# When no broker is left, librdkafka forgets them all by default and then waits in send_offsets_to_transaction() for a
# group coordinator that it will never ask again (its issue 5511): with a single broker this has to be switched off.
LONE_BROKER = {**LIBRDKAFKA, "metadata.recovery.strategy": "none"}
# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS,
# UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (a produce that finds no coordinator)
AGAIN = frozenset({14, 15, 16, 51, 3, 6, 19})


class TransactionClient(Protocol):
    def run(self, number: int, *, is_commit: bool) -> bool:
        """Transaction `number`, to its end; whether it was committed."""

    def close(self) -> None: ...


def values_of(number: int, partition: int) -> list[bytes]:
    return [b"%06d:%d:%d" % (number, partition, each) for each in range(VALUES_EACH)]


class ConfluentTransactions:
    """librdkafka: transaction version 1, partitions and offsets are added by the client."""

    def __init__(
        self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000, *, moves_group: bool = True
    ) -> None:
        self._moves_group = moves_group
        self._producer = ConfluentProducer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 1,
                "retry.backoff.ms": 20,
                **LONE_BROKER,
            }
        )
        self._producer.init_transactions(PATIENCE_SECONDS)
        self._group = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, **LONE_BROKER})
        self._metadata = self._group.consumer_group_metadata()

    def run(self, number: int, *, is_commit: bool) -> bool:
        self._producer.begin_transaction()
        for partition in range(PARTITIONS):
            for value in values_of(number, partition):
                self._producer.produce(OUTPUT, value, partition=partition)
        self._producer.flush(PATIENCE_SECONDS)
        try:
            if self._moves_group:
                place = [TopicPartition(SOURCE, 0, number)]
                send = self._producer.send_offsets_to_transaction
                within(2 * PATIENCE_SECONDS, self._retry, send, place, self._metadata, 30.0)
            if is_commit:
                self._retry(self._producer.commit_transaction, 30.0)
                return True
        except KafkaException as problem:
            if not problem.args[0].txn_requires_abort():
                raise
        self._retry(self._producer.abort_transaction, 30.0)
        return False

    def _retry(self, call: Any, *arguments: Any) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return call(*arguments)
            except KafkaException as problem:
                if not problem.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def close(self) -> None:
        self._group.close()


class VersionTwoTransactions:
    """Transaction version 2 as Java's producer speaks it: the broker adds partitions, each transaction has an epoch.

    Without `is_stubborn` it is gone for ever with its connection, as a producer that was killed.
    """

    def __init__(
        self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000, *, is_stubborn: bool = True
    ) -> None:
        self._bootstrap = bootstrap
        self._is_stubborn = is_stubborn
        self._calls = TransactionCalls(Peer(bootstrap), transactional_id)
        self._who = self._calls.start(timeout_ms=timeout_ms)

    def run(self, number: int, *, is_commit: bool) -> bool:
        for partition in range(PARTITIONS):
            self._ask(lambda: self._send(number, partition))  # noqa: B023 (called at once)
        self._ask(lambda: self._calls.commit_offsets(self._who, GROUP, {SOURCE: {0: number}})[SOURCE][0])
        self._ask(lambda: self._end(is_commit))
        return is_commit

    def _send(self, number: int, partition: int) -> int:
        values = values_of(number, partition)
        return int(self._calls.produce(self._who, OUTPUT, 0, values, partition=partition).error_code)

    def _end(self, is_commit: bool) -> int:
        answer = self._calls.end(self._who, commit=is_commit)
        if answer.error_code == 0:
            self._who = Producer(answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)

    def _ask(self, call: Any) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (error := self._answer(call)) in AGAIN:
            assert time.monotonic() < deadline, error
            time.sleep(0.02)
        assert error == 0, error

    def _answer(self, call: Any) -> int:
        try:
            return int(call())
        except (ConnectionClosedError, OSError):
            if not self._is_stubborn:
                raise
            self._connect()
            return min(AGAIN)

    def _connect(self) -> None:
        try:
            self._calls.peer = Peer(self._bootstrap)
        except OSError:
            time.sleep(0.05)

    def close(self) -> None:
        self._calls.peer.connection.close()
