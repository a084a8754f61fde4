"""One command that moves replicas of a whole cluster: it starts, continues, cancels or reverts its journal.

Rules:
1. A cluster has one journal, and one command at a time on this machine. A command that has not ended is continued by
   repeating it; another command is refused until then.
2. Nothing starts while moves of other tools are in progress.
3. The journal is written before the cluster is asked for anything, so a killed command leaves no unknown throttle.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple, Self

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.text import format_count
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.cluster import describe_cluster
from ottla.client.errors import BrokerError
from ottla.client.reassignments import alter_reassignments, list_reassignments
from ottla.operations.reassignment.cluster_model import ClusterModel, check_leaders, load_cluster_model
from ottla.operations.reassignment.cluster_plans import MovePlan
from ottla.operations.reassignment.executor import (
    COPIES_AT_ONCE,
    POLL_SECONDS,
    MoveTask,
    Round,
    elect_preferred,
    execute,
    remove_throttles,
)
from ottla.operations.reassignment.journal import Journal, JournalError, journal_path, read_journal, write_journal
from ottla.operations.reassignment.moves import replicas_of
from ottla.operations.reassignment.plan import PlanError
from ottla.operations.topic_summary import partitions_without_preferred_leader

THROTTLE = 10_000_000  # bytes per second and broker, low enough not to slow producers
METADATA_TIMEOUT_SECONDS = 5.0  # until the metadata of our broker has the last changes

PlanMaker = Callable[[ClusterModel], MovePlan]


class Pace(NamedTuple):
    """How fast replicas move."""

    throttle: int | None = THROTTLE
    at_once: int = COPIES_AT_ONCE


class Outcome(NamedTuple):
    """The result of a journal."""

    moved: int
    elected: int
    refused: dict[TopicPartition, BrokerError]
    cancelled: list[TopicPartition]  # requested, but neither moving nor in place: cancelled by another client
    still_throttled: list[int]  # brokers that were down when the throttle was removed


class MoveCommand:
    """A command such as `balance` or `remove 2` with the journal of its cluster; a context manager that locks it."""

    def __init__(self, client: Client, command: str, folder: Path, pace: Pace) -> None:
        self._client = client
        self._command = command
        self._pace = pace
        self._lock: IO[str] | None = None
        self.path = journal_path(folder, describe_cluster(client).cluster_id)
        self.journal: Journal | None = None  # the last one of the cluster

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = open(self.path.with_suffix(".lock"), "w", encoding="utf-8")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise JournalError(
                "another command is moving replicas of this cluster: wait until it ends, or stop it"
            ) from None
        try:
            self.journal = read_journal(self.path)
        except BaseException:
            self._lock.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()

    def __repr__(self) -> str:
        return f"<MoveCommand {self._command}>"

    @property
    def unfinished(self) -> Journal | None:
        """The journal of a command that has not ended."""
        return self.journal if self.journal is not None and not self.journal.is_ended else None

    # ---- what to move

    def plan(self, make_plan: PlanMaker, measure_seconds: float) -> tuple[ClusterModel, MovePlan]:
        """Read the cluster and make a plan."""
        self.check_nothing_moves()
        model = load_cluster_model(self._client, measure_seconds)
        plan = make_plan(model)
        check_leaders(model, plan.rows)
        return model, plan

    def start(self, model: ClusterModel, plan: MovePlan, now_ms: int) -> Journal:
        """A journal for a new plan."""
        self.check_nothing_moves()  # check again: another client may have started moves during the measurement
        now = model.rows
        before = {name: now[name] for name in plan.rows}
        journal = Journal(self._command, model.cluster_id, now_ms, before, plan.rows, first=tuple(sorted(plan.urgent)))
        return self._save(self._with_pace(journal))

    def check_nothing_moves(self) -> None:
        moves = list_reassignments(self._client)
        if moves:
            raise PlanError(
                f"{format_count(len(moves), 'move', 'is')} in progress that another command started "
                "(ottla reassign list): wait until they finish, or cancel them (ottla reassign cancel)"
            )

    def resume(self, journal: Journal) -> Journal:
        if journal.command != self._command or journal.is_rollback:
            raise JournalError(
                f"`{journal.command_text}` is not finished: repeat it to resume, or cancel it: "
                f"ottla cluster {journal.command} --cancel"
            )
        return self._with_pace(journal)

    def rollback(self, now_ms: int) -> Journal:
        """The journal that reverts the last command; nothing is written yet."""
        if self.journal is None:
            raise JournalError(f"the previous assignment is unknown: {self.path} does not exist")
        self._check_command(self.journal)
        if self.journal.is_rollback:
            return self._with_pace(self.journal)
        now = replicas_of(Admin(self._client).topics(self.journal.topics))
        return self._with_pace(self.journal.rollback(now, now_ms))

    def _with_pace(self, journal: Journal) -> Journal:
        return journal._replace(throttle=self._pace.throttle, at_once=self._pace.at_once)

    def _check_command(self, journal: Journal) -> None:
        if journal.command != self._command:
            raise JournalError(
                f"the last command was `ottla cluster {journal.command}`, not `ottla cluster {self._command}`"
            )

    def _save(self, journal: Journal) -> Journal:
        write_journal(self.path, journal)
        self.journal = journal
        return journal

    # ---- execution

    def execute(self, journal: Journal, on_progress: Callable[[Round], None]) -> Outcome:
        """Run until everything is done. The brokers to throttle are written before it happens."""
        self._save(journal)
        throttled = set(journal.throttled)

        def record(brokers: set[int]) -> None:
            if not brokers <= throttled:
                throttled.update(brokers)
                self._save(journal._replace(throttled=tuple(sorted(throttled))))

        task = MoveTask(journal.after, journal.throttle, journal.at_once, journal.first)
        refused = execute(self._client, task, on_progress, record)
        return self._finish(journal._replace(throttled=tuple(sorted(throttled))), refused)

    def _finish(self, journal: Journal, refused: dict[TopicPartition, BrokerError]) -> Outcome:
        """Remove the throttle, elect preferred leaders, and close the journal."""
        client = self._client
        journal = self._without_throttles(journal)
        deadline_ms = client.clock.monotonic_ms() + int(METADATA_TIMEOUT_SECONDS * 1000)
        while True:
            topics = Admin(client).topics(journal.topics)
            now = replicas_of(topics)
            left = [
                name for name, row in journal.after.items() if name in now and now[name] != row and name not in refused
            ]
            if not left or client.clock.monotonic_ms() >= deadline_ms:
                break
            client.sleep(POLL_SECONDS)
        waiting = [
            name for name in partitions_without_preferred_leader(topics) if name in journal.after and name not in left
        ]
        elected, problems = elect_preferred(client, waiting)
        self._save(journal._replace(is_ended=True))
        moved = sum(now.get(name) == row for name, row in journal.after.items())
        return Outcome(moved, elected, refused | problems, left, list(journal.throttled))

    def cancel(self, journal: Journal) -> tuple[int, dict[TopicPartition, BrokerError]]:
        """Cancel the moves in progress and remove the throttle; returns the number of moves, and refusals."""
        self._check_command(journal)
        moves = [name for name in list_reassignments(self._client) if name in journal.after]
        refused = alter_reassignments(self._client, dict.fromkeys(moves)) if moves else {}
        refused = {name: why for name, why in refused.items() if why.error is not Error.NO_REASSIGNMENT_IN_PROGRESS}
        self._save(self._without_throttles(journal)._replace(is_ended=not refused))
        return len(moves) - len(refused), refused

    def _without_throttles(self, journal: Journal) -> Journal:
        """Remove the throttle of a journal; the result still lists the brokers that are down."""
        if journal.throttle is None and not journal.throttled:
            return journal
        topics = [topic.name for topic in Admin(self._client).topics(journal.topics)]
        return journal._replace(throttled=tuple(remove_throttles(self._client, journal.throttled, topics)))
