"""Exactly once into a database: positions live in the same database and change in the same transaction as the results.

Writing the result and then, separately, the position is at least once: a crash between the two repeats the result. One
transaction leaves nothing between them. The update of the position is conditional, so that a process which lost its
partition and does not know it yet (paused for too long) changes nothing: its position is no longer the stored one.
"""

from collections.abc import Callable
from threading import Event
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, Message, TopicPartition
from examples.consumers.delivery import BY_HAND, Settings
from examples.consumers.positions import checked, place_of

POLL_SECONDS = 0.2
TABLE = """
CREATE TABLE IF NOT EXISTS positions (
    consumer TEXT, topic TEXT, partition_number INTEGER, next_offset BIGINT NOT NULL,
    PRIMARY KEY (consumer, topic, partition_number))
"""
FIND = "SELECT next_offset FROM positions WHERE consumer = ? AND topic = ? AND partition_number = ?"
BEGIN = "INSERT INTO positions VALUES (?, ?, ?, 0) ON CONFLICT DO NOTHING"
ADVANCE = """
UPDATE positions SET next_offset = ?
WHERE consumer = ? AND topic = ? AND partition_number = ? AND next_offset <= ?
"""


class Database(Protocol):
    """What sqlite3.Connection and psycopg.Connection have in common."""

    def cursor(self) -> Any: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...


class Store(NamedTuple):
    """A connection and its parameter marker: "?" with sqlite3, "%s" with psycopg."""

    database: Database
    sign: str

    def execute(self, statement: str, *values: object) -> Any:
        cursor = self.database.cursor()
        cursor.execute(statement.replace("?", self.sign), values)
        return cursor


class DatabaseConsumer:
    """Calls `handle(store, message)`, which writes its results with `store.execute` and does not commit."""

    def __init__(self, settings: Settings, topic: str, store: Store, handle: Callable[[Store, Message], None]) -> None:
        self.name = str(settings["group.id"])
        self.store = store
        self.handle = handle
        store.execute(TABLE)
        store.database.commit()
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
        """Start at the positions in the database, regardless of the group's commits."""
        for partition in partitions:
            key = (self.name, partition.topic, partition.partition)
            self.store.execute(BEGIN, *key)
            partition.offset = self.store.execute(FIND, *key).fetchone()[0]
        self.store.database.commit()
        consumer.assign(partitions)

    def take(self, message: Message) -> None:
        """Result and position, both or none."""
        place = place_of(message)
        key = (self.name, place.topic, place.partition)
        try:
            advanced = self.store.execute(ADVANCE, place.offset + 1, *key, place.offset)
            if advanced.rowcount == 1:  # otherwise another process has written it
                self.handle(self.store, message)
            self.store.database.commit()
        except BaseException:
            self.store.database.rollback()
            raise
