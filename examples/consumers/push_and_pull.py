"""Two ways to choose the start: follow the newest messages, or start at a chosen position.

The "push mode" of some books is the first, their "pull mode" the second; both pull. A poll waits at the broker for
records or its timeout, so an empty topic causes no busy loop.
"""

from collections.abc import Callable, Iterator
from threading import Event

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

POLL_SECONDS = 0.2


def follow_newest(bootstrap: str, topic: str, handle: Callable[[Message], None], stop: Event) -> None:
    """New messages from now on, in every process that calls this: no group shares it, nothing is committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic).topics[topic].partitions
    newest = [
        TopicPartition(topic, number, consumer.get_watermark_offsets(TopicPartition(topic, number))[1])
        for number in partitions
    ]
    consumer.assign(newest)
    try:
        while not stop.is_set():
            message = consumer.poll(POLL_SECONDS)
            if message is not None and message.error() is None:
                handle(message)
    finally:
        consumer.close()


def read_from(bootstrap: str, topic: str, partition: int, offset: int) -> Iterator[Message]:
    """The messages of one partition from this offset on, until there are no more."""
    settings = {"group.id": "unused", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([TopicPartition(topic, partition, offset)])
    try:
        while True:
            message = consumer.poll(POLL_SECONDS)
            if message is None:
                continue
            if error := message.error():
                if error.code() == KafkaError._PARTITION_EOF:
                    return
                raise KafkaException(error)
            yield message
    finally:
        consumer.close()
