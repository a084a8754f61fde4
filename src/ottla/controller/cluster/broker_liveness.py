"""Whom the active controller hears: brokers that poll it. Pure.

A broker can be alive for the store and out of reach for the others, when a cable between brokers breaks and not the one
to the store. Nobody would take its leaders from it: it asks the store, which it reaches, to stay; and what the
controller decides never arrives.

Rules:
1. Whoever has not polled for as long as a session lasts is not counted on, registered or not (KRaft calls it fenced):
   its leaders move. It counts again as soon as it polls. Whoever is registered polls a new controller at once, so that
   one waits for a first poll not as long.
2. Only a controller that hears more than half of the cluster, itself included, may say so, and only of a broker after
   whose silence began it has heard them. One that has not heard so many for a session is itself the one that is cut
   off, and resigns.
3. If the controller itself stood still nobody could be heard, so everybody gets the whole time again, but for those
   that were not counted on before: they have to poll.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ottla.controller.image import BrokerImage

POLLS_MS: Final = 3_500  # a broker with nothing in its way polls more often (poll_loop.py)
PATIENCE_MS_MIN: Final = 6_000
FIRST_POLL_MS: Final = 3_000
FIRST_POLL_MS_USUAL: Final = 500
STILL_MS_MAX: Final = 1_000


class LastPoll(NamedTuple):
    """A broker as it is registered, and when it was heard or, before its first poll, seen in the store."""

    epoch: int
    heard_ms: int
    has_polled: bool = False


class BrokerLiveness:
    """One a controller; begins anew with every election."""

    def __init__(self) -> None:
        self._node_id = -1
        self._patience_ms = PATIENCE_MS_MIN
        self._polls: dict[int, LastPoll] = {}  # of the other brokers that are registered
        self._looked_ms = 0
        self.silent: frozenset[int] = frozenset()  # not counted on
        self.is_cut_off = False
        self.sync_ms: dict[int, int] = {}  # that the slowest disk of a broker takes for a sync, as it has told last

    def begin(self, node_id: int, session_ms: int, now_ms: int) -> None:
        self._node_id = node_id
        self._patience_ms = patience_ms(session_ms)
        self._polls.clear()
        self.sync_ms.clear()
        self._looked_ms = now_ms
        self.silent = frozenset()
        self.is_cut_off = False

    def hear(self, broker: int, epoch: int, now_ms: int) -> bool:
        """A broker polls; True if it was not counted on until now."""
        poll = self._polls.get(broker)
        if poll is None or poll.epoch != epoch:
            return False
        self._polls[broker] = LastPoll(epoch, now_ms, has_polled=True)
        was_silent = broker in self.silent
        self.silent -= {broker}
        return was_silent

    def count_on(self, registered: Mapping[int, BrokerImage], now_ms: int) -> dict[int, BrokerImage]:
        """Those of the registered brokers that can be counted on."""
        before = self._polls
        self._polls = {
            id_: before[id_] if id_ in before and before[id_].epoch == broker.epoch else LastPoll(broker.epoch, now_ms)
            for id_, broker in registered.items()
            if id_ != self._node_id
        }
        self.silent = frozenset(id_ for id_ in self.silent if self._polls.get(id_) == before[id_])
        return {id_: broker for id_, broker in registered.items() if id_ not in self.silent}

    def look(self, now_ms: int) -> bool:
        """By the clock, a few times a second; True if somebody has fallen silent, or everybody."""
        still_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        if still_ms > STILL_MS_MAX:
            self._polls = {id_: poll._replace(heard_ms=now_ms) for id_, poll in self._polls.items()}
            return False
        heard = sum(now_ms - poll.heard_ms < self._patience_ms for poll in self._polls.values())
        self.is_cut_off = heard < len(self._polls) and not self._is_majority(heard)
        if self.is_cut_off:
            return True
        heard_ms = sorted(poll.heard_ms for poll in self._polls.values() if poll.has_polled)
        silent = frozenset(id_ for id_, poll in self._polls.items() if self._is_silent(poll, heard_ms, now_ms))
        has_new = not silent <= self.silent
        self.silent |= silent  # until it polls: who is told of that counts on it again
        return has_new

    def overdue(self, now_ms: int) -> list[int]:
        """Whoever should have polled by now: if it is dead its port refuses, and nobody has to wait for its session."""
        return [
            id_
            for id_, poll in self._polls.items()
            if now_ms - poll.heard_ms >= (POLLS_MS if poll.has_polled else FIRST_POLL_MS_USUAL)
        ]

    def _is_silent(self, poll: LastPoll, heard_ms: Sequence[int], now_ms: int) -> bool:
        """`heard_ms` tells when those who have polled did so last, in order."""
        allowed_ms = self._patience_ms if poll.has_polled else FIRST_POLL_MS
        since_ms = poll.heard_ms + (POLLS_MS if poll.has_polled else 0)
        if now_ms - poll.heard_ms < allowed_ms:
            return False
        return self._is_majority(len(heard_ms) - bisect_left(heard_ms, since_ms))

    def _is_majority(self, others: int) -> bool:
        """Whether this broker and so many others are more than half of the cluster."""
        return 2 * (others + 1) > len(self._polls) + 1

    def __repr__(self) -> str:
        return f"<BrokerLiveness {sorted(self._polls)} silent={sorted(self.silent)}>"


def patience_ms(session_ms: int) -> int:
    """How long a broker may be silent, by rule 1; the broker itself asks, too."""
    return max(session_ms, PATIENCE_MS_MIN)
