"""Drop duplicates by a unique id that the producer puts into the message.

Idempotent and transactional producers never store a message twice by themselves. An application that sends the same
event again (a user who clicks twice, a service that crashed and cannot know whether it had sent) does: then only the
event's own id shows it. The id is stored in the transaction that writes the result, so a crash cannot separate them.
"""

import sqlite3

from confluent_kafka import Message
from examples.consumers.positions import headers_of

ID = "event-id"
TABLE = "CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY, at_ms INTEGER NOT NULL)"
REMEMBER = "INSERT INTO seen VALUES (?, ?) ON CONFLICT DO NOTHING"
FORGET = "DELETE FROM seen WHERE at_ms < ?"


class Deduplicator:
    """Stores ids for `keep_ms`: longer than the longest delay of a repeated event."""

    def __init__(self, database: sqlite3.Connection, keep_ms: int = 7 * 24 * 3_600_000) -> None:
        self.database = database
        self.keep_ms = keep_ms
        with database:
            database.execute(TABLE)

    def is_first(self, message: Message) -> bool:
        """Call it inside of the transaction that writes the result; a message without an id is always new."""
        event_id = headers_of(message).get(ID)
        if event_id is None:
            return True
        return self.database.execute(REMEMBER, (event_id.decode(), message.timestamp()[1])).rowcount == 1

    def forget_old(self, now_ms: int) -> int:
        """Call it from time to time; returns the number of dropped ids."""
        return self.database.execute(FORGET, (now_ms - self.keep_ms,)).rowcount
