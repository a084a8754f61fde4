"""Executes moves: starts a few replicas at a time until all are in place, then removes the throttle.

Rules:
1. The remaining work follows from the plan and the state of the cluster, so a restarted command or console continues.
2. Each partition is requested once. If it no longer moves and is not in place, another client has cancelled its move,
   and it is left alone.
3. A broker is throttled only while replicas move. If it is down at the end, its throttle stays, and it is reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.admin import Admin, Topic
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.client.reassignments import Election, Reassignment, elect_leaders, list_reassignments
from ottla.operations.reassignment.moves import InitialState, replicas_of, start_moves
from ottla.operations.reassignment.plan import Plan
from ottla.operations.reassignment.throttles import clear_broker_throttles, clear_topic_throttles, throttle_settings

COPIES_AT_ONCE = 5  # that a broker reads or writes at a time, by default
POLL_SECONDS = 0.5
STUCK_MS = 10_000  # a leader election takes less

Rows = Mapping[TopicPartition, Sequence[int]]


class MoveTask(NamedTuple):
    """The target replicas of each partition, and how fast they are reached."""

    after: Rows
    throttle: int | None = None  # bytes a second for each broker
    at_once: int = COPIES_AT_ONCE  # copies that a broker reads or writes at a time
    first: Collection[TopicPartition] = ()  # moved before the rest
    may_change_factor: bool = True

    @property
    def topics(self) -> list[str]:
        return sorted({name.topic for name in self.after})


class Round(NamedTuple):
    """One round: what moves, what it has started, and what starts later. It is the last if nothing moves or starts."""

    under_way: dict[TopicPartition, Reassignment]
    started: dict[TopicPartition, list[int]]
    waiting: int
    topics: Sequence[Topic] = ()
    refused: Mapping[TopicPartition, BrokerError] = {}

    @property
    def is_last(self) -> bool:
        return not self.under_way and not self.started

    @property
    def without_leader(self) -> list[TopicPartition]:
        """Moves without a leader, so nothing is copied."""
        return [
            name
            for topic in self.topics
            for item in topic.partitions
            if item.leader < 0 and (name := TopicPartition(topic.name, item.number)) in self.under_way
        ]


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


def next_round(
    task: MoveTask, asked: Collection[TopicPartition], moves: Mapping[TopicPartition, Reassignment], now: Rows
) -> Round:
    """What to start next. `asked`: the partitions requested before. Deleted partitions are missing in `now`."""
    own = {name: move for name, move in moves.items() if name in task.after}
    left = {
        name: list(row)
        for name, row in task.after.items()
        if name in now and name not in asked and (own[name].target if name in own else list(now[name])) != list(row)
    }
    rows = next_moves(left, task.first, own, now, task.at_once)
    return Round(own, rows, len(left) - len(rows))


def start_round(
    client: Client,
    task: MoveTask,
    asked: Collection[TopicPartition],
    before_throttle: Callable[[set[int]], None] | None = None,
) -> Round:
    """Start the next moves; `before_throttle` gets the brokers that are throttled for them."""
    client.metadata = None  # refresh the list of live brokers
    moves = list_reassignments(client)
    admin = Admin(client)
    topics = admin.topics(task.topics)
    now = replicas_of(topics)
    found = next_round(task, asked, moves, now)._replace(topics=topics)
    if not found.started:
        return found
    start = InitialState(found.under_way, {name: now[name] for name in found.started})
    if task.throttle is not None and before_throttle is not None:
        slowed = throttle_settings(start.under_way, found.started, start.now).brokers
        before_throttle(set(slowed) & set(admin.live_brokers()))
    plan = Plan(found.started, {})
    return found._replace(
        refused=start_moves(client, plan, start, task.throttle, may_change_factor=task.may_change_factor)
    )


def execute(
    client: Client,
    task: MoveTask,
    on_progress: Callable[[Round], None],
    before_throttle: Callable[[set[int]], None] | None = None,
    requested: Collection[TopicPartition] = (),
) -> dict[TopicPartition, BrokerError]:
    """Move everything, without what was `requested` before; returns the refused partitions. The throttle stays."""
    asked = set(requested)
    refused: dict[TopicPartition, BrokerError] = {}
    while True:
        done = start_round(client, task, asked, before_throttle)
        on_progress(done)
        if done.is_last:
            return refused
        asked |= done.started.keys()
        refused |= done.refused
        if not done.started:
            client.sleep(POLL_SECONDS)


def elect_preferred(
    client: Client, waiting: Collection[TopicPartition]
) -> tuple[int, dict[TopicPartition, BrokerError]]:
    """Elect the preferred leaders of these partitions; returns the number of changed leaders, and the refusals."""
    results = elect_leaders(client, Election.PREFERRED, waiting) if waiting else {}
    problems = {
        name: problem
        for name, problem in results.items()
        if problem is not None and problem.error is not Error.ELECTION_NOT_NEEDED
    }
    return sum(problem is None for problem in results.values()), problems


def remove_throttles(client: Client, brokers: Collection[int], topics: Collection[str]) -> list[int]:
    """Remove the throttle from these topics, and from those of the brokers that are alive; returns the others."""
    client.metadata = None
    living = Admin(client).live_brokers()
    clear_broker_throttles(client, {broker for broker in brokers if broker in living})
    clear_topic_throttles(client, topics)
    return sorted(broker for broker in brokers if broker not in living)


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
