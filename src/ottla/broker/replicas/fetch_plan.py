"""What a follower asks one leader for next, and which partitions it leaves out for a while.

Rules:
1. Pure: times are arguments, of a clock that never goes back.
2. In a session (KIP-227) a request names only partitions whose place has changed; the leader remembers the others.
3. A partition that must wait (its fetch failed, its records are being flushed, the throttle is on) leaves the session
   and comes back later: it holds up nobody else.
4. An answer about a partition counts only if no later request has asked about it anew.
5. Whose records are on their way leaves the session for a second request: the leader would send the same ones again.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from ottla.broker.fetch_sessions import EPOCH_MAX, INITIAL_EPOCH, NO_SESSION
from ottla.replication.following import FetchPosition
from ottla.replication.partition import Partition

FIRST_DELAY_MS: Final = 20
FOREVER_MS: Final = 2**62

Key = tuple[UUID, int]


class Followed:
    """One partition that is copied from the leader."""

    __slots__ = ("failures", "is_in_session", "key", "lag", "log_start_offset", "partition", "position")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: Key = (partition.topic_id, partition.name.partition)
        self.position = FetchPosition(-1, -1, -1)  # as asked for last
        self.log_start_offset = -1
        self.is_in_session = False
        self.failures = 0  # since the last success
        self.lag = 0  # records that the leader was known to have more

    def __repr__(self) -> str:
        return f"<Followed {self.partition.name} at {self.position.offset}, {self.failures} failures>"


class Ask(NamedTuple):
    """One request to the leader."""

    session_id: int
    session_epoch: int
    wanted: dict[Key, FetchPosition]
    forgotten: list[Key]


class FetchPlan:
    """All partitions that are copied over one connection."""

    def __init__(self) -> None:
        self.followed: dict[Key, Followed] = {}
        self._changed: dict[Key, None] = {}  # to be asked about (anew)
        self._leaving: dict[Key, None] = {}  # in the session, but not to stay
        self._waiting: dict[Key, int] = {}  # left out until then
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH

    # ---- which partitions

    def add(self, partition: Partition) -> None:
        """Follow a partition, or begin anew with it because its leader did."""
        key = (partition.topic_id, partition.name.partition)
        followed = self.followed.get(key)
        if followed is None or followed.partition is not partition:
            is_in_session = followed is not None and followed.is_in_session
            followed = self.followed[key] = Followed(partition)
            followed.is_in_session = is_in_session
        followed.failures = 0
        self.release(key)

    def remove(self, key: Key) -> None:
        followed = self.followed.pop(key, None)
        self._changed.pop(key, None)
        self._waiting.pop(key, None)
        if followed is not None and followed.is_in_session:
            self._leaving[key] = None

    def release(self, key: Key) -> None:
        """It need not wait any longer."""
        if key in self.followed:
            self._waiting.pop(key, None)
            self._changed[key] = None

    def leave_out(self, followed: Followed, until_ms: int = FOREVER_MS) -> None:
        """Do not ask about it until then, or until it is released."""
        key = followed.key
        if self.followed.get(key) is not followed:
            return
        self._changed.pop(key, None)
        self._waiting[key] = until_ms
        if followed.is_in_session:
            self._leaving[key] = None

    def due(self, now_ms: int) -> list[Followed]:
        """Those whose time to be left out is over."""
        return [self.followed[key] for key, until_ms in self._waiting.items() if until_ms <= now_ms]

    def leave_out_after_failure(self, followed: Followed, longest_ms: int, now_ms: int) -> int:
        """Longer with each failure; how long."""
        delay_ms = min(longest_ms, FIRST_DELAY_MS << min(followed.failures, 16))
        followed.failures += 1
        self.leave_out(followed, now_ms + delay_ms)
        return delay_ms

    def note_progress(self, followed: Followed) -> None:
        """Its log, or where it starts, has changed: the leader hears of that with the next request."""
        if self.followed.get(followed.key) is followed and followed.key not in self._waiting:
            self._changed[followed.key] = None

    # ---- requests and answers

    def next(self, now_ms: int, under_way: Ask | None = None) -> Ask | None:
        """The next request; None if there is nobody to ask for now. `under_way` has no answer yet."""
        for key in [key for key, until_ms in self._waiting.items() if until_ms <= now_ms]:
            self.release(key)
        if len(self._waiting) == len(self.followed):
            return None
        if self._session_epoch == INITIAL_EPOCH:
            self._leaving.clear()
            self._changed = {key: None for key in self.followed if key not in self._waiting}
        wanted = {key: self._ask(self.followed[key]) for key in self._changed}
        leaving = self._leaving | self._on_their_way(under_way)
        forgotten = [key for key in leaving if key not in wanted]
        for key in forgotten:
            if key in self.followed:
                self.followed[key].is_in_session = False
        ask = Ask(self._session_id, self._session_epoch, wanted, forgotten)
        self._changed.clear()
        self._leaving.clear()
        if self._session_id != NO_SESSION:
            self._session_epoch = 1 if self._session_epoch == EPOCH_MAX else self._session_epoch + 1
        return ask

    def _on_their_way(self, under_way: Ask | None) -> dict[Key, None]:
        if under_way is None:
            return {}
        asked = (self.followed.get(key) for key in under_way.wanted)
        return {each.key: None for each in asked if each is not None and each.is_in_session and each.lag > 0}

    def take_back(self, answered: Ask) -> None:
        """Who had left the session because of this request is asked about again."""
        for key in answered.wanted:
            followed = self.followed.get(key)
            if followed is not None and not followed.is_in_session and key not in self._waiting:
                self._changed[key] = None

    def _ask(self, followed: Followed) -> FetchPosition:
        followed.position = followed.partition.fetch_position()
        followed.log_start_offset = followed.partition.log.log_start_offset
        followed.is_in_session = True
        return followed.position

    def note_session(self, ask: Ask, session_id: int) -> None:
        """The leader has answered, and remembers the partitions if it gave the session a number."""
        if ask.session_epoch == INITIAL_EPOCH and session_id != NO_SESSION:
            self._session_id = session_id
            self._session_epoch = 1

    def start_anew(self) -> None:
        """The leader remembers nothing: the next request names all partitions."""
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        for followed in self.followed.values():
            followed.is_in_session = False

    def wakeup_ms(self) -> int:
        """When the next partition has waited long enough."""
        return min(self._waiting.values(), default=FOREVER_MS)

    @property
    def has_session(self) -> bool:
        return self._session_id != NO_SESSION

    def has_news(self, now_ms: int) -> bool:
        """Whether there is something that the leader does not know yet."""
        return bool(self._changed or self._leaving) or self.wakeup_ms() <= now_ms

    @property
    def failed_count(self) -> int:
        """Partitions that are left out because their last fetch failed."""
        return sum(1 for key in self._waiting if self.followed[key].failures)

    @property
    def lag_max(self) -> int:
        return max((followed.lag for followed in self.followed.values()), default=0)

    def __repr__(self) -> str:
        return f"<FetchPlan {len(self.followed)} partitions, {len(self._waiting)} left out>"
