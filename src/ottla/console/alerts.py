"""Alerts inside the console: the monitor's rules, messages and history, with rules and receivers that pages change.

Rules:
1. All about alerts lies in one file, the monitor's ledger (`alerts.db`): rules, receivers, silences, what is open, what
   was, what is to be sent. Without that file nothing runs and nothing is loaded; the first change makes it.
2. A rule belongs to one cluster and has its name there; receivers serve all clusters.
3. Clusters come, go and change while alerts are open: an alert closes when nobody looks at its cluster any more, not
   because its cluster cannot be seen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ottla.base import tasks
from ottla.client.errors import ClientError
from ottla.monitor.alerts.entries import (
    ChannelEntry,
    ConfigError,
    RuleFields,
    SilenceEntry,
    channel_of,
    rule_of,
    silence_of,
)
from ottla.monitor.alerts.machine import Alert
from ottla.monitor.alerts.rules import Kind
from ottla.operations.errors import OperationError

if TYPE_CHECKING:
    from ottla.console.clusters.cluster import Cluster
    from ottla.console.console import Console
    from ottla.monitor.alerts.alerting import Alerting, AlertSettings
    from ottla.monitor.cluster_monitor import ClusterMonitor

logger = logging.getLogger(__name__)

FILE = "alerts.db"
RULE, RECEIVER, SILENCE = "rule", "channel", "silence"  # kinds of entries
PIPELINES = "-"  # the cluster of what belongs to none
LOOK_SECONDS = 1.0  # between looks at which clusters there are
RULES_MAX = 500
RECEIVERS_MAX = 50
SILENCES_MAX = 200


class Watching(NamedTuple):
    """A cluster that some rule looks at; without a monitor: `problem` says why."""

    cluster: Cluster
    monitor: ClusterMonitor | None
    problem: str = ""


class Alerts:
    """What pages know of alerts, and the way to change rules."""

    def __init__(self, console: Console, path: Path) -> None:
        self.console = console
        self.path = path
        self.allows_private = False
        self.trials = 0  # messages that somebody tries receivers with
        self.version = 0
        self.trouble = ""  # why nothing of it works
        self.rules: dict[tuple[str, str], RuleFields] = {}  # by cluster and name
        self.receivers: dict[str, ChannelEntry] = {}
        self.silences: dict[str, SilenceEntry] = {}
        self._alerting: Alerting | None = None
        self._watching: dict[str, Watching] = {}
        self._monitors: dict[str, ClusterMonitor | None] = {}  # what the rules look at
        self._opening = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Alerts {len(self.rules)} rules, {self._alerting}>"

    # What is known

    @property
    def open(self) -> Mapping[tuple[str, str, str], Alert]:
        return self._alerting.machine.open if self._alerting is not None else {}

    def open_in(self, cluster: str) -> list[Alert]:
        """The open alerts of a cluster, newest first."""
        names = self.names_of(cluster)
        return sorted((each for each in self.open.values() if each.cluster in names), key=lambda each: -each.opened_ms)

    def names_of(self, cluster: str) -> tuple[str, ...]:
        """What alerts of this cluster's page call their cluster: pipelines belong to none."""
        return (cluster, PIPELINES) if cluster == self.console.pipelines_cluster else (cluster,)

    def problem(self, cluster: str) -> str:
        """Why rules see nothing of a cluster; empty if they do."""
        watching = self._watching.get(cluster)
        if watching is None or self.trouble:
            return self.trouble
        return watching.problem or (watching.monitor.problem if watching.monitor is not None else "")

    async def history(self, cluster: str, limit: int) -> list[dict[str, object]]:
        if self._alerting is None:
            return []
        ledger = self._alerting.ledger
        found: list[dict[str, object]] = await self._alerting.on_disk(ledger.history, limit, self.names_of(cluster))
        return found

    async def unsent(self, limit: int) -> list[dict[str, object]]:
        if self._alerting is None:
            return []
        found: list[dict[str, object]] = await self._alerting.on_disk(self._alerting.ledger.problems, limit)
        return found

    # Changes: whoever calls has checked the entry

    async def put(self, kind: str, name: str, entry: RuleFields | ChannelEntry | SilenceEntry) -> None:
        alerting = await self._opened()
        await alerting.on_disk(alerting.ledger.put_entry, kind, name, msgspec.json.encode(entry).decode())
        await self._read_entries(alerting)

    async def drop(self, kind: str, name: str) -> None:
        alerting = await self._opened()
        await alerting.on_disk(alerting.ledger.drop_entry, kind, name)
        await self._read_entries(alerting)

    async def forget(self, cluster: str) -> None:
        """A cluster that is not there any more: another one may have its name one day."""
        for name in [f"{place}/{name}" for place, name in self.rules if place == cluster]:
            await self.drop(RULE, name)
        for name in [name for name in self.silences if name.startswith(f"{cluster}/")]:
            await self.drop(SILENCE, name)

    # Life

    def start(self) -> None:
        """Go on with what there was before; needs a running event loop."""
        if self.path.exists():
            tasks.start(self._resume(), "alerts of the console")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for watching in self._watching.values():
            if watching.monitor is not None:
                await watching.cluster.monitor.close()
        self._watching.clear()
        if self._alerting is not None:
            await self._alerting.stop()

    async def _resume(self) -> None:
        try:
            await self._opened()
        except OperationError as problem:
            self.trouble = str(problem)
            logger.error("no alerts: %s", problem)

    async def _opened(self) -> Alerting:
        """The driver of the rules, begun if it does not run yet. Raises OperationError."""
        async with self._opening:
            if self._alerting is None:
                alerting = await asyncio.to_thread(self._make)
                try:
                    await self._read_entries(alerting)
                except (ConfigError, msgspec.DecodeError) as problem:
                    await alerting.stop()
                    raise OperationError(f"{self.path} holds a rule of another version of ottla: {problem}") from None
                self._alerting = alerting
                await self._follow_clusters()
                alerting.start()
                self._task = tasks.keep_running(self._follow_always, "clusters with alerts")
            return self._alerting

    def _make(self) -> Alerting:
        from ottla.monitor.alerts.alerting import Alerting, AlertSettings  # noqa: PLC0415 (only where it is used)
        from ottla.monitor.alerts.ledger import Ledger, LedgerError  # noqa: PLC0415

        try:
            ledger = Ledger(self.path)
        except LedgerError as problem:
            raise OperationError(str(problem)) from None
        return Alerting(AlertSettings(), self._monitors, ledger, self.console.clock, self._tell)

    async def _read_entries(self, alerting: Alerting) -> None:
        def read() -> tuple[dict[str, str], ...]:
            return tuple(alerting.ledger.entries(kind) for kind in (RULE, RECEIVER, SILENCE))

        rules, receivers, silences = await alerting.on_disk(read)
        split = {name.partition("/"): text for name, text in rules.items()}
        self.rules = {(key[0], key[2]): msgspec.json.decode(text, type=RuleFields) for key, text in split.items()}
        self.receivers = {name: msgspec.json.decode(text, type=ChannelEntry) for name, text in receivers.items()}
        self.silences = {name: msgspec.json.decode(text, type=SilenceEntry) for name, text in silences.items()}
        alerting.settings = self._settings()
        self._tell()

    def _settings(self) -> AlertSettings:
        from ottla.monitor.alerts.alerting import AlertSettings  # noqa: PLC0415 (only where it is used)

        private = self.allows_private
        channels = {
            name: channel_of(name, msgspec.structs.replace(entry, allow_private=private))
            for name, entry in self.receivers.items()
        }
        rules = tuple(
            rule_of(name, cluster, entry, channels, has_pipelines=True) for (cluster, name), entry in self.rules.items()
        )
        silences = tuple(silence_of(entry) for entry in self.silences.values())
        return AlertSettings(rules, channels, silences, (self.console.pipelines,))

    def live_silences(self) -> dict[str, SilenceEntry]:
        """Those that have not ended."""
        now = datetime.fromtimestamp(self.console.clock.now_ms() / 1000, UTC)
        return {name: each for name, each in self.silences.items() if each.until is not None and each.until > now}

    def _tell(self) -> None:
        self.version += 1
        self.console.tell()

    async def _follow_always(self) -> None:
        while True:
            await self._follow_clusters()
            await asyncio.sleep(LOOK_SECONDS)

    async def _follow_clusters(self) -> None:
        """Have a monitor for each cluster that some rule looks at, and for no other."""
        kinds: dict[str, list[RuleFields]] = {}
        for (name, _), rule in self.rules.items():
            if rule.when is not Kind.PIPELINE and name in self.console.clusters:
                kinds.setdefault(name, []).append(rule)
        for name, watching in list(self._watching.items()):
            if name not in kinds or self.console.clusters[name] is not watching.cluster:
                del self._watching[name]
                self._monitors.pop(name, None)
                if watching.monitor is not None:
                    await watching.cluster.monitor.close()
        for name, rules in kinds.items():
            if name not in self._watching and name in self.console.clusters:
                self._watching[name] = watching = await self._watch(self.console.clusters[name])
                self._monitors[name] = watching.monitor
            monitor = self._monitors.get(name)
            if monitor is not None:
                look_for(monitor, rules)

    async def _watch(self, cluster: Cluster) -> Watching:
        try:
            return Watching(cluster, await cluster.monitor.open())
        except ClientError as problem:  # a package or a login that the library lacks: nothing will change that
            logger.warning("alerts see nothing of %s: %s", cluster.name, problem)
            return Watching(cluster, None, str(problem))


def look_for(monitor: ClusterMonitor, rules: list[RuleFields]) -> None:
    """Have a monitor look at what these rules are about."""
    kinds = {rule.when for rule in rules}
    dead = {rule.topic or "*-dead-letters" for rule in rules if rule.when is Kind.DEAD_LETTERS}
    monitor.look_for(tuple(sorted(dead)), with_folders=Kind.DISK in kinds, with_min_isr=Kind.UNDER_MIN_ISR in kinds)
