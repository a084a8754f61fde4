"""What becomes of what rules find: when an alert opens, when it is told, when it closes.

Rules:
1. No clock, no socket, no file: the time and the findings are arguments, and what is to be done comes back.
2. A finding opens an alert when it has been there for as long as its rule says. It closes with the first look at which
   it is not there any more.
3. What cannot be seen (the finding is None as a whole) changes nothing: an alert neither opens nor closes because a
   cluster is out of sight.
4. One message at opening, one at closing. In a silence no opening is told; if the alert is still open after it, it is
   told then. Whoever was told of an opening is told of the closing, silence or not; whoever was not, is not.
5. Alerts that were open before a restart are given to the machine, and go on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from ottla.monitor.alerts.rules import Rule

OPEN_MAX: Final = 5_000  # alerts and findings that are on their way to be one; more are counted only

Place = tuple[str, str, str]  # rule, cluster, subject


class Step(StrEnum):
    """What happened to an alert."""

    OPENED = "opened"
    TOLD = "told"  # opened in a silence, told after it
    CLOSED = "closed"


class Alert(NamedTuple):
    """Something that is not well: seen since `since_ms`, for long enough at `opened_ms`."""

    rule: str
    cluster: str
    subject: str
    text: str
    since_ms: int
    opened_ms: int
    is_told: bool
    channels: tuple[str, ...] | None = None  # who was told; None: written before that was noted

    @property
    def place(self) -> Place:
        return self.rule, self.cluster, self.subject


class Event(NamedTuple):
    """A step of an alert; `is_message`: somebody is to be told."""

    step: Step
    alert: Alert
    at_ms: int
    is_message: bool


class AlertMachine:
    """All alerts that are open or on their way."""

    def __init__(self, open_alerts: Iterable[Alert] = ()) -> None:
        self.open: dict[Place, Alert] = {alert.place: alert for alert in open_alerts}
        self.waiting: dict[Place, int] = {}  # seen since, but not for long enough
        self.left_out = 0

    def decide(
        self,
        rule: Rule,
        cluster: str,
        found: Mapping[str, str] | None,
        now_ms: int,
        is_silenced: Callable[[str], bool] = lambda _subject: False,
    ) -> list[Event]:
        """One look of one rule at one cluster: subject → sentence for all that is not well now; None: not seen."""
        if found is None:
            return []
        events: list[Event] = []
        for subject, text in found.items():
            event = self._see(rule, (rule.name, cluster, subject), text, now_ms, is_silenced)
            if event is not None:
                events.append(event)
        return events + self._close_others(rule.name, cluster, found, now_ms)

    def forget_others(self, watched: Collection[tuple[str, str]], now_ms: int) -> list[Event]:
        """Close what belongs to no rule and cluster that is still looked at."""
        for place in [place for place in self.waiting if place[:2] not in watched]:
            del self.waiting[place]
        gone = [alert for alert in self.open.values() if alert.place[:2] not in watched]
        return [self._close(alert._replace(text="nobody looks at it any more"), now_ms) for alert in gone]

    def _see(
        self, rule: Rule, place: Place, text: str, now_ms: int, is_silenced: Callable[[str], bool]
    ) -> Event | None:
        alert = self.open.get(place)
        if alert is not None:
            is_news = not alert.is_told and not is_silenced(place[2])
            channels = rule.channels if is_news or alert.channels is None else alert.channels
            alert = alert._replace(text=text, is_told=alert.is_told or is_news, channels=channels)
            self.open[place] = alert
            return Event(Step.TOLD, alert, now_ms, True) if is_news else None
        if place not in self.waiting and len(self.waiting) + len(self.open) >= OPEN_MAX:
            self.left_out += 1
            return None
        since_ms = self.waiting.setdefault(place, now_ms)
        if now_ms - since_ms < rule.for_ms:
            return None
        del self.waiting[place]
        is_message = not is_silenced(place[2])
        self.open[place] = alert = Alert(
            *place, text, since_ms, now_ms, is_message, rule.channels if is_message else ()
        )
        return Event(Step.OPENED, alert, now_ms, is_message)

    def _close_others(self, rule: str, cluster: str, found: Mapping[str, str], now_ms: int) -> list[Event]:
        def is_over(place: Place) -> bool:
            return place[:2] == (rule, cluster) and place[2] not in found

        for place in [place for place in self.waiting if is_over(place)]:
            del self.waiting[place]
        return [self._close(alert, now_ms) for place, alert in list(self.open.items()) if is_over(place)]

    def _close(self, alert: Alert, now_ms: int) -> Event:
        del self.open[alert.place]
        return Event(Step.CLOSED, alert, now_ms, alert.is_told)

    def __repr__(self) -> str:
        return f"<AlertMachine {len(self.open)} open, {len(self.waiting)} waiting>"
