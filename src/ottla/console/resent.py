"""Which dead letters were sent again, and where to: so that a second click, a second operator or a new console does not
send them once more.

Rules:
1. A letter is claimed before it is sent, and given back if the broker has refused it. What was cut off in between stays
   claimed: it may have been written.
2. Whoever wants to send a letter once more says so with a token of his own; the same token counts once.
3. The newest ROWS_MAX are kept.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from ottla.console.store import Tables

ROWS_MAX = 200_000
SCHEMA = """
create table if not exists resent (
    id integer primary key, cluster text not null, topic text not null, topic_id text not null,
    partition integer not null, at_offset integer not null, target text not null, token text not null,
    outcome text not null, person text not null, at_ms integer not null,
    unique (cluster, topic, topic_id, partition, at_offset, target, token)
)
"""


class Origin(NamedTuple):
    """A topic of letters; topics that follow each other under one name have different ids."""

    cluster: str
    topic: str
    topic_id: str


class Claim(NamedTuple):
    """A letter and the topic that it shall go to."""

    partition: int
    offset: int
    target: str


class Sent(NamedTuple):
    target: str
    outcome: str
    at_ms: int
    person: str


def claim(tables: Tables, origin: Origin, claims: Sequence[Claim], token: str, person: str, at_ms: int) -> list[Claim]:
    """Those that are the caller's now."""
    connection = _connection(tables)
    mine = []
    with connection:
        for each in claims:
            values = (*origin, *each, token, "unsure", person, at_ms)
            marks = ", ".join("?" * len(values))
            done = connection.execute(f"insert or ignore into resent values (null, {marks})", values)  # noqa: S608
            if done.rowcount:
                mine.append(each)
        connection.execute("delete from resent where id <= (select max(id) from resent) - ?", (ROWS_MAX,))
    return mine


def settle(tables: Tables, origin: Origin, sent: Sequence[Claim], refused: Sequence[Claim], token: str) -> None:
    """What became of claims; of those in neither list nobody knows."""
    where = (
        "cluster = ? and topic = ? and topic_id = ? and partition = ? and at_offset = ? and target = ? and token = ?"
    )
    connection = _connection(tables)
    with connection:
        connection.executemany(
            f"update resent set outcome = 'sent' where {where}",  # noqa: S608 (question marks alone)
            [(*origin, *each, token) for each in sent],
        )
        connection.executemany(
            f"delete from resent where {where}",  # noqa: S608
            [(*origin, *each, token) for each in refused],
        )


def sent_to(tables: Tables, origin: Origin) -> set[Claim]:
    """All that was sent from a topic of letters, or claimed to be."""
    rows = _connection(tables).execute(
        "select partition, at_offset, target from resent where cluster = ? and topic = ? and topic_id = ?", origin
    )
    return {Claim(*row) for row in rows}


def known(tables: Tables, origin: Origin, letters: Sequence[tuple[int, int]]) -> dict[tuple[int, int], list[Sent]]:
    """Where these letters (partition, offset) were sent to already."""
    connection = _connection(tables)
    found: dict[tuple[int, int], list[Sent]] = {}
    for letter in letters:
        rows = connection.execute(
            "select target, outcome, at_ms, person from resent where cluster = ? and topic = ? and topic_id = ? and "
            "partition = ? and at_offset = ? order by id",
            (*origin, *letter),
        ).fetchall()
        if rows:
            found[letter] = [Sent(*row) for row in rows]
    return found


def _connection(tables: Tables) -> sqlite3.Connection:
    tables.connection.execute(SCHEMA)
    return tables.connection
