"""Exactly once from topic to topic with kafka-python: results and positions are committed in one transaction."""

from collections.abc import Callable
from threading import Event

from kafka import KafkaConsumer, KafkaProducer
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import ProducerFencedError
from kafka.structs import OffsetAndMetadata, TopicPartition

POLL_MS = 2000  # kafka-python 3.0 forgets what it was assigned if this ends while it joins the group

Transform = Callable[[ConsumerRecord], bytes]
Batches = dict[TopicPartition, list[ConsumerRecord]]


def exactly_once(
    bootstrap: str, group: str, name: str, source: str, target: str, transform: Transform, stop: Event
) -> None:
    """`name` is the transactional id: the same after a restart, another one in each process of the group."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    consumer = KafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    with producer, consumer:
        producer.init_transactions()
        while not stop.is_set():
            batches = consumer.poll(POLL_MS)
            if batches:
                process(producer, consumer, batches, target, transform)


def process(
    producer: KafkaProducer, consumer: KafkaConsumer, batches: Batches, target: str, transform: Transform
) -> None:
    producer.begin_transaction()
    try:
        for record in (record for batch in batches.values() for record in batch):
            producer.send(target, transform(record), key=record.key)
        producer.send_offsets_to_transaction(next_positions(batches), consumer.group_metadata())
        producer.commit_transaction()
    except ProducerFencedError:
        raise  # a newer process uses this transactional id: there is nothing left to abort
    except BaseException:
        producer.abort_transaction()
        raise


def next_positions(batches: Batches) -> dict[TopicPartition, OffsetAndMetadata]:
    """A position is the offset of the next record to read."""
    return {partition: OffsetAndMetadata(batch[-1].offset + 1, "", -1) for partition, batch in batches.items()}
