"""Heartbeats of brokers: the polls that reach the active controller. Pure.

A broker may have a session with the store and still not reach the other brokers, when only the network between brokers
fails. It would stay the leader of its partitions, because its registration stays, and the controller's decisions would
not reach it.

Rules:
1. A broker that has not polled for a session timeout is fenced (as in KRaft), registered or not: its leaders move. It
   is unfenced by its next poll. The first poll of a new controller has a shorter timeout, because registered brokers
   poll it at once.
2. The controller may fence a broker only if more than half of the cluster, itself included, has polled since that
   broker's last poll. A controller without such a majority for a session timeout is isolated itself, and resigns.
3. If the controller itself was stalled, no polls could arrive: all timeouts start again. Fenced brokers stay fenced.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ottla.controller.image import BrokerImage

POLL_INTERVAL_MS: Final = 3_500  # a healthy broker polls more often (metadata_poller.py)
SESSION_TIMEOUT_MS_MIN: Final = 6_000
FIRST_POLL_TIMEOUT_MS: Final = 3_000
FIRST_POLL_PROBE_MS: Final = 500
STALL_MS_MAX: Final = 1_000


class LastHeartbeat(NamedTuple):
    """A registered broker, and the time of its last poll or, before its first poll, of its registration."""

    epoch: int
    last_contact_ms: int
    has_polled: bool = False


class BrokerHeartbeatManager:
    """The heartbeats of one controller; reset by every election."""

    def __init__(self) -> None:
        self._node_id = -1
        self._timeout_ms = SESSION_TIMEOUT_MS_MIN
        self._polls: dict[int, LastHeartbeat] = {}  # of the other registered brokers
        self._checked_ms = 0
        self.fenced: frozenset[int] = frozenset()  # fenced brokers
        self.is_isolated = False
        self.sync_ms: dict[int, int] = {}  # the last reported sync time of each broker's slowest disk

    def reset(self, node_id: int, session_ms: int, now_ms: int) -> None:
        self._node_id = node_id
        self._timeout_ms = session_timeout_ms(session_ms)
        self._polls.clear()
        self.sync_ms.clear()
        self._checked_ms = now_ms
        self.fenced = frozenset()
        self.is_isolated = False

    def touch(self, broker: int, epoch: int, now_ms: int) -> bool:
        """Record the poll of a broker; returns whether this unfences it."""
        poll = self._polls.get(broker)
        if poll is None or poll.epoch != epoch:
            return False
        self._polls[broker] = LastHeartbeat(epoch, now_ms, has_polled=True)
        was_silent = broker in self.fenced
        self.fenced -= {broker}
        return was_silent

    def unfenced(self, registered: Mapping[int, BrokerImage], now_ms: int) -> dict[int, BrokerImage]:
        """Return the registered brokers that are not fenced."""
        before = self._polls
        self._polls = {
            id_: before[id_]
            if id_ in before and before[id_].epoch == broker.epoch
            else LastHeartbeat(broker.epoch, now_ms)
            for id_, broker in registered.items()
            if id_ != self._node_id
        }
        self.fenced = frozenset(id_ for id_ in self.fenced if self._polls.get(id_) == before[id_])
        return {id_: broker for id_, broker in registered.items() if id_ not in self.fenced}

    def check(self, now_ms: int) -> bool:
        """Check the timeouts, a few times per second; returns whether a broker was fenced or this one is isolated."""
        still_ms, self._checked_ms = now_ms - self._checked_ms, now_ms
        if still_ms > STALL_MS_MAX:
            self._polls = {id_: poll._replace(last_contact_ms=now_ms) for id_, poll in self._polls.items()}
            return False
        heard = sum(now_ms - poll.last_contact_ms < self._timeout_ms for poll in self._polls.values())
        self.is_isolated = heard < len(self._polls) and not self._is_majority(heard)
        if self.is_isolated:
            return True
        heard_ms = sorted(poll.last_contact_ms for poll in self._polls.values() if poll.has_polled)
        silent = frozenset(id_ for id_, poll in self._polls.items() if self._has_timed_out(poll, heard_ms, now_ms))
        has_new = not silent <= self.fenced
        self.fenced |= silent  # until the next poll of the broker
        return has_new

    def overdue(self, now_ms: int) -> list[int]:
        """Return the brokers whose poll is overdue.

        A probe of their ports detects a failed one before its session expires.
        """
        return [
            id_
            for id_, poll in self._polls.items()
            if now_ms - poll.last_contact_ms >= (POLL_INTERVAL_MS if poll.has_polled else FIRST_POLL_PROBE_MS)
        ]

    def _has_timed_out(self, poll: LastHeartbeat, heard_ms: Sequence[int], now_ms: int) -> bool:
        """Return whether a broker is to be fenced. `heard_ms` are the sorted times of the last polls of all brokers."""
        allowed_ms = self._timeout_ms if poll.has_polled else FIRST_POLL_TIMEOUT_MS
        since_ms = poll.last_contact_ms + (POLL_INTERVAL_MS if poll.has_polled else 0)
        if now_ms - poll.last_contact_ms < allowed_ms:
            return False
        return self._is_majority(len(heard_ms) - bisect_left(heard_ms, since_ms))

    def _is_majority(self, others: int) -> bool:
        """Return whether this broker and this number of others are more than half of the cluster."""
        return 2 * (others + 1) > len(self._polls) + 1

    def __repr__(self) -> str:
        return f"<BrokerHeartbeatManager {sorted(self._polls)} silent={sorted(self.fenced)}>"


def session_timeout_ms(session_ms: int) -> int:
    """Return the heartbeat timeout of rule 1; brokers also use it."""
    return max(session_ms, SESSION_TIMEOUT_MS_MIN)
