"""Stop consuming one partition for a while without harming the group.

A paused partition stays ours: the consumer goes on polling (that is how it proves to be alive), gets the messages of
the other partitions, and no rebalance happens.
"""

import time
from threading import Event

from confluent_kafka import Consumer, TopicPartition
from examples.consumers.delivery import BY_HAND, Handle, Settings
from examples.consumers.positions import checked, place_of

POLL_SECONDS = 0.05


class NotNow(Exception):  # noqa: N818 (no error: a way to say "later")
    """Raised by a handler: this message, and what follows it in its partition, after so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"not within {seconds} s")
        self.seconds = seconds


def consume_with_breaks(settings: Settings, topic: str, handle: Handle, stop: Event) -> None:
    """At least once; a partition whose handler raises NotNow is paused and resumes with that message."""
    consumer = Consumer(settings | BY_HAND)
    resume_at: dict[TopicPartition, float] = {}
    consumer.subscribe([topic], on_revoke=lambda _, partitions: forget(resume_at, partitions))
    try:
        while not stop.is_set():
            resume_due(consumer, resume_at)
            message = consumer.poll(POLL_SECONDS)
            if message is None:
                continue
            try:
                handle(checked(message))
            except NotNow as wish:
                here = place_of(message)
                consumer.pause([here])
                consumer.seek(here)
                resume_at[here] = time.monotonic() + wish.seconds
            else:
                consumer.commit(message=message, asynchronous=True)
    finally:
        consumer.close()


def resume_due(consumer: Consumer, resume_at: dict[TopicPartition, float]) -> None:
    for partition in [each for each, at in resume_at.items() if at <= time.monotonic()]:
        consumer.resume([partition])
        del resume_at[partition]


def forget(resume_at: dict[TopicPartition, float], partitions: list[TopicPartition]) -> None:
    """The next owner does not know about our pauses, and a returning partition is not paused."""
    for partition in partitions:
        resume_at.pop(partition, None)
