"""Exactly once from topic to topic with confluent-kafka: results and positions are committed in one transaction.

A reader with `isolation.level=read_committed` finds the result of every message once, even if this process crashes:
a committed transaction contains results and positions, an aborted one neither, and the next process starts at the old
position.
"""

from collections.abc import Callable
from threading import Event

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from examples.consumers.positions import checked, places_after

BATCH_MAX = 500
WAIT_SECONDS = 0.2
TRANSACTION_SECONDS_MAX = 30.0

Transform = Callable[[Message], bytes]


class ExactlyOnce:
    """Reads `source`, writes the result of `transform` for each message to `target`.

    `name` is the transactional id: the same after a restart, so that the new process fences the old one and ends
    its open transaction; each process of the group needs its own.
    """

    def __init__(self, bootstrap: str, group: str, name: str, source: str, target: str, transform: Transform) -> None:
        self.target = target
        self.transform = transform
        self.producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self.consumer.subscribe([source])

    def run(self, stop: Event) -> None:
        self.producer.init_transactions(TRANSACTION_SECONDS_MAX)
        try:
            while not stop.is_set():
                batch = self.consumer.consume(BATCH_MAX, WAIT_SECONDS)
                if batch:
                    self.process(batch)
        finally:
            self.consumer.close()

    def process(self, batch: list[Message]) -> None:
        """One transaction. A transient error (a rebalance, for example) is retried."""
        self.producer.begin_transaction()
        try:
            self.produce_results(batch)
            group = self.consumer.consumer_group_metadata()
            self.producer.send_offsets_to_transaction(places_after(batch), group)
            self.producer.commit_transaction(TRANSACTION_SECONDS_MAX)
        except KafkaException as problem:
            error: KafkaError = problem.args[0]
            if not error.txn_requires_abort():
                raise  # fenced by a newer process, or fatal: this one must end
            self.abort()
        except BaseException:
            self.abort()  # the transformation failed: nothing of this batch may be committed
            raise

    def produce_results(self, batch: list[Message]) -> None:
        for message in batch:
            self.producer.produce(self.target, self.transform(checked(message)), key=message.key())
            self.producer.poll(0)

    def abort(self) -> None:
        self.producer.abort_transaction(TRANSACTION_SECONDS_MAX)
        for partition in self.consumer.committed(self.consumer.assignment()):
            self.consumer.seek(partition)  # without a committed position: where auto.offset.reset says
