"""Alerts inside the console: the monitor's alerting, with rules, receivers and silences that users edit in pages.

Rules:
1. One file, the monitor's ledger (`alerts.db`), stores rules, receivers, silences, open and past alerts, and the
   outbox. Without that file no alerting code is loaded or run; the first change creates it.
2. The name of a rule is unique within its cluster; receivers serve all clusters.
3. Clusters are added, removed and changed while alerts are open. An alert closes when its cluster is no longer
   monitored, but not because its cluster is unreachable.
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
from ottla.console.slots import Slots
from ottla.monitor.alerts.alert_states import Alert, Condition
from ottla.monitor.alerts.rule_entries import (
    ChannelEntry,
    ConfigError,
    RuleFields,
    SilenceEntry,
    channel_of,
    rule_of,
    silence_of,
)
from ottla.operations.errors import OperationError

if TYPE_CHECKING:
    from ottla.console.clusters.cluster import Cluster
    from ottla.console.console import Console
    from ottla.monitor.alerts.alert_manager import AlertManager, AlertSettings
    from ottla.monitor.cluster_monitor import ClusterMonitor

logger = logging.getLogger(__name__)

FILE = "alerts.db"
RULE, RECEIVER, SILENCE = "rule", "channel", "silence"  # kinds of entries
PIPELINE_CLUSTER = "-"  # stored in place of a cluster: pipelines belong to none
POLL_SECONDS = 1.0  # between comparisons with the clusters of the console
RULES_MAX = 500
RECEIVERS_MAX = 50
SILENCES_MAX = 200
TESTS_MAX = 2  # test messages; they occupy threads of the shared pool


class WatchedCluster(NamedTuple):
    """A cluster with rules. `monitor` is None if it could not be opened; `problem` has the reason."""

    cluster: Cluster
    monitor: ClusterMonitor | None
    problem: str = ""


class Alerts:
    """Alerts, rules, receivers and silences of all clusters."""

    def __init__(self, console: Console, path: Path) -> None:
        self.console = console
        self.path = path
        self.allows_private = False
        self.tests = Slots(TESTS_MAX, "{0} test messages are being sent: wait", 5)
        self.version = 0
        self.error = ""  # why alerting does not run
        self.rules: dict[tuple[str, str], RuleFields] = {}  # by cluster and name
        self.receivers: dict[str, ChannelEntry] = {}
        self.silences: dict[str, SilenceEntry] = {}
        self._alerting: AlertManager | None = None
        self._watched: dict[str, WatchedCluster] = {}
        self._monitors: dict[str, ClusterMonitor | None] = {}  # by cluster, shared with the alert manager
        self._open_lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Alerts {len(self.rules)} rules, {self._alerting}>"

    # ---- state

    @property
    def open_alerts(self) -> Mapping[tuple[str, str, str], Alert]:
        return self._alerting.machine.open if self._alerting is not None else {}

    def open_alerts_of(self, cluster: str) -> list[Alert]:
        """The open alerts of a cluster, newest first."""
        names = self.alert_cluster_names(cluster)
        return sorted(
            (each for each in self.open_alerts.values() if each.cluster in names), key=lambda each: -each.opened_ms
        )

    def alert_cluster_names(self, cluster: str) -> tuple[str, ...]:
        """The cluster names of alerts on this cluster's page; alerts of pipelines have the name "-"."""
        return (cluster, PIPELINE_CLUSTER) if cluster == self.console.pipelines_cluster else (cluster,)

    def problem(self, cluster: str) -> str:
        """Why the rules of a cluster cannot be evaluated; empty if they can."""
        watching = self._watched.get(cluster)
        if watching is None or self.error:
            return self.error
        return watching.problem or (watching.monitor.problem if watching.monitor is not None else "")

    async def history(self, cluster: str, limit: int) -> list[dict[str, object]]:
        if self._alerting is None:
            return []
        ledger = self._alerting.ledger
        found: list[dict[str, object]] = await self._alerting.on_disk(
            ledger.history, limit, self.alert_cluster_names(cluster)
        )
        return found

    async def unsent(self, limit: int) -> list[dict[str, object]]:
        if self._alerting is None:
            return []
        found: list[dict[str, object]] = await self._alerting.on_disk(self._alerting.ledger.failed_messages, limit)
        return found

    # ---- changes; the caller has checked the entry

    async def put(self, kind: str, name: str, entry: RuleFields | ChannelEntry | SilenceEntry) -> None:
        alerting = await self._ensure_open()
        await alerting.on_disk(alerting.ledger.put_entry, kind, name, msgspec.json.encode(entry).decode())
        await self._read_entries(alerting)

    async def delete(self, kind: str, name: str) -> None:
        alerting = await self._ensure_open()
        await alerting.on_disk(alerting.ledger.drop_entry, kind, name)
        await self._read_entries(alerting)

    async def delete_cluster(self, cluster: str) -> None:
        """Delete the rules and silences of a removed cluster; its name may be used again."""
        for name in [f"{place}/{name}" for place, name in self.rules if place == cluster]:
            await self.delete(RULE, name)
        for name in [name for name in self.silences if name.startswith(f"{cluster}/")]:
            await self.delete(SILENCE, name)

    # ---- start and stop

    def start(self) -> None:
        """Resume if there is a ledger; needs a running event loop."""
        if self.path.exists():
            tasks.spawn(self._resume(), "alerts of the console")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for watching in self._watched.values():
            if watching.monitor is not None:
                await watching.cluster.monitor.close()
        self._watched.clear()
        if self._alerting is not None:
            await self._alerting.stop()

    async def _resume(self) -> None:
        try:
            await self._ensure_open()
        except OperationError as problem:
            self.error = str(problem)
            logger.error("no alerts: %s", problem)

    async def _ensure_open(self) -> AlertManager:
        """The alert manager, started on first use. Raises OperationError."""
        async with self._open_lock:
            if self._alerting is None:
                alerting = await asyncio.to_thread(self._create_alerting)
                try:
                    await self._read_entries(alerting)
                except (ConfigError, msgspec.DecodeError) as problem:
                    await alerting.stop()
                    words = f"{self.path} contains a rule of another version of ottla: {problem}"
                    raise OperationError(words) from None
                self._alerting = alerting
                await self._update_monitors()
                alerting.start()
                self._task = tasks.spawn_restarting(self._run, "clusters with alerts")
            return self._alerting

    def _create_alerting(self) -> AlertManager:
        from ottla.monitor.alerts.alert_manager import AlertManager, AlertSettings  # noqa: PLC0415 (loaded on first use)
        from ottla.monitor.alerts.ledger import AlertStore, AlertStoreError  # noqa: PLC0415

        try:
            ledger = AlertStore(self.path)
        except AlertStoreError as problem:
            raise OperationError(str(problem)) from None
        return AlertManager(AlertSettings(), self._monitors, ledger, self.console.clock, self._notify)

    async def _read_entries(self, alerting: AlertManager) -> None:
        def read() -> tuple[dict[str, str], ...]:
            return tuple(alerting.ledger.entries(kind) for kind in (RULE, RECEIVER, SILENCE))

        rules, receivers, silences = await alerting.on_disk(read)
        split = {name.partition("/"): text for name, text in rules.items()}
        self.rules = {(key[0], key[2]): msgspec.json.decode(text, type=RuleFields) for key, text in split.items()}
        self.receivers = {name: msgspec.json.decode(text, type=ChannelEntry) for name, text in receivers.items()}
        self.silences = {name: msgspec.json.decode(text, type=SilenceEntry) for name, text in silences.items()}
        alerting.settings = self._settings()
        self._notify()

    def _settings(self) -> AlertSettings:
        from ottla.monitor.alerts.alert_manager import AlertSettings  # noqa: PLC0415 (loaded on first use)

        private = self.allows_private
        channels = {
            name: channel_of(name, msgspec.structs.replace(entry, allow_private=private))
            for name, entry in self.receivers.items()
        }
        rules = tuple(
            rule_of(name, cluster, entry, channels, has_pipelines=True) for (cluster, name), entry in self.rules.items()
        )
        silences = tuple(silence_of(entry) for entry in self.silences.values())
        return AlertSettings(rules, channels, silences, (self.console.pipelines_folder,))

    def active_silences(self) -> dict[str, SilenceEntry]:
        """Silences that have not ended."""
        now = datetime.fromtimestamp(self.console.clock.now_ms() / 1000, UTC)
        return {name: each for name, each in self.silences.items() if each.until is not None and each.until > now}

    def _notify(self) -> None:
        self.version += 1
        self.console.notify()

    async def _run(self) -> None:
        while True:
            await self._update_monitors()
            await asyncio.sleep(POLL_SECONDS)

    async def _update_monitors(self) -> None:
        """Open a monitor for each cluster with rules, and close all others."""
        kinds: dict[str, list[RuleFields]] = {}
        for (name, _), rule in self.rules.items():
            if rule.when is not Condition.PIPELINE and name in self.console.clusters:
                kinds.setdefault(name, []).append(rule)
        for name, watching in list(self._watched.items()):
            if name not in kinds or self.console.clusters[name] is not watching.cluster:
                del self._watched[name]
                self._monitors.pop(name, None)
                if watching.monitor is not None:
                    await watching.cluster.monitor.close()
        for name, rules in kinds.items():
            if name not in self._watched and name in self.console.clusters:
                self._watched[name] = watching = await self._open_monitor(self.console.clusters[name])
                self._monitors[name] = watching.monitor
            monitor = self._monitors.get(name)
            if monitor is not None:
                configure_monitor(monitor, rules)

    async def _open_monitor(self, cluster: Cluster) -> WatchedCluster:
        try:
            return WatchedCluster(cluster, await cluster.monitor.open())
        except ClientError as problem:  # permanent: the library lacks a package or this kind of login
            logger.warning("alerts cannot monitor %s: %s", cluster.name, problem)
            return WatchedCluster(cluster, None, str(problem))


def configure_monitor(monitor: ClusterMonitor, rules: list[RuleFields]) -> None:
    """Configure a monitor to observe what these rules need."""
    kinds = {rule.when for rule in rules}
    dead = {rule.topic or "*-dead-letters" for rule in rules if rule.when is Condition.DEAD_LETTERS}
    monitor.configure_rules(
        tuple(sorted(dead)), with_folders=Condition.DISK in kinds, with_min_isr=Condition.UNDER_MIN_ISR in kinds
    )
