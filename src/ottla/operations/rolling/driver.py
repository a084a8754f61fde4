"""A roll under way: looks at the cluster, asks roll.py what to do, and does it. It decides nothing itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.cluster import describe_cluster
from ottla.client.errors import ClientError
from ottla.client.reassignments import list_reassignments
from ottla.operations.maintenance import (
    NoMaintenanceError,
    begin_maintenance,
    end_maintenance,
    give_leaders_back,
    maintenance_ends,
)
from ottla.operations.rolling.command import RunningCommand, command_for
from ottla.operations.rolling.facts import BrokerSeen, Look, holders
from ottla.operations.rolling.roll import Act, Left, Roll, RollState, Step
from ottla.operations.topic_replicas import min_isr

LOOK_SECONDS: Final = 0.25
MINIMUMS_SECONDS: Final = 30.0  # settings of topics change rarely, and there are many of them


class Looker:
    """Asks the controller: who comes from elsewhere hears of changes a moment later."""

    def __init__(self, client: Client, now: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._now = now
        self._minimums: dict[str, int] = {}
        self._known_at: float | None = None

    def look(self) -> Look:
        """Raises ClientError."""
        client = self._client
        client.metadata = None  # the controller may be another one by now
        cluster = describe_cluster(client, is_decisive=True)
        topics = Admin(client).topics(is_decisive=True)
        names = [topic.name for topic in topics]
        if (
            self._known_at is None
            or self._now() - self._known_at > MINIMUMS_SECONDS
            or set(names) - set(self._minimums)
        ):
            configs = Admin(client).topic_configs(names)
            self._minimums = {name: min_isr(settings) for name, settings in configs.items()}
            self._known_at = self._now()
        seen = {
            row.broker_id: BrokerSeen(row.broker_id, row.host, row.port, row.rack, row.broker_epoch)
            for row in cluster.brokers
            if not row.is_fenced
        }
        look = Look(cluster.controller_id, seen, topics, frozenset(list_reassignments(client)), self._minimums)
        wall_ms = int(time.time() * 1000)
        ends = maintenance_ends(client, sorted(holders(look)))
        return look._replace(maintained=frozenset(broker for broker, end_ms in ends.items() if end_ms > wall_ms))


class Driver:
    """Runs a roll to its end: FINISH or STOP."""

    def __init__(
        self,
        client: Client,
        roll: Roll,
        template: str,
        *,
        save: Callable[[RollState], None],
        tell: Callable[[Step], None],
        note: Callable[[str], None],
    ) -> None:
        self._client = client
        self._roll = roll
        self._template = template
        self._save = save
        self._tell = tell
        self._note = note
        self._looker = Looker(client)
        self._command: RunningCommand | None = None
        self._look: Look | None = None
        self._maintained: frozenset[int] = frozenset()
        self._is_cut = False

    def run(self) -> Step:
        try:
            while True:
                step = self._decide()
                self._save(self._roll.state)
                self._tell(step)
                if step.act in (Act.STOP, Act.FINISH):
                    return step
                self._do(step)
                if step.act is Act.WAIT:
                    time.sleep(LOOK_SECONDS)
        finally:
            self._end_command()

    def left_behind(self) -> Left:
        """What is to be told of the broker that the roll was at, when it has ended before its end."""
        return Left(self._roll.state.at, self._roll.is_maintained(self._maintained), self._is_cut)

    def _decide(self) -> Step:
        try:
            self._look = self._looker.look()
            self._maintained = self._look.maintained
        except ClientError as problem:
            if problem.error is not None and "AUTH" in problem.error.name:
                raise  # time gives nobody rights
            self._look = None
        command = self._command.look() if self._command is not None else None
        return self._roll.decide(self._look, _monotonic_ms(), command, int(time.time() * 1000))

    def _do(self, step: Step) -> None:
        if step.act is Act.MAINTAIN:
            try:
                begin_maintenance(self._client, step.broker, step.until_ms)
            except NoMaintenanceError as problem:
                self._roll.has_maintenance = False
                self._note(f"leaders leave brokers only when these stop: {problem}")
        elif step.act is Act.RUN:
            assert self._look is not None
            self._command = RunningCommand(command_for(self._template, self._look.brokers[step.broker]))
        elif step.act is Act.RELEASE:
            self._end_command()
            if self._roll.has_maintenance:
                end_maintenance(self._client, step.broker)
            assert self._look is not None
            give_leaders_back(self._client, step.broker, self._look.topics)

    def _end_command(self) -> None:
        if self._command is not None:
            self._is_cut = self._command.end()
            self._command = None

    def __repr__(self) -> str:
        return f"<Driver {self._roll!r} {self._command!r}>"


def _monotonic_ms() -> int:
    return int(time.monotonic() * 1000)
