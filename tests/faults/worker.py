"""A client in a process of its own, so that it can be killed: `python worker.py KIND BOOTSTRAP NAME LOG [PARTITION]`.

Its actions and the answers go to its log, one JSON list a line, each before the next step is taken: a worker
that was killed is known up to its last line. SIGTERM lets it finish what it has begun.
"""

import contextlib
import json
import os
import queue
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ottla.cli.librdkafka import is_coordinator_error, rejoin_group

INPUT, OUTPUT, LEDGER = "input", "output", "ledger"
COPIERS, READERS = "copiers", "readers"
PARTITIONS = 3
SESSION_MS = 2000
COPIED_AT_ONCE = 750
STEP_SECONDS_MAX = 20.0
CLIENT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "log_level": 0,
    "error_cb": lambda _: None,
    "metadata.recovery.strategy": "none",  # see transaction_clients.py
}

SECURITY = "OTTLA_FAULTS_SECURITY"  # the variable that tells how to log in, by bootstrap.servers


def security_of(bootstrap: str) -> dict[str, str]:
    """The settings of librdkafka for the login."""
    found: dict[str, str] = json.loads(os.environ.get(SECURITY, "{}")).get(bootstrap, {})
    return found


class Worker:
    """What all kinds share: a log, the wish to stop, and transactions that do not give up."""

    def __init__(self, bootstrap: str, name: str, log: Path, partition: int) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.transactional_id = name.partition("_")[0]  # `Copier-0_twin` takes the place of `Copier-0`
        self.partition = partition
        self.random = random.Random(f"{name} {time.time_ns()}")
        self.is_stopping = False
        earlier = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        self.next_number = 1 + max((event[1] for event in earlier if event[0] == "begin"), default=-1)
        self._log = log.open("a", buffering=1)
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "is_stopping", True))

    def note(self, *event: object) -> None:
        self._log.write(json.dumps(event) + "\n")

    def run(self) -> None:
        raise NotImplementedError

    # ---- transactions

    def new_producer(self) -> Producer:
        """Restarted until it is ready: a predecessor's transaction is aborted first."""
        while True:
            producer = Producer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "transactional.id": self.transactional_id,
                    "transaction.timeout.ms": 5000,
                    "linger.ms": 1,
                    **CLIENT,
                    **security_of(self.bootstrap),
                }
            )
            try:
                retry(producer.init_transactions, STEP_SECONDS_MAX)
            except KafkaException as problem:
                self.note("no producer", str(problem))
                continue
            return producer

    def end(self, producer: Producer, *, is_commit: bool) -> str:
        """How it ended: committed, aborted, or unknown because the producer is of no use any more."""
        try:
            if is_commit:
                retry(producer.commit_transaction, STEP_SECONDS_MAX)
                return "committed"
        except KafkaException as problem:
            if not problem.args[0].txn_requires_abort():
                self.note("problem", str(problem))
                return "unknown"
        return self.abort(producer)

    def abort(self, producer: Producer) -> str:
        """Not with records under way: librdkafka would give their sequence numbers, which are used up if their answer
        was lost, to the next transaction, and any broker takes that for a repetition.
        """
        try:
            producer.flush(STEP_SECONDS_MAX)
            retry(producer.abort_transaction, STEP_SECONDS_MAX)
        except KafkaException as problem:
            self.note("problem", str(problem))
            return "unknown"
        return "aborted"


class TransactionalWriter(Worker):
    """Transactions over some partitions of INPUT, or two bookings that add up to nothing; a quarter is taken back."""

    def run(self) -> None:
        producer = self.new_producer()
        while not self.is_stopping:
            number, self.next_number = self.next_number, self.next_number + 1
            is_commit = self.random.random() < 0.75
            records = list(self.records(number))
            self.note("begin", number, is_commit, records)
            ending = self.write(producer, records, is_commit)
            self.note(ending, number)
            if ending == "unknown":
                producer = self.new_producer()

    def write(self, producer: Producer, records: list[tuple[str, int, str]], is_commit: bool) -> str:
        try:
            producer.begin_transaction()
            for topic, partition, value in records:
                producer.produce(topic, value, partition=partition)
                if self.random.random() < 0.2:
                    producer.flush(0.05)  # so that a transaction has several batches
        except KafkaException as problem:  # fenced
            self.note("problem", str(problem))
            return "unknown"
        return self.end(producer, is_commit=is_commit)

    def records(self, number: int) -> Iterator[tuple[str, int, str]]:
        for index in range(self.random.randint(1, 8)):
            yield INPUT, self.random.randrange(PARTITIONS), f"{self.name}:{number}:{index}"


class Teller(TransactionalWriter):
    """Moves money between accounts of one ledger: what comes from one goes to others."""

    def records(self, number: int) -> Iterator[tuple[str, int, str]]:
        amounts = [self.random.randint(1, 100) for _ in range(self.random.randint(1, 3))]
        for amount in (*amounts, -sum(amounts)):
            yield LEDGER, self.partition, f"{self.name}:{number}:{self.random.randrange(10)}:{amount}"


class Copier(Worker):
    """Consume, produce, commit the place: all in one transaction (exactly once)."""

    def run(self) -> None:
        consumer = self.new_consumer()
        producer = self.new_producer()
        while not self.is_stopping:
            messages = consume(consumer, COPIED_AT_ONCE)
            if not messages:
                continue
            ending = self.copy(consumer, producer, messages)
            self.note(ending, len(messages))
            if ending == "unknown":
                producer = self.new_producer()
            if ending != "committed":
                go_back(consumer)
        consumer.close()

    def new_consumer(self) -> Consumer:
        consumer = Consumer(group_settings(self.bootstrap, COPIERS))
        consumer.subscribe([INPUT])
        return consumer

    def copy(self, consumer: Consumer, producer: Producer, messages: list[Message]) -> str:
        places = {message.partition() or 0: (message.offset() or 0) + 1 for message in messages}
        offsets = [TopicPartition(INPUT, partition, offset) for partition, offset in places.items()]
        try:
            producer.begin_transaction()
            for message in messages:
                producer.produce(OUTPUT, message.value() or b"", partition=message.partition() or 0)
            metadata = consumer.consumer_group_metadata()
            within(STEP_SECONDS_MAX, retry, producer.send_offsets_to_transaction, offsets, metadata, STEP_SECONDS_MAX)
        except KafkaException as problem:
            return self.abort(producer) if problem.args[0].txn_requires_abort() else "unknown"
        except TimeoutError as problem:
            self.note("problem", str(problem))
            return "unknown"
        return self.end(producer, is_commit=self.random.random() < 0.9)


class GroupReader(Worker):
    """At least once: what it has seen goes to its log before its place is committed."""

    def run(self) -> None:
        consumer = Consumer(group_settings(self.bootstrap, READERS))
        consumer.subscribe([INPUT])
        while not self.is_stopping:
            places: dict[int, int] = {}
            for message in consume(consumer, 50):
                partition, offset = message.partition() or 0, message.offset() or 0
                self.note("seen", INPUT, partition, offset, (message.value() or b"").decode())
                places[partition] = offset + 1
            if places:
                self.commit(consumer, places)
        consumer.close()

    def commit(self, consumer: Consumer, places: dict[int, int]) -> None:
        offsets = [TopicPartition(INPUT, partition, offset) for partition, offset in places.items()]
        try:
            done = consumer.commit(offsets=offsets, asynchronous=False) or []
        except KafkaException:
            return  # lost its partitions, or no broker is up: the next owner reads from the last offset
        for place in done:
            if place.error is None:
                self.note("place", place.partition, place.offset)


class Follower(Worker):
    """Reads committed records of all topics for itself, and the sum of each ledger whenever it is at its end."""

    def run(self) -> None:
        consumer = Consumer({**group_settings(self.bootstrap, "nobody"), "enable.partition.eof": True})
        topics = (INPUT, OUTPUT, LEDGER)
        consumer.assign([TopicPartition(topic, partition, 0) for topic in topics for partition in range(PARTITIONS)])
        sums = dict.fromkeys(range(PARTITIONS), 0)
        while not self.is_stopping:
            for message in consumer.consume(500, 0.1):
                self.take(message, sums)
        consumer.close()

    def take(self, message: Message, sums: dict[int, int]) -> None:
        topic, partition, offset = message.topic(), message.partition() or 0, message.offset() or 0
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            if topic == LEDGER:
                self.note("sum", partition, offset, sums[partition])
        elif error is not None:
            self.note("problem", str(error))
        else:
            value = (message.value() or b"").decode()
            self.note("seen", topic, partition, offset, value)
            if topic == LEDGER:
                sums[partition] += int(value.rpartition(":")[2])


def group_settings(bootstrap: str, group: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": 300,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 20,
        **CLIENT,
        **security_of(bootstrap),
    }


def consume(consumer: Consumer, count: int, topic: str = INPUT) -> list[Message]:
    """The next records of a member of a group; what came when it had to join again is read again."""
    messages = consumer.consume(count, 0.1)
    if any(is_coordinator_error(error) for each in messages if (error := each.error()) is not None):
        while not rejoin_group(consumer, [topic]):
            time.sleep(0.05)
        return []
    return [each for each in messages if each.error() is None]


def go_back(consumer: Consumer) -> None:
    """Read again what an aborted transaction has read; what is not ours any more begins at the committed place."""
    while True:
        try:
            assigned = consumer.assignment()
            places = consumer.committed(assigned, STEP_SECONDS_MAX) if assigned else []
        except KafkaException:
            time.sleep(0.05)
            continue
        for place in places:
            with contextlib.suppress(KafkaException):
                consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))
        return


def retry(call: Any, *arguments: Any) -> None:
    while True:
        try:
            return call(*arguments)
        except KafkaException as problem:
            if not problem.args[0].retriable():
                raise
            time.sleep(0.02)


def within(seconds_max: float, call: Any, *arguments: Any) -> None:
    """In a thread that can be done without: librdkafka minds no time in send_offsets_to_transaction(), and waits for
    ever for a coordinator that has left the cluster (its issues 5456 and 5511). A next producer ends what was begun.
    """
    outcome: queue.SimpleQueue[KafkaException | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            call(*arguments)
        except KafkaException as problem:
            outcome.put(problem)
        else:
            outcome.put(None)

    threading.Thread(target=run, daemon=True).start()
    try:
        problem = outcome.get(timeout=seconds_max)
    except queue.Empty:
        raise TimeoutError(f"librdkafka does not return within {seconds_max:g} s") from None
    if problem is not None:
        raise problem


KINDS = {kind.__name__: kind for kind in (TransactionalWriter, Teller, Copier, GroupReader, Follower)}

if __name__ == "__main__":
    arguments = sys.argv[1:]
    KINDS[arguments[0]](arguments[1], arguments[2], Path(arguments[3]), int(arguments[4])).run()
