"""Executes a journal: moves a few replicas at a time until the plan is complete, then removes the throttle.

The remaining work follows from the journal and the state of the cluster, so a restarted command continues. A partition
that was requested, no longer moves and is not in place was cancelled by another client: it is left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.client.reassignments import Election, Reassignment, alter_reassignments, elect_leaders, list_reassignments
from ottla.operations.reassignment.journal import Journal
from ottla.operations.reassignment.moves import InitialState, replicas_of, start_moves
from ottla.operations.reassignment.plan import Plan
from ottla.operations.reassignment.throttles import clear_broker_throttles, clear_topic_throttles, throttle_settings
from ottla.operations.topic_summary import partitions_without_preferred_leader

POLL_SECONDS = 0.5
STUCK_MS = 10_000  # a leader election takes less
METADATA_TIMEOUT_SECONDS = 5.0  # until the metadata of our broker has the last changes

Rows = Mapping[TopicPartition, Sequence[int]]
SaveJournal = Callable[[Journal], None]


class Outcome(NamedTuple):
    """The result of a journal."""

    moved: int
    elected: int
    refused: dict[TopicPartition, BrokerError]
    cancelled: list[TopicPartition]  # requested, but neither moving nor in place: cancelled by another client
    still_throttled: list[int]  # brokers that were down when the throttle was removed


class ExecutionProgress(NamedTuple):
    """The progress: moves under way, completed partitions, and those not started."""

    under_way: dict[TopicPartition, Reassignment]
    done: int
    waiting: int
    without_leader: list[TopicPartition]  # moving without a leader, so nothing is copied


class StuckMoves:
    """Moves without a leader for too long; each is reported once."""

    def __init__(self) -> None:
        self._since_ms: dict[TopicPartition, int] = {}
        self._reported: set[TopicPartition] = set()

    def __repr__(self) -> str:
        return f"<StuckMoves {len(self._since_ms)} moves>"

    def update(self, unled: Collection[TopicPartition], now_ms: int) -> list[TopicPartition]:
        self._since_ms = {name: self._since_ms.get(name, now_ms) for name in unled}
        found = [
            name
            for name, since_ms in self._since_ms.items()
            if now_ms - since_ms >= STUCK_MS and name not in self._reported
        ]
        self._reported.update(found)
        return found


def next_moves(
    wanted: Rows,
    first: Collection[TopicPartition],
    moves: Mapping[TopicPartition, Reassignment],
    now: Rows,
    at_once: int,
) -> dict[TopicPartition, list[int]]:
    """The partitions to start now, with at most `at_once` copies that any broker reads or writes.

    A partition without copies starts at once. One with more copies than that starts when nothing else moves.
    """
    busy: Counter[int] = Counter()
    for move in moves.values():
        busy.update(move.adding)
        busy.update(dict.fromkeys(move.target[:1], len(move.adding)))
    found: dict[TopicPartition, list[int]] = {}
    is_idle = not moves
    for name in sorted(wanted, key=lambda name: (name not in first, name)):
        row = list(wanted[name])
        copies = Counter(set(row) - set(now[name]))
        count = copies.total()
        copies.update(dict.fromkeys(now[name][:1], count) if count else {})
        if all(busy[broker] + more <= at_once for broker, more in copies.items()) or (is_idle and not busy):
            found[name] = row
            busy.update(copies)
    return found


def execute(
    client: Client, journal: Journal, save: SaveJournal, on_progress: Callable[[ExecutionProgress], None]
) -> Outcome:
    """Run until everything is done; `keep` persists the journal before each request to the cluster."""
    asked: set[TopicPartition] = set()
    refused: dict[TopicPartition, BrokerError] = {}
    while True:
        client.metadata = None  # refresh the list of live brokers
        moves = list_reassignments(client)
        topics = Admin(client).topics(journal.topics)
        now = replicas_of(topics)
        own = {name: move for name, move in moves.items() if name in journal.after}
        off_course = {name for name, move in own.items() if name not in asked and move.target != journal.after[name]}
        left = {
            name: row
            for name, row in journal.after.items()
            if name in now and name not in asked and (name in off_course or (name not in own and now[name] != row))
        }
        rows = next_moves(left, journal.first, own, now, journal.at_once)
        unled = [
            name
            for topic in topics
            for item in topic.partitions
            if item.leader < 0 and (name := TopicPartition(topic.name, item.number)) in own
        ]
        on_progress(ExecutionProgress(own, len(journal.after) - len(own) - len(left), len(left) - len(rows), unled))
        if rows:
            journal = record_throttled_brokers(journal, own, rows, now, save)
            refused |= start_moves(
                client, Plan(rows, {}), InitialState(own, {name: now[name] for name in rows}), journal.throttle
            )
            asked |= rows.keys()
        elif not own:
            break
        else:
            client.sleep(POLL_SECONDS)
    return finish(client, journal, save, refused)


def record_throttled_brokers(
    journal: Journal, own: Mapping[TopicPartition, Reassignment], rows: Rows, now: Rows, keep: SaveJournal
) -> Journal:
    """Persist the brokers to throttle before it happens, so that the throttle is removed in any case."""
    if journal.throttle is None:
        return journal
    brokers = {*journal.throttled, *throttle_settings(own, rows, now).brokers}
    if brokers <= set(journal.throttled):
        return journal
    noted = journal._replace(throttled=tuple(sorted(brokers)))
    keep(noted)
    return noted


def finish(client: Client, journal: Journal, keep: SaveJournal, refused: dict[TopicPartition, BrokerError]) -> Outcome:
    """Remove the throttle, elect preferred leaders, and close the journal."""
    journal = remove_throttles(client, journal)
    admin = Admin(client)
    deadline_ms = client.clock.monotonic_ms() + int(METADATA_TIMEOUT_SECONDS * 1000)
    while True:
        topics = admin.topics(journal.topics)
        now = replicas_of(topics)
        left = [name for name, row in journal.after.items() if name in now and now[name] != row and name not in refused]
        if not left or client.clock.monotonic_ms() >= deadline_ms:
            break
        client.sleep(POLL_SECONDS)
    waiting = [
        name for name in partitions_without_preferred_leader(topics) if name in journal.after and name not in left
    ]
    results = elect_leaders(client, Election.PREFERRED, waiting) if waiting else {}
    problems = {
        name: problem
        for name, problem in results.items()
        if problem is not None and problem.error is not Error.ELECTION_NOT_NEEDED
    }
    keep(journal._replace(is_ended=True))
    moved = sum(now.get(name) == row for name, row in journal.after.items())
    return Outcome(moved, len(results) - len(problems), refused | problems, left, list(journal.throttled))


def remove_throttles(client: Client, journal: Journal) -> Journal:
    """Remove the throttle from all live brokers; the result still lists the others."""
    client.metadata = None
    living = set(Admin(client).live_brokers())
    if journal.throttle is not None or journal.throttled:
        clear_broker_throttles(client, set(journal.throttled) & living)
        clear_topic_throttles(client, [topic.name for topic in Admin(client).topics(journal.topics)])
    return journal._replace(throttled=tuple(broker for broker in journal.throttled if broker not in living))


def cancel(client: Client, journal: Journal, keep: SaveJournal) -> tuple[int, dict[TopicPartition, BrokerError]]:
    """Cancel the moves of a journal and remove its throttle; returns the number of moves, and refusals."""
    moves = [name for name in list_reassignments(client) if name in journal.after]
    refused = alter_reassignments(client, dict.fromkeys(moves)) if moves else {}
    refused = {name: why for name, why in refused.items() if why.error is not Error.NO_REASSIGNMENT_IN_PROGRESS}
    keep(remove_throttles(client, journal)._replace(is_ended=not refused))
    return len(moves) - len(refused), refused


def seconds_to_copy(after: Rows, now: Rows, sizes: Mapping[TopicPartition, int], throttle: int | None) -> float | None:
    """The minimum duration: that of the busiest broker. None (unknown) without a throttle."""
    if throttle is None:
        return None
    made: Counter[int] = Counter()
    served: Counter[int] = Counter()
    for name, row in after.items():
        new = set(row) - set(now[name])
        size = sizes.get(name, 0)
        made.update(dict.fromkeys(new, size))
        served.update(dict.fromkeys(now[name][:1], size * len(new)))
    return max((*made.values(), *served.values()), default=0) / throttle
