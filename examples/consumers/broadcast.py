"""Who gets a message is decided by group names alone: one group shares the messages, several groups each get all."""

from collections.abc import Iterator
from threading import Event

from confluent_kafka import Consumer, Message
from examples.consumers.delivery import messages


def work_queue(bootstrap: str, topic: str, stop: Event, group: str = "workers") -> Iterator[Message]:
    """Every message goes to one of the processes that call this (as many as there are partitions are busy)."""
    return subscription(bootstrap, topic, group, stop)


def broadcast(bootstrap: str, topic: str, stop: Event, subscriber: str) -> Iterator[Message]:
    """Every message goes to every subscriber; each remembers its own position under its own name."""
    return subscription(bootstrap, topic, f"broadcast-{subscriber}", stop)


def subscription(bootstrap: str, topic: str, group: str, stop: Event) -> Iterator[Message]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        yield from messages(consumer, topic, stop)
    finally:
        consumer.close()
