"""Retry later, with growing pauses, a limit, and priorities; a failed message does not block the following ones.

A message that fails goes to the topic of its first retry, then to that of its second, and so on; after the last it goes
to `<topic>.dead` with the reason in a header. Each of these topics has one fixed delay, so its messages become due in
order. Important messages (header `priority: high`) have their own topics, which are polled first: a hundred ordinary
retries do not delay them.

    orders -> orders.retry.1 -> orders.retry.2 -> orders.dead
           -> orders.retry.1.high -> orders.retry.2.high -> orders.dead
"""

import math
import time
from dataclasses import dataclass
from threading import Event

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from examples.consumers.delivery import BY_HAND, Handle, Settings
from examples.consumers.positions import checked, headers_of, place_of

POLL_SECONDS = 0.02
SENT_SECONDS_MAX = 30.0
ATTEMPT, REASON, PRIORITY = "attempt", "reason", "priority"
HIGH = b"high"


@dataclass(frozen=True)
class Policy:
    """The pause before retry n is first_s * factor^(n-1), at most longest_s."""

    limit: int = 3
    first_s: float = 1.0
    factor: float = 2.0
    longest_s: float = 60.0

    def delay_s(self, attempt: int) -> float:
        return min(self.first_s * self.factor ** (attempt - 1), self.longest_s)

    def topics(self, topic: str, *, is_high: bool) -> list[str]:
        return [retry_topic(topic, attempt, is_high=is_high) for attempt in range(1, self.limit + 1)]


class RetryingConsumer:
    """Handles a topic and its retries; at least once."""

    def __init__(self, settings: Settings, topic: str, handle: Handle, policy: Policy) -> None:
        self.topic = topic
        self.handle = handle
        self.policy = policy
        self.producer = Producer({"bootstrap.servers": settings["bootstrap.servers"], "enable.idempotence": True})
        self.resume_at: dict[TopicPartition, float] = {}
        # In polling order. Separate groups: a rebalance of one does not stop the others.
        self.consumers = [
            self._consumer(settings, "high", policy.topics(topic, is_high=True)),
            self._consumer(settings, "first", [topic]),
            self._consumer(settings, "retry", policy.topics(topic, is_high=False)),
        ]

    @staticmethod
    def _consumer(settings: Settings, role: str, topics: list[str]) -> Consumer:
        consumer = Consumer(settings | BY_HAND | {"group.id": f"{settings['group.id']}-{role}"})
        consumer.subscribe(topics)
        return consumer

    def run(self, stop: Event) -> None:
        try:
            while not stop.is_set():
                # after each message, start again with the important ones
                any(self.serve(consumer) for consumer in self.consumers)
        finally:
            for consumer in self.consumers:
                consumer.close()

    def serve(self, consumer: Consumer) -> bool:
        """Handle one message if one is available and due."""
        self.resume_due(consumer)
        message = consumer.poll(POLL_SECONDS)
        if message is None:
            return False
        wait_s = self.due_at(checked(message)) - time.time()
        if wait_s > 0:
            self.pause(consumer, message, wait_s)
            return False
        try:
            self.handle(message)
        except Exception as error:  # noqa: BLE001 (whatever it was, the message gets its next chance)
            self.send_on(message, error)
        consumer.commit(message=message, asynchronous=False)
        return True

    def due_at(self, message: Message) -> float:
        attempt = attempt_of(message)
        return message.timestamp()[1] / 1000 + self.policy.delay_s(attempt) if attempt else 0.0

    def send_on(self, message: Message, error: Exception) -> None:
        """To the topic of the next attempt; returns when it is stored there, so the commit loses nothing."""
        headers = headers_of(message)
        attempt = attempt_of(message) + 1
        target = retry_topic(self.topic, attempt, is_high=headers.get(PRIORITY) == HIGH)
        if attempt > self.policy.limit:
            target = f"{self.topic}.dead"
        headers |= {ATTEMPT: str(attempt).encode(), REASON: repr(error).encode()}
        self.producer.produce(target, message.value(), message.key(), headers=list(headers.items()))
        if self.producer.flush(SENT_SECONDS_MAX):
            raise TimeoutError(f"no answer for the retry of {place_of(message)}")

    def pause(self, consumer: Consumer, message: Message, wait_s: float) -> None:
        """All later messages in its partition are due later still."""
        here = place_of(message)
        consumer.pause([here])
        consumer.seek(here)
        self.resume_at[here] = time.time() + wait_s

    def resume_due(self, consumer: Consumer) -> None:
        for partition in consumer.assignment():
            if self.resume_at.get(partition, math.inf) <= time.time():
                consumer.resume([partition])
                del self.resume_at[partition]


def retry_topic(topic: str, attempt: int, *, is_high: bool) -> str:
    return f"{topic}.retry.{attempt}{'.high' if is_high else ''}"


def attempt_of(message: Message) -> int:
    return int(headers_of(message).get(ATTEMPT, b"0"))
