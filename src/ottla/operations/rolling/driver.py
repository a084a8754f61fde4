"""Executes a rolling restart: reads the cluster, asks roll.py for the next step, and performs it.

The restart command may contain `{id}`, `{host}`, `{port}` and `{rack}`, which are replaced by the broker's metadata;
`{{` and `}}` are literal braces. Values are quoted for the shell, because a broker chooses its own names.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Final

from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.cluster import describe_cluster
from ottla.client.errors import ClientError
from ottla.client.reassignments import list_reassignments
from ottla.operations.errors import WrongInputError
from ottla.operations.maintenance import (
    NoMaintenanceError,
    begin_maintenance,
    elect_preferred_leaders,
    end_maintenance,
    maintenance_ends,
)
from ottla.operations.rolling.roll import (
    Action,
    ClusterState,
    CommandState,
    Leftovers,
    RegisteredBroker,
    RollingRestart,
    RollState,
    Step,
    all_brokers,
)
from ottla.operations.topic_summary import min_isr

_WORDS: Final = re.compile(r"\{\{|\}\}|\{([A-Za-z_]*)\}")
_NAMES: Final = ("id", "host", "port", "rack")
_LAST_BYTES: Final = 4096
_GRACE_SECONDS: Final = 5.0


def command_for(template: str, broker: RegisteredBroker) -> str:
    """The command line for one broker. Raises WrongInputError for an unknown placeholder."""
    values = {"id": str(broker.id), "host": broker.host, "port": str(broker.port), "rack": broker.rack or ""}

    def word(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        if match[1] not in values:
            known = ", ".join(f"{{{name}}}" for name in _NAMES)
            raise WrongInputError(f"--command: {match[0]} is none of {known}; write {{{{ and }}}} for braces")
        return shlex.quote(values[match[1]])

    return _WORDS.sub(word, template)


def depends_on_broker(template: str) -> bool:
    """Whether the command differs between brokers."""
    return any(match[1] in _NAMES and match[1] != "rack" for match in _WORDS.finditer(template))


class RunningCommand:
    """A shell in a process group of its own. Its output goes to a file, so background processes that keep the output
    open do not block us.
    """

    def __init__(self, line: str) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `close`)
        self._process = subprocess.Popen(  # noqa: S603 (the operator's own words)
            ["/bin/sh", "-c", line],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def poll(self) -> CommandState:
        code = self._process.poll()
        return CommandState(code, self._output_tail() if code else "")

    def kill(self) -> bool:
        """Kill what still runs, and release the output; returns whether it ran."""
        is_running = self._process.poll() is None
        if is_running:
            self._signal(signal.SIGTERM)
            try:
                self._process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                self._process.wait()
        self._output.close()
        return is_running

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _output_tail(self) -> str:
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - _LAST_BYTES))
        lines = self._output.read().decode("utf-8", "backslashreplace").split("\n")
        return " | ".join(line.strip() for line in lines if line.strip())[-400:] if size else ""

    def __repr__(self) -> str:
        return f"<RunningCommand {self._process.pid} code={self._process.poll()}>"


POLL_SECONDS: Final = 0.25
MIN_ISR_CACHE_SECONDS: Final = 30.0  # topic settings change rarely, and there are many of them


class ClusterReader:
    """Reads the cluster state from the controller, whose metadata is the newest."""

    def __init__(self, client: Client, now: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._now = now
        self._min_isr_by_topic: dict[str, int] = {}
        self._known_at: float | None = None

    def read(self) -> ClusterState:
        """Raises ClientError."""
        client = self._client
        client.metadata = None  # the controller may have changed
        cluster = describe_cluster(client, from_controller=True)
        topics = Admin(client).topics(from_controller=True)
        names = [topic.name for topic in topics]
        if (
            self._known_at is None
            or self._now() - self._known_at > MIN_ISR_CACHE_SECONDS
            or set(names) - set(self._min_isr_by_topic)
        ):
            configs = Admin(client).topic_configs(names)
            self._min_isr_by_topic = {name: min_isr(settings) for name, settings in configs.items()}
            self._known_at = self._now()
        seen = {
            row.broker_id: RegisteredBroker(row.broker_id, row.host, row.port, row.rack, row.broker_epoch)
            for row in cluster.brokers
            if not row.is_fenced
        }
        look = ClusterState(
            cluster.controller_id, seen, topics, frozenset(list_reassignments(client)), self._min_isr_by_topic
        )
        wall_ms = int(time.time() * 1000)
        ends = maintenance_ends(client, sorted(all_brokers(look)))
        return look._replace(in_maintenance=frozenset(broker for broker, end_ms in ends.items() if end_ms > wall_ms))


class Driver:
    """Runs a rolling restart until FINISH or STOP."""

    def __init__(
        self,
        client: Client,
        roll: RollingRestart,
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
        self._looker = ClusterReader(client)
        self._command: RunningCommand | None = None
        self._look: ClusterState | None = None
        self._maintained: frozenset[int] = frozenset()
        self._is_cut = False

    def run(self) -> Step:
        try:
            while True:
                step = self._decide()
                self._save(self._roll.state)
                self._tell(step)
                if step.action in (Action.STOP, Action.FINISH):
                    return step
                self._do(step)
                if step.action is Action.WAIT:
                    time.sleep(POLL_SECONDS)
        finally:
            self._end_command()

    def leftovers(self) -> Leftovers:
        """What the user needs to know about the current broker if the roll ended early."""
        return Leftovers(self._roll.state.current, self._roll.is_maintained(self._maintained), self._is_cut)

    def _decide(self) -> Step:
        try:
            self._look = self._looker.read()
            self._maintained = self._look.in_maintenance
        except ClientError as problem:
            if problem.error is not None and "AUTH" in problem.error.name:
                raise  # retries do not help
            self._look = None
        command = self._command.poll() if self._command is not None else None
        return self._roll.decide(self._look, _monotonic_ms(), command, int(time.time() * 1000))

    def _do(self, step: Step) -> None:
        if step.action is Action.MAINTAIN:
            try:
                begin_maintenance(self._client, step.broker, step.until_ms)
            except NoMaintenanceError as problem:
                self._roll.has_maintenance = False
                self._note(f"leaders leave a broker only when it stops: {problem}")
        elif step.action is Action.RUN:
            assert self._look is not None
            self._command = RunningCommand(command_for(self._template, self._look.brokers[step.broker]))
        elif step.action is Action.RELEASE:
            self._end_command()
            if self._roll.has_maintenance:
                end_maintenance(self._client, step.broker)
            assert self._look is not None
            elect_preferred_leaders(self._client, step.broker, self._look.topics)

    def _end_command(self) -> None:
        if self._command is not None:
            self._is_cut = self._command.kill()
            self._command = None

    def __repr__(self) -> str:
        return f"<Driver {self._roll!r} {self._command!r}>"


def _monotonic_ms() -> int:
    return int(time.monotonic() * 1000)
