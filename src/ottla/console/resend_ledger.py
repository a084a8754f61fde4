"""The ledger of resent dead letters: a letter goes to a topic at most once, also after a second click, by a second
operator, or after a restart of the console.

Rules:
1. A letter is claimed before it is sent, and released if the broker refuses it. After an interruption it stays claimed,
   because it may have been written.
2. To resend a letter once more, the caller sends a new token; each token works once.
3. The newest ROWS_MAX rows are kept.
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


class LetterTopic(NamedTuple):
    """A dead letter topic; a recreated topic has another id."""

    cluster: str
    topic: str
    topic_id: str


class Claim(NamedTuple):
    """A letter and its target topic."""

    partition: int
    offset: int
    target: str


class Resend(NamedTuple):
    target: str
    outcome: str
    at_ms: int
    person: str


def claim(
    tables: Tables, letter_topic: LetterTopic, claims: Sequence[Claim], token: str, person: str, at_ms: int
) -> list[Claim]:
    """Claim letters; returns those that were not claimed before."""
    connection = _connection(tables)
    claimed = []
    with connection:
        for each in claims:
            values = (*letter_topic, *each, token, "unsure", person, at_ms)
            marks = ", ".join("?" * len(values))
            done = connection.execute(f"insert or ignore into resent values (null, {marks})", values)  # noqa: S608
            if done.rowcount:
                claimed.append(each)
        connection.execute("delete from resent where id <= (select max(id) from resent) - ?", (ROWS_MAX,))
    return claimed


def record_outcomes(
    tables: Tables, letter_topic: LetterTopic, sent: Sequence[Claim], refused: Sequence[Claim], token: str
) -> None:
    """Record the outcome of claims; claims in neither list keep the outcome "unsure"."""
    where = (
        "cluster = ? and topic = ? and topic_id = ? and partition = ? and at_offset = ? and target = ? and token = ?"
    )
    connection = _connection(tables)
    with connection:
        connection.executemany(
            f"update resent set outcome = 'sent' where {where}",  # noqa: S608 (question marks alone)
            [(*letter_topic, *each, token) for each in sent],
        )
        connection.executemany(
            f"delete from resent where {where}",  # noqa: S608
            [(*letter_topic, *each, token) for each in refused],
        )


def claimed_letters(tables: Tables, letter_topic: LetterTopic) -> set[Claim]:
    """All claims of a dead letter topic."""
    rows = _connection(tables).execute(
        "select partition, at_offset, target from resent where cluster = ? and topic = ? and topic_id = ?", letter_topic
    )
    return {Claim(*row) for row in rows}


def earlier_resends(
    tables: Tables, letter_topic: LetterTopic, letters: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], list[Resend]]:
    """Earlier resends of these letters (partition, offset)."""
    connection = _connection(tables)
    found: dict[tuple[int, int], list[Resend]] = {}
    for letter in letters:
        rows = connection.execute(
            "select target, outcome, at_ms, person from resent where cluster = ? and topic = ? and topic_id = ? and "
            "partition = ? and at_offset = ? order by id",
            (*letter_topic, *letter),
        ).fetchall()
        if rows:
            found[letter] = [Resend(*row) for row in rows]
    return found


def _connection(tables: Tables) -> sqlite3.Connection:
    tables.connection.execute(SCHEMA)
    return tables.connection
