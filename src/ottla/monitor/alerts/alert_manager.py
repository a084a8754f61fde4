"""The alert manager: evaluates rules every few seconds, persists events, and sends messages.

Rules:
1. Events are persisted before they are sent (ledger.py). A failed message is retried with growing pauses, and given up
   after GIVE_UP_MS, which is visible in the API.
2. All events of one evaluation go to a channel in one message: a dead broker must not cause a hundred messages.
3. File and socket I/O runs in threads, so a hanging channel delays no other.

Pipelines are observed through their state folders, whose files may be damaged, of another version, or missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.base.clock import Clock, SystemClock
from ottla.base.tasks import spawn, spawn_restarting
from ottla.monitor.alerts.alert_states import AlertStates, Condition, Event, Rule, Silence
from ottla.monitor.alerts.conditions import GROUP_CONDITIONS, ClusterView, Findings, evaluate_rule
from ottla.monitor.alerts.delivery import Channel, DeliveryError, send
from ottla.monitor.alerts.ledger import AlertStore, Message
from ottla.monitor.cluster_monitor import ClusterMonitor
from ottla.monitor.lag_evaluation import GroupVerdict
from ottla.operations.pipeline_runs.statuses import KILLED, Status, list_runs


def evaluate_pipeline_rule(rule: Rule, folders: Iterable[Path]) -> Findings:
    """Failed, killed and lagging pipelines. Blocking: reads files. `above` is the lag limit in
    records; 0: unlimited.
    """
    found: Findings = {}
    for folder in folders:
        for status in list_runs(folder):
            trouble = _pipeline_problem(rule, status) if fnmatchcase(status.name, rule.pipeline) else ""
            if trouble:
                found[f"pipeline {status.name}"] = trouble
    return found


def _pipeline_problem(rule: Rule, status: Status) -> str:
    if status.state == "failed":
        return f"failed: {status.reason or 'no reason given'}"
    if status.state == KILLED:
        return "the process ended without a final status"
    for query in status.queries:
        if query.error:
            return f"{query.query}: {query.error}"
    lags = [query.lag for query in status.queries if isinstance(query.lag, int)]
    if status.is_live and rule.above > 0 and max(lags, default=0) > rule.above:
        return f"{max(lags)} records behind, more than {rule.above:g}"
    return ""


logger = logging.getLogger(__name__)

EVALUATION_SECONDS: Final = 3.0
SEND_SECONDS: Final = 0.5
PAUSE_MS_MIN: Final = 5_000
PAUSE_MS_MAX: Final = 600_000
GIVE_UP_MS: Final = 86_400_000
PRUNE_EVALUATIONS: Final = 1_000
HISTORY_MAX: Final = 200
SENDER_THREADS: Final = 4
NO_CLUSTER: Final = "-"  # the cluster name of pipeline alerts


class AlertSettings(NamedTuple):
    """The alert settings of the configuration."""

    rules: tuple[Rule, ...] = ()
    channels: Mapping[str, Channel] = {}
    silences: tuple[Silence, ...] = ()
    pipeline_folders: tuple[Path, ...] = ()
    brokers_wanted: Mapping[str, Sequence[int]] = {}


class AlertManager:
    """Runs the rules against all clusters, and delivers messages."""

    def __init__(
        self,
        settings: AlertSettings,
        clusters: Mapping[str, ClusterMonitor | None],
        ledger: AlertStore,
        clock: Clock | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Settings and clusters may change at run time; a cluster that is None is not reachable yet."""
        self.settings = settings
        self.clusters = clusters
        self.on_change = on_change
        self.clock = clock or SystemClock()
        self.machine = AlertStates(ledger.open_alerts())
        self.ledger = ledger
        self._disk = ThreadPoolExecutor(1, "alert-ledger")
        self._senders = ThreadPoolExecutor(SENDER_THREADS, "alert-sender")
        # by cluster and group: version of the input, and verdict
        self._verdict_cache: dict[str, dict[str, tuple[object, GroupVerdict]]] = {}
        self._busy: set[str] = set()  # channels with a message in flight
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Requires a running event loop."""
        self._tasks = [
            spawn_restarting(loop, f"alerts: {loop.__name__}") for loop in (self._evaluate_loop, self._send_loop)
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(self._disk, self.ledger.close)
        self._disk.shutdown(wait=False)
        self._senders.shutdown(wait=False, cancel_futures=True)

    async def status(self) -> dict[str, object]:
        """Open alerts, the latest history, and unsent messages."""
        history = await self.on_disk(self.ledger.history, HISTORY_MAX)
        problems = await self.on_disk(self.ledger.failed_messages, HISTORY_MAX)
        return {
            "open": [alert._asdict() for alert in self.machine.open.values()],
            "history": history,
            "unsent": problems,
        }

    async def evaluate(self) -> list[Event]:
        """Evaluate all rules once; the events are persisted when this returns."""
        now_ms = self.clock.now_ms()
        before = dict(self.machine.open)
        pairs = [(rule, name) for rule in self.settings.rules for name in self._clusters_of(rule)]
        monitors = {name: monitor for name, monitor in self.clusters.items() if monitor is not None}
        views = {name: await self._view(monitor) for name, monitor in monitors.items()}
        self._verdict_cache = {name: judged for name, judged in self._verdict_cache.items() if name in monitors}
        events = self.machine.close_removed({(rule.name, name) for rule, name in pairs}, now_ms)
        for rule, name in pairs:
            if name == NO_CLUSTER:
                found = await self.on_disk(evaluate_pipeline_rule, rule, self.settings.pipeline_folders)
            else:
                found = evaluate_rule(rule, views[name], now_ms) if name in views else None
            events += self._decide(rule, name, found, now_ms)
        if self.machine.open != before:
            self.on_change()
        if events:
            for event in events:
                logger.warning(
                    "alert %s: %s %s: %s", event.step, event.alert.rule, event.alert.subject, event.alert.text
                )
            await self.on_disk(self.ledger.record, events, self._messages(events), now_ms)
        return events

    def _clusters_of(self, rule: Rule) -> list[str]:
        if rule.kind is Condition.PIPELINE:
            return [NO_CLUSTER]
        return [name for name in self.clusters if fnmatchcase(name, rule.cluster)]

    async def _evaluate_loop(self) -> None:
        looks = 0
        while True:
            await self.evaluate()
            if looks % PRUNE_EVALUATIONS == 0:
                await self.on_disk(self.ledger.prune)
            looks += 1
            await asyncio.sleep(EVALUATION_SECONDS)

    async def _send_loop(self) -> None:
        while True:
            for message in await self.on_disk(self.ledger.due_messages, self.clock.now_ms()):
                if message.channel not in self._busy:  # messages of a channel are sent in order, one at a time
                    self._busy.add(message.channel)
                    spawn(self._send(message), f"alert message to {message.channel}")
            await asyncio.sleep(SEND_SECONDS)

    async def _send(self, message: Message) -> None:
        try:
            channel = self.settings.channels.get(message.channel)
            if channel is None:
                await self._note_failure(message, "the channel no longer exists", None)
                return
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(self._senders, send, channel, message.events, self.clock)
            except DeliveryError as problem:
                await self._note_failure(message, str(problem), self._next_attempt_ms(message))
            else:
                await self.on_disk(self.ledger.mark_sent, message, self.clock.now_ms())
        finally:
            self._busy.discard(message.channel)

    async def _note_failure(self, message: Message, problem: str, next_ms: int | None) -> None:
        what = "given up" if next_ms is None else "tried again"
        logger.warning("a message to %s was rejected and is %s: %s", message.channel, what, problem)
        await self.on_disk(self.ledger.mark_failed, message, problem, next_ms, self.clock.now_ms())

    def _next_attempt_ms(self, message: Message) -> int | None:
        now_ms = self.clock.now_ms()
        if now_ms - message.events[0].at_ms > GIVE_UP_MS:
            return None
        return now_ms + min(PAUSE_MS_MIN << min(message.attempts, 10), PAUSE_MS_MAX)

    def _decide(self, rule: Rule, cluster: str, found: Findings | None, now_ms: int) -> list[Event]:
        now = datetime.fromtimestamp(now_ms / 1000, UTC)

        def is_silenced(subject: str) -> bool:
            return any(silence.matches(rule.name, cluster, subject, now) for silence in self.settings.silences)

        return self.machine.update(rule, cluster, found, now_ms, is_silenced)

    def _messages(self, events: Sequence[Event]) -> list[tuple[str, list[Event]]]:
        """Messages by channel. A closing goes to the channels that got the opening, whatever the rule says now."""
        found: dict[str, list[Event]] = {}
        for event in events:
            channels = event.alert.channels if event.alert.channels is not None else self.settings.channels
            for channel in channels if event.is_message else ():
                if channel in self.settings.channels:
                    found.setdefault(channel, []).append(event)
        return list(found.items())

    async def _view(self, monitor: ClusterMonitor) -> ClusterView:
        verdicts = await self._verdicts(monitor) if monitor.is_ready else {}
        return ClusterView(
            facts=monitor.facts,
            is_stale=monitor.is_lost,
            is_ready=monitor.is_ready,
            problem=monitor.problem,
            verdicts=verdicts,
            ends=monitor.store.ends,
            folders=monitor.log_dirs,
            min_isr=monitor.min_isr,
            brokers_seen_ms=monitor.brokers_seen_ms,
            brokers_wanted=self.settings.brokers_wanted.get(monitor.name, ()),
        )

    async def _verdicts(self, monitor: ClusterMonitor) -> dict[str, GroupVerdict]:
        """The verdicts of the groups with rules. A group without new commits since the last end offsets is not
        evaluated again: with thousands of groups this is most of the work.
        """
        patterns = {rule.group for rule in self.settings.rules if rule.kind in GROUP_CONDITIONS}
        before = self._verdict_cache.get(monitor.name, {})
        judged: dict[str, tuple[object, GroupVerdict]] = {}
        for group in monitor.groups() if patterns else ():
            if not any(fnmatchcase(group, pattern) for pattern in patterns):
                continue
            news = monitor.group_version(group)
            if group in before and before[group][0] == news:
                judged[group] = before[group]
                continue
            verdict = await monitor.verdict_in_slices(group)
            if verdict is not None:
                judged[group] = news, verdict
            await asyncio.sleep(0)
        self._verdict_cache[monitor.name] = judged
        return {group: verdict for group, (_, verdict) in judged.items()}

    async def on_disk(self, work: Any, *arguments: object) -> Any:
        """Run in the ledger's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._disk, work, *arguments)

    def __repr__(self) -> str:
        return f"<AlertManager {len(self.settings.rules)} rules, {self.machine!r}>"
