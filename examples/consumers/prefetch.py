"""A local queue of messages beside each consumer, with its size and how often it is filled.

librdkafka has such a queue of its own (`queued.min.messages`, `queued.max.messages.kbytes`, `fetch.wait.max.ms`); this
one is visible, is bounded by a number of messages, and controls when the broker is polled.
"""

from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Self

from confluent_kafka import Consumer, KafkaException, Message
from examples.consumers.delivery import Settings


class PrefetchQueue:
    """`with PrefetchQueue(settings, "orders", size=1000, every_s=0.1) as queue: message = queue.get()`

    A thread polls every `every_s` seconds and keeps at most `size` messages. When they are not taken it pauses its
    partitions and goes on polling, so a slow reader does not fall out of its group.
    """

    def __init__(self, settings: Settings, topic: str, size: int, every_s: float) -> None:
        self.size = size
        self.every_s = every_s
        self.consumer = Consumer(settings)
        self.consumer.subscribe([topic])
        self.failure: KafkaException | None = None
        self._queue: Queue[Message] = Queue(size)
        self._stop = Event()
        self._thread = Thread(target=self._fill, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.consumer.close()

    def __len__(self) -> int:
        return self._queue.qsize()

    def get(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None when there was none in time."""
        if self.failure is not None:
            raise self.failure
        try:
            return self._queue.get(timeout=timeout_s)
        except Empty:
            return None

    def _fill(self) -> None:
        while not self._stop.wait(self.every_s) and self.failure is None:
            room = self.size - self._queue.qsize()
            assigned = self.consumer.assignment()
            (self.consumer.resume if room else self.consumer.pause)(assigned)
            for message in self.consumer.consume(max(room, 1), self.every_s):
                self._put(message)

    def _put(self, message: Message) -> None:
        if error := message.error():
            self.failure = KafkaException(error)
            return
        while not self._stop.is_set():
            try:
                self._queue.put(message, timeout=self.every_s)
            except Full:
                continue
            return
