"""Carrying out what a journal says, a few copies at a time, until all is where it should be; the throttle goes last.

Everything that is to be done follows from the journal and from what the cluster says: whoever starts anew goes on. A
partition that was asked for, does not move any more and is not there was ended by somebody else: it is left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.elections import Election, elect_leaders
from ottla.client.errors import RefusedError
from ottla.client.reassignments import Reassignment, alter_reassignments, list_reassignments
from ottla.operations.reassignment.journal import Journal
from ottla.operations.reassignment.plan import Plan
from ottla.operations.reassignment.steps import Start, begin, replicas_of
from ottla.operations.reassignment.throttles import clear_broker_throttles, clear_topic_throttles, throttles
from ottla.operations.topic_replicas import unpreferred

LOOK_SECONDS = 0.5
STUCK_MS = 10_000  # leaders change in less
SETTLE_SECONDS = 5.0  # for the metadata of the broker that we ask to hear of the last changes

Rows = Mapping[TopicPartition, Sequence[int]]
Keep = Callable[[Journal], None]


class Outcome(NamedTuple):
    """What became of a journal."""

    moved: int
    elected: int
    refused: dict[TopicPartition, RefusedError]
    left: list[TopicPartition]  # asked for, but not there, and not moving: somebody else has ended it
    still_throttled: list[int]  # brokers that were away when the throttle was taken away


class Sight(NamedTuple):
    """What is seen in between: moves under way, partitions that are done, and those that are yet to be begun."""

    under_way: dict[TopicPartition, Reassignment]
    done: int
    waiting: int
    unled: list[TopicPartition]  # under way, but nobody leads them: nothing is copied


class Stuck:
    """Moves that nobody leads for so long that somebody should know; each is told once."""

    def __init__(self) -> None:
        self._since_ms: dict[TopicPartition, int] = {}
        self._told: set[TopicPartition] = set()

    def __repr__(self) -> str:
        return f"<Stuck {len(self._since_ms)} moves>"

    def look(self, unled: Collection[TopicPartition], now_ms: int) -> list[TopicPartition]:
        self._since_ms = {name: self._since_ms.get(name, now_ms) for name in unled}
        found = [
            name
            for name, since_ms in self._since_ms.items()
            if now_ms - since_ms >= STUCK_MS and name not in self._told
        ]
        self._told.update(found)
        return found


def next_rows(
    wanted: Rows,
    first: Collection[TopicPartition],
    moves: Mapping[TopicPartition, Reassignment],
    now: Rows,
    at_once: int,
) -> dict[TopicPartition, list[int]]:
    """What can be begun beside what is under way, so that no broker makes or serves more than so many copies.

    What copies nothing is begun at once; what alone is more than that is begun when nothing else is under way.
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


def carry_out(client: Client, journal: Journal, keep: Keep, watch: Callable[[Sight], None]) -> Outcome:
    """Go on until everything is done; `keep` puts the journal on disk before the cluster is asked for anything."""
    asked: set[TopicPartition] = set()
    refused: dict[TopicPartition, RefusedError] = {}
    while True:
        client.metadata = None  # who is alive now, not when it was asked last
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
        rows = next_rows(left, journal.first, own, now, journal.at_once)
        unled = [
            name
            for topic in topics
            for item in topic.partitions
            if item.leader < 0 and (name := TopicPartition(topic.name, item.number)) in own
        ]
        watch(Sight(own, len(journal.after) - len(own) - len(left), len(left) - len(rows), unled))
        if rows:
            journal = note_throttled(journal, own, rows, now, keep)
            refused |= begin(client, Plan(rows, {}), Start(own, {name: now[name] for name in rows}), journal.throttle)
            asked |= rows.keys()
        elif not own:
            break
        else:
            client.sleep(LOOK_SECONDS)
    return finish(client, journal, keep, refused)


def note_throttled(
    journal: Journal, own: Mapping[TopicPartition, Reassignment], rows: Rows, now: Rows, keep: Keep
) -> Journal:
    """Note who will be slowed down before it happens: whatever comes, somebody knows that it has to be taken back."""
    if journal.throttle is None:
        return journal
    brokers = {*journal.throttled, *throttles(own, rows, now).brokers}
    if brokers <= set(journal.throttled):
        return journal
    noted = journal._replace(throttled=tuple(sorted(brokers)))
    keep(noted)
    return noted


def finish(client: Client, journal: Journal, keep: Keep, refused: dict[TopicPartition, RefusedError]) -> Outcome:
    """Take the throttle away, give the preferred leaders their partitions, and close the journal."""
    journal = speed_up(client, journal)
    admin = Admin(client)
    deadline_ms = client.clock.monotonic_ms() + int(SETTLE_SECONDS * 1000)
    while True:
        topics = admin.topics(journal.topics)
        now = replicas_of(topics)
        left = [name for name, row in journal.after.items() if name in now and now[name] != row and name not in refused]
        if not left or client.clock.monotonic_ms() >= deadline_ms:
            break
        client.sleep(LOOK_SECONDS)
    waiting = [name for name in unpreferred(topics) if name in journal.after and name not in left]
    results = elect_leaders(client, Election.PREFERRED, waiting) if waiting else {}
    problems = {
        name: problem
        for name, problem in results.items()
        if problem is not None and problem.error is not Error.ELECTION_NOT_NEEDED
    }
    keep(journal._replace(is_ended=True))
    moved = sum(now.get(name) == row for name, row in journal.after.items())
    return Outcome(moved, len(results) - len(problems), refused | problems, left, list(journal.throttled))


def speed_up(client: Client, journal: Journal) -> Journal:
    """Take the throttle from all who are there; the answer still names those who are not."""
    client.metadata = None
    living = set(Admin(client).live_brokers())
    if journal.throttle is not None or journal.throttled:
        clear_broker_throttles(client, set(journal.throttled) & living)
        clear_topic_throttles(client, [topic.name for topic in Admin(client).topics(journal.topics)])
    return journal._replace(throttled=tuple(broker for broker in journal.throttled if broker not in living))


def cancel(client: Client, journal: Journal, keep: Keep) -> tuple[int, dict[TopicPartition, RefusedError]]:
    """End what is under way of a journal, and its throttle: how many moves, and what was refused."""
    moves = [name for name in list_reassignments(client) if name in journal.after]
    refused = alter_reassignments(client, dict.fromkeys(moves)) if moves else {}
    refused = {name: why for name, why in refused.items() if why.error is not Error.NO_REASSIGNMENT_IN_PROGRESS}
    keep(speed_up(client, journal)._replace(is_ended=not refused))
    return len(moves) - len(refused), refused


def seconds_to_copy(after: Rows, now: Rows, sizes: Mapping[TopicPartition, int], throttle: int | None) -> float | None:
    """How long it takes at least: whoever makes or serves most. None without a throttle: nobody knows."""
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
