"""Looks by the rules every few seconds, writes down what happened, and sends what is to be told.

Rules:
1. Nothing is sent that is not written down first (ledger.py). What could not be sent is tried again with growing
   pauses, and given up after GIVE_UP_MS: that, too, can be seen.
2. All that happens at one look goes to a channel in one message: a broker that dies must not ring a hundred times.
3. Files and sockets are left to threads; one channel that hangs holds up no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.base.clock import Clock, SystemClock
from ottla.base.tasks import keep_running, start
from ottla.monitor.alerts.delivery import Channel, DeliveryError, send
from ottla.monitor.alerts.ledger import Ledger, Message
from ottla.monitor.alerts.machine import AlertMachine, Event
from ottla.monitor.alerts.observing import OF_GROUPS, Findings, View, observe
from ottla.monitor.alerts.pipelines import observe_pipelines
from ottla.monitor.alerts.rules import Kind, Rule, Silence
from ottla.monitor.cluster_monitor import ClusterMonitor
from ottla.monitor.evaluation import GroupVerdict

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 3.0
SEND_SECONDS: Final = 0.5
PAUSE_MS_MIN: Final = 5_000
PAUSE_MS_MAX: Final = 600_000
GIVE_UP_MS: Final = 86_400_000
PRUNE_LOOKS: Final = 1_000
HISTORY_MAX: Final = 200
SENDERS: Final = 4
NO_CLUSTER: Final = "-"  # what a pipeline belongs to


class AlertSettings(NamedTuple):
    """What the configuration says about alerts."""

    rules: tuple[Rule, ...] = ()
    channels: Mapping[str, Channel] = {}
    silences: tuple[Silence, ...] = ()
    pipeline_folders: tuple[Path, ...] = ()
    brokers_wanted: Mapping[str, Sequence[int]] = {}


class Alerting:
    """The driver of the machine."""

    def __init__(
        self,
        settings: AlertSettings,
        clusters: Mapping[str, ClusterMonitor | None],
        ledger: Ledger,
        clock: Clock | None = None,
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        """Settings and clusters may change while it runs; a cluster that is None cannot be seen yet."""
        self.settings = settings
        self.clusters = clusters
        self.on_news = on_news
        self.clock = clock or SystemClock()
        self.machine = AlertMachine(ledger.open_alerts())
        self.ledger = ledger
        self._disk = ThreadPoolExecutor(1, "alert-ledger")
        self._senders = ThreadPoolExecutor(SENDERS, "alert-sender")
        self._judged: dict[str, dict[str, tuple[object, GroupVerdict]]] = {}  # by cluster and group, and when
        self._busy: set[str] = set()  # channels to which something is on its way
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Needs a running event loop."""
        self._tasks = [
            keep_running(loop, f"alerts: {loop.__name__}") for loop in (self._look_always, self._send_always)
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(self._disk, self.ledger.close)
        self._disk.shutdown(wait=False)
        self._senders.shutdown(wait=False, cancel_futures=True)

    async def told(self) -> dict[str, object]:
        """Open alerts, the newest of the past, and messages that could not be sent: for whoever asks."""
        history = await self.on_disk(self.ledger.history, HISTORY_MAX)
        problems = await self.on_disk(self.ledger.problems, HISTORY_MAX)
        return {
            "open": [alert._asdict() for alert in self.machine.open.values()],
            "history": history,
            "unsent": problems,
        }

    async def look(self) -> list[Event]:
        """One look of all rules at everything; what happened is written down when this returns."""
        now_ms = self.clock.now_ms()
        before = dict(self.machine.open)
        pairs = [(rule, name) for rule in self.settings.rules for name in self._seen_by(rule)]
        monitors = {name: monitor for name, monitor in self.clusters.items() if monitor is not None}
        views = {name: await self._view(monitor) for name, monitor in monitors.items()}
        self._judged = {name: judged for name, judged in self._judged.items() if name in monitors}
        events = self.machine.forget_others({(rule.name, name) for rule, name in pairs}, now_ms)
        for rule, name in pairs:
            if name == NO_CLUSTER:
                found = await self.on_disk(observe_pipelines, rule, self.settings.pipeline_folders)
            else:
                found = observe(rule, views[name], now_ms) if name in views else None
            events += self._decide(rule, name, found, now_ms)
        if self.machine.open != before:
            self.on_news()
        if events:
            for event in events:
                logger.warning(
                    "alert %s: %s %s: %s", event.step, event.alert.rule, event.alert.subject, event.alert.text
                )
            await self.on_disk(self.ledger.record, events, self._messages(events), now_ms)
        return events

    def _seen_by(self, rule: Rule) -> list[str]:
        if rule.kind is Kind.PIPELINE:
            return [NO_CLUSTER]
        return [name for name in self.clusters if fnmatchcase(name, rule.cluster)]

    async def _look_always(self) -> None:
        looks = 0
        while True:
            await self.look()
            if looks % PRUNE_LOOKS == 0:
                await self.on_disk(self.ledger.prune)
            looks += 1
            await asyncio.sleep(LOOK_SECONDS)

    async def _send_always(self) -> None:
        while True:
            for message in await self.on_disk(self.ledger.due, self.clock.now_ms()):
                if message.channel not in self._busy:  # in order, one after the other
                    self._busy.add(message.channel)
                    start(self._send(message), f"alert message to {message.channel}")
            await asyncio.sleep(SEND_SECONDS)

    async def _send(self, message: Message) -> None:
        try:
            channel = self.settings.channels.get(message.channel)
            if channel is None:
                await self._note_failure(message, "there is no such channel any more", None)
                return
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(self._senders, send, channel, message.events, self.clock)
            except DeliveryError as problem:
                await self._note_failure(message, str(problem), self._next_ms(message))
            else:
                await self.on_disk(self.ledger.sent, message, self.clock.now_ms())
        finally:
            self._busy.discard(message.channel)

    async def _note_failure(self, message: Message, problem: str, next_ms: int | None) -> None:
        what = "given up" if next_ms is None else "tried again"
        logger.warning("a message to %s was not taken and is %s: %s", message.channel, what, problem)
        await self.on_disk(self.ledger.failed, message, problem, next_ms, self.clock.now_ms())

    def _next_ms(self, message: Message) -> int | None:
        now_ms = self.clock.now_ms()
        if now_ms - message.events[0].at_ms > GIVE_UP_MS:
            return None
        return now_ms + min(PAUSE_MS_MIN << min(message.attempts, 10), PAUSE_MS_MAX)

    def _decide(self, rule: Rule, cluster: str, found: Findings | None, now_ms: int) -> list[Event]:
        now = datetime.fromtimestamp(now_ms / 1000, UTC)

        def is_silenced(subject: str) -> bool:
            return any(silence.covers(rule.name, cluster, subject, now) for silence in self.settings.silences)

        return self.machine.decide(rule, cluster, found, now_ms, is_silenced)

    def _messages(self, events: Sequence[Event]) -> list[tuple[str, list[Event]]]:
        """By channel: of a closing those hear who were told of the opening, whatever the rule says by now."""
        found: dict[str, list[Event]] = {}
        for event in events:
            channels = event.alert.channels if event.alert.channels is not None else self.settings.channels
            for channel in channels if event.is_message else ():
                if channel in self.settings.channels:
                    found.setdefault(channel, []).append(event)
        return list(found.items())

    async def _view(self, monitor: ClusterMonitor) -> View:
        verdicts = await self._verdicts(monitor) if monitor.is_ready else {}
        return View(
            facts=monitor.facts,
            is_stale=monitor.is_lost,
            is_ready=monitor.is_ready,
            problem=monitor.problem,
            verdicts=verdicts,
            ends=monitor.store.ends,
            folders=monitor.folders,
            min_isr=monitor.min_isr,
            brokers_seen_ms=monitor.brokers_seen_ms,
            brokers_wanted=self.settings.brokers_wanted.get(monitor.name, ()),
        )

    async def _verdicts(self, monitor: ClusterMonitor) -> dict[str, GroupVerdict]:
        """Of the groups that rules are about. Who has not committed since the ends of the logs were looked at last is
        not judged again: with thousands of groups that is most of the work.
        """
        patterns = {rule.group for rule in self.settings.rules if rule.kind in OF_GROUPS}
        before = self._judged.get(monitor.name, {})
        judged: dict[str, tuple[object, GroupVerdict]] = {}
        for group in monitor.groups() if patterns else ():
            if not any(fnmatchcase(group, pattern) for pattern in patterns):
                continue
            news = monitor.news_of(group)
            if group in before and before[group][0] == news:
                judged[group] = before[group]
                continue
            verdict = await monitor.verdict_in_slices(group)
            if verdict is not None:
                judged[group] = news, verdict
            await asyncio.sleep(0)
        self._judged[monitor.name] = judged
        return {group: verdict for group, (_, verdict) in judged.items()}

    async def on_disk(self, work: Any, *arguments: object) -> Any:
        """In the thread to which the ledger belongs."""
        return await asyncio.get_running_loop().run_in_executor(self._disk, work, *arguments)

    def __repr__(self) -> str:
        return f"<Alerting {len(self.settings.rules)} rules, {self.machine!r}>"
