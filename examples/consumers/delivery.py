"""At most once and at least once with confluent-kafka: the same loop, only the place of the commit differs.

at_most_once({"bootstrap.servers": "127.0.0.1:9092", "group.id": "mail"}, "orders", print, threading.Event())
"""

from collections.abc import Callable, Iterator
from threading import Event

from confluent_kafka import Consumer, Message
from examples.consumers.positions import checked

Settings = dict[str, str | int | float | bool]
Handle = Callable[[Message], None]

BY_HAND: Settings = {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
POLL_SECONDS = 0.2


def at_most_once(settings: Settings, topic: str, handle: Handle, stop: Event) -> None:
    """Commit first: a message whose handling fails is never seen again."""
    consumer = Consumer(settings | BY_HAND)
    try:
        for message in messages(consumer, topic, stop):
            consumer.commit(message=message, asynchronous=False)
            handle(message)
    finally:
        consumer.close()


def at_least_once(settings: Settings, topic: str, handle: Handle, stop: Event) -> None:
    """Commit afterwards: a message whose handling fails, or whose commit is lost, comes again."""
    consumer = Consumer(settings | BY_HAND)
    try:
        for message in messages(consumer, topic, stop):
            handle(message)
            consumer.commit(message=message, asynchronous=False)
    finally:
        consumer.close()


def messages(consumer: Consumer, topic: str, stop: Event) -> Iterator[Message]:
    """Poll until stopped. `poll` waits at the broker for records, so this loop does not spin."""
    consumer.subscribe([topic])
    while not stop.is_set():
        message = consumer.poll(POLL_SECONDS)
        if message is not None:
            yield checked(message)
