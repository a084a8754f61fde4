"""At most once and at least once with kafka-python: the same loop, only the place of the commit differs."""

from collections.abc import Callable
from threading import Event

from kafka import KafkaConsumer
from kafka.consumer.fetcher import ConsumerRecord

POLL_MS = 2000  # kafka-python 3.0 forgets what it was assigned if this ends while it joins the group

Handle = Callable[[ConsumerRecord], None]


def at_most_once(bootstrap: str, group: str, topic: str, handle: Handle, stop: Event) -> None:
    """Commit what a poll has brought, then handle it: what fails is never seen again."""
    with by_hand(bootstrap, group, topic) as consumer:
        while not stop.is_set():
            batches = consumer.poll(POLL_MS, max_records=1)
            if batches:
                consumer.commit()
            for record in (record for batch in batches.values() for record in batch):
                handle(record)


def at_least_once(bootstrap: str, group: str, topic: str, handle: Handle, stop: Event) -> None:
    """Handle what a poll has brought, then commit: what fails comes again."""
    with by_hand(bootstrap, group, topic) as consumer:
        while not stop.is_set():
            batches = consumer.poll(POLL_MS)
            for record in (record for batch in batches.values() for record in batch):
                handle(record)
            if batches:
                consumer.commit()


def by_hand(bootstrap: str, group: str, topic: str) -> KafkaConsumer:
    return KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
    )
