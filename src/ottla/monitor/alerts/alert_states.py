"""The alert state machine: when an alert opens, when it is sent, when it closes.

Rules:
1. Pure: time and findings are arguments, and the result is a list of events.
2. A finding opens an alert once it has lasted for the rule's `for`. The alert closes at the first evaluation without
   the finding.
3. If the findings are unknown (None), nothing changes: an unreachable cluster neither opens nor closes alerts.
4. One message on opening, one on closing. During a silence no opening is sent; if the alert is still open afterwards,
   it is sent then. A closing is sent if and only if the opening was, silence or not.
5. Alerts that were open before a restart are passed to the constructor and continue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final, NamedTuple


class Condition(StrEnum):
    """The condition that a rule checks."""

    VERDICT = "verdict"
    LAG = "lag"
    LAG_SECONDS = "lag-seconds"
    LEADERLESS = "leaderless"
    UNDER_REPLICATED = "under-replicated"
    UNDER_MIN_ISR = "under-min-isr"
    BROKER_GONE = "broker-gone"
    CONTROLLER_GONE = "controller-gone"
    DISK = "disk"
    PIPELINE = "pipeline"
    DEAD_LETTERS = "dead-letters"


class Rule(NamedTuple):
    """An alert rule; patterns are file name patterns (`*`, `?`, `[a-z]`)."""

    name: str
    kind: Condition
    channels: tuple[str, ...] = ()
    for_ms: int = 0
    cluster: str = "*"
    group: str = "*"
    topic: str = "*"
    pipeline: str = "*"
    statuses: tuple[str, ...] = ("ERR",)
    above: float = 0.0  # records or seconds
    below_share: float = 0.1  # free share of a disk
    below_bytes: int = 0
    within_ms: int = 300_000  # for dead letters


class Silence(NamedTuple):
    """Suppresses messages for a while."""

    rule: str = "*"
    cluster: str = "*"
    subject: str = "*"
    begin: datetime | None = None
    end: datetime | None = None

    def matches(self, rule: str, cluster: str, subject: str, now: datetime) -> bool:
        if (self.begin is not None and now < self.begin) or (self.end is not None and now >= self.end):
            return False
        pairs = ((rule, self.rule), (cluster, self.cluster), (subject, self.subject))
        return all(fnmatchcase(name, pattern) for name, pattern in pairs)


OPEN_MAX: Final = 5_000  # open and pending alerts; beyond it they are only counted

AlertKey = tuple[str, str, str]  # rule, cluster, subject


class Transition(StrEnum):
    """A state transition of an alert."""

    OPENED = "opened"
    NOTIFIED = "told"  # opened during a silence, sent after it
    CLOSED = "closed"


class Alert(NamedTuple):
    """An open alert: found at `since_ms`, open since `opened_ms`."""

    rule: str
    cluster: str
    subject: str
    text: str
    since_ms: int
    opened_ms: int
    is_told: bool
    channels: tuple[str, ...] | None = None  # channels that got the opening; None: from an older version

    @property
    def key(self) -> AlertKey:
        return self.rule, self.cluster, self.subject


class Event(NamedTuple):
    """A transition of an alert; `is_message`: it is to be sent."""

    step: Transition
    alert: Alert
    at_ms: int
    is_message: bool


class AlertStates:
    """All open and pending alerts."""

    def __init__(self, open_alerts: Iterable[Alert] = ()) -> None:
        self.open: dict[AlertKey, Alert] = {alert.key: alert for alert in open_alerts}
        self.pending: dict[AlertKey, int] = {}  # since when, but not long enough
        self.ignored_count = 0

    def update(
        self,
        rule: Rule,
        cluster: str,
        found: Mapping[str, str] | None,
        now_ms: int,
        is_silenced: Callable[[str], bool] = lambda _subject: False,
    ) -> list[Event]:
        """Process the findings of one rule in one cluster: subject → sentence. None: unknown."""
        if found is None:
            return []
        events: list[Event] = []
        for subject, text in found.items():
            event = self._update_alert(rule, (rule.name, cluster, subject), text, now_ms, is_silenced)
            if event is not None:
                events.append(event)
        return events + self._close_resolved(rule.name, cluster, found, now_ms)

    def close_removed(self, watched: Collection[tuple[str, str]], now_ms: int) -> list[Event]:
        """Close the alerts of removed rules and clusters."""
        for place in [place for place in self.pending if place[:2] not in watched]:
            del self.pending[place]
        gone = [alert for alert in self.open.values() if alert.key[:2] not in watched]
        return [self._close(alert._replace(text="the rule or cluster was removed"), now_ms) for alert in gone]

    def _update_alert(
        self, rule: Rule, place: AlertKey, text: str, now_ms: int, is_silenced: Callable[[str], bool]
    ) -> Event | None:
        alert = self.open.get(place)
        if alert is not None:
            is_news = not alert.is_told and not is_silenced(place[2])
            channels = rule.channels if is_news or alert.channels is None else alert.channels
            alert = alert._replace(text=text, is_told=alert.is_told or is_news, channels=channels)
            self.open[place] = alert
            return Event(Transition.NOTIFIED, alert, now_ms, True) if is_news else None
        if place not in self.pending and len(self.pending) + len(self.open) >= OPEN_MAX:
            self.ignored_count += 1
            return None
        since_ms = self.pending.setdefault(place, now_ms)
        if now_ms - since_ms < rule.for_ms:
            return None
        del self.pending[place]
        is_message = not is_silenced(place[2])
        self.open[place] = alert = Alert(
            *place, text, since_ms, now_ms, is_message, rule.channels if is_message else ()
        )
        return Event(Transition.OPENED, alert, now_ms, is_message)

    def _close_resolved(self, rule: str, cluster: str, found: Mapping[str, str], now_ms: int) -> list[Event]:
        def is_over(place: AlertKey) -> bool:
            return place[:2] == (rule, cluster) and place[2] not in found

        for place in [place for place in self.pending if is_over(place)]:
            del self.pending[place]
        return [self._close(alert, now_ms) for place, alert in list(self.open.items()) if is_over(place)]

    def _close(self, alert: Alert, now_ms: int) -> Event:
        del self.open[alert.key]
        return Event(Transition.CLOSED, alert, now_ms, alert.is_told)

    def __repr__(self) -> str:
        return f"<AlertStates {len(self.open)} open, {len(self.pending)} waiting>"
