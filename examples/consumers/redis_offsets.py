"""Exactly once into Redis: positions live in the same Redis and change in the same transaction as the results.

Redis has no BEGIN: the position is watched while it is read, the results are gathered, and EXEC runs all of it, or
nothing if the position has changed meanwhile. So a process which lost its partition and does not know it yet changes
nothing, and after a lost answer the position tells whether the transaction came through.

What Redis forgets in a power cut (`appendfsync everysec`: about a second) it forgets of both: the consumer reads that
part again, and nothing is missing or there twice.
"""

from collections.abc import Callable
from threading import Event

from confluent_kafka import Consumer, Message, TopicPartition
from examples.consumers.delivery import BY_HAND, Settings
from examples.consumers.positions import checked, place_of
from redis import Redis, WatchError
from redis.client import Pipeline

POLL_SECONDS = 0.2


class RedisConsumer:
    """Calls `handle(transaction, message)`, which adds commands to the transaction and does not execute it."""

    def __init__(
        self, settings: Settings, topic: str, redis: Redis, handle: Callable[[Pipeline, Message], None]
    ) -> None:
        self.name = str(settings["group.id"])
        self.redis = redis
        self.handle = handle
        self.consumer = Consumer(settings | BY_HAND)
        self.consumer.subscribe([topic], on_assign=self.on_assign)

    def run(self, stop: Event) -> None:
        try:
            while not stop.is_set():
                message = self.consumer.poll(POLL_SECONDS)
                if message is not None:
                    self.take(checked(message))
        finally:
            self.consumer.close()

    def on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Start at the positions in Redis, regardless of the group's commits."""
        for partition in partitions:
            partition.offset = int(self.redis.get(self.key(partition.topic, partition.partition)) or 0)
        consumer.assign(partitions)

    def take(self, message: Message) -> None:
        """Result and position, both or none."""
        place = place_of(message)
        key = self.key(place.topic, place.partition)
        while True:
            with self.redis.pipeline() as transaction:
                try:
                    transaction.watch(key)
                    if int(transaction.get(key) or 0) > place.offset:
                        return  # another process has written it
                    transaction.multi()
                    self.handle(transaction, message)
                    transaction.set(key, place.offset + 1)
                    transaction.execute()
                    return
                except WatchError:  # the position has changed, or the connection broke: Redis tells which
                    continue

    def key(self, topic: str, partition: int) -> str:
        return f"position:{self.name}:{topic}:{partition}"
