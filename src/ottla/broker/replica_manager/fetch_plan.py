"""Plan of a follower's fetches from one leader, including delayed partitions.

Rules:
1. Pure: times are arguments, from a monotonic clock.
2. In a session (KIP-227) a request contains only partitions whose position has changed.
3. A delayed partition (failed fetch, pending flush, throttle) leaves the session and joins it later: it delays no other
   partition.
4. The response for a partition is used only if no later request contains the partition again.
5. While records of a partition are in flight it leaves the session for a second request: the leader would send them
   again.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from ottla.broker.fetch_sessions import EPOCH_MAX, INITIAL_EPOCH, NO_SESSION
from ottla.replication.follower_rules import FetchPosition
from ottla.replication.partition import Partition

FIRST_DELAY_MS: Final = 20
FOREVER_MS: Final = 2**62
UNKNOWN_LAG: Final = -1

Key = tuple[UUID, int]


class FollowedPartition:
    """One partition that is copied from the leader."""

    __slots__ = ("failures", "is_in_session", "key", "lag", "log_start_offset", "partition", "position")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: Key = (partition.topic_id, partition.name.partition)
        self.position = FetchPosition(-1, -1, -1)  # last requested position
        self.log_start_offset = -1
        self.is_in_session = False
        self.failures = 0  # since the last success
        self.lag = UNKNOWN_LAG  # number of records missing here at the last response

    @property
    def is_behind(self) -> bool:
        """Whether the replica is out of sync. Before the first response the ISR decides."""
        if self.lag == UNKNOWN_LAG:
            return self.partition.node_id not in self.partition.isr
        return self.lag > 0

    def __repr__(self) -> str:
        return f"<FollowedPartition {self.partition.name} at {self.position.offset}, {self.failures} failures>"


class FetchRequestPlan(NamedTuple):
    """One fetch request."""

    session_id: int
    session_epoch: int
    wanted: dict[Key, FetchPosition]
    forgotten: list[Key]


class FetchPlan:
    """All partitions that are fetched over one connection."""

    def __init__(self) -> None:
        self.followed: dict[Key, FollowedPartition] = {}
        self._to_request: dict[Key, None] = {}  # to be added to the next request
        self._to_forget: dict[Key, None] = {}  # to be removed from the session
        self._delayed: dict[Key, int] = {}  # delayed until this time
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH

    # ---- partitions

    def add(self, partition: Partition) -> None:
        """Follow a partition; starts again if its leader has changed."""
        key = (partition.topic_id, partition.name.partition)
        followed = self.followed.get(key)
        if followed is None or followed.partition is not partition:
            is_in_session = followed is not None and followed.is_in_session
            followed = self.followed[key] = FollowedPartition(partition)
            followed.is_in_session = is_in_session
        followed.failures = 0
        self.release(key)

    def remove(self, key: Key) -> None:
        followed = self.followed.pop(key, None)
        self._to_request.pop(key, None)
        self._delayed.pop(key, None)
        if followed is not None and followed.is_in_session:
            self._to_forget[key] = None

    def release(self, key: Key) -> None:
        """End the delay of a partition."""
        if key in self.followed:
            self._delayed.pop(key, None)
            self._to_request[key] = None

    def delay(self, followed: FollowedPartition, until_ms: int = FOREVER_MS) -> None:
        """Delay a partition until this time, or until it is released."""
        key = followed.key
        if self.followed.get(key) is not followed:
            return
        self._to_request.pop(key, None)
        self._delayed[key] = until_ms
        if followed.is_in_session:
            self._to_forget[key] = None

    def candidates(self, now_ms: int) -> list[FollowedPartition]:
        """Return the partitions of the next request, starting with those whose delay is over."""
        due = [key for key, until_ms in self._delayed.items() if until_ms <= now_ms]
        asked = self.followed if self._session_epoch == INITIAL_EPOCH else self._to_request
        return [self.followed[key] for key in (*due, *(key for key in asked if key not in self._delayed))]

    def delay_after_failure(self, followed: FollowedPartition, longest_ms: int, now_ms: int) -> int:
        """Delay a partition, longer with each failure; returns the delay."""
        delay_ms = min(longest_ms, FIRST_DELAY_MS << min(followed.failures, 16))
        followed.failures += 1
        self.delay(followed, now_ms + delay_ms)
        return delay_ms

    def request_again(self, followed: FollowedPartition) -> None:
        """Include a partition with a changed log end or log start offset in the next request."""
        if self.followed.get(followed.key) is followed and followed.key not in self._delayed:
            self._to_request[followed.key] = None

    # ---- requests and responses

    def next_request(self, now_ms: int, under_way: FetchRequestPlan | None = None) -> FetchRequestPlan | None:
        """Return the next request; None if there is nothing to fetch now.

        `under_way` is a request without a response.
        """
        for key in [key for key, until_ms in self._delayed.items() if until_ms <= now_ms]:
            self.release(key)
        if len(self._delayed) == len(self.followed):
            return None
        if self._session_epoch == INITIAL_EPOCH:
            self._to_forget.clear()
            self._to_request = {key: None for key in self.followed if key not in self._delayed}
        wanted = {key: self._position_to_request(self.followed[key]) for key in self._to_request}
        leaving = self._to_forget | self._in_flight(under_way)
        forgotten = [key for key in leaving if key not in wanted]
        for key in forgotten:
            if key in self.followed:
                self.followed[key].is_in_session = False
        ask = FetchRequestPlan(self._session_id, self._session_epoch, wanted, forgotten)
        self._to_request.clear()
        self._to_forget.clear()
        if self._session_id != NO_SESSION:
            self._session_epoch = 1 if self._session_epoch == EPOCH_MAX else self._session_epoch + 1
        return ask

    def _in_flight(self, under_way: FetchRequestPlan | None) -> dict[Key, None]:
        if under_way is None:
            return {}
        asked = (self.followed.get(key) for key in under_way.wanted)
        return {each.key: None for each in asked if each is not None and each.is_in_session and each.lag > 0}

    def restore_in_flight(self, answered: FetchRequestPlan) -> None:
        """Add the partitions again that left the session because of this request."""
        for key in answered.wanted:
            followed = self.followed.get(key)
            if followed is not None and not followed.is_in_session and key not in self._delayed:
                self._to_request[key] = None

    def _position_to_request(self, followed: FollowedPartition) -> FetchPosition:
        followed.position = followed.partition.fetch_position()
        followed.log_start_offset = followed.partition.log.log_start_offset
        followed.is_in_session = True
        return followed.position

    def update_session(self, ask: FetchRequestPlan, session_id: int) -> None:
        """Process a response; the leader keeps the partitions if it assigned a session id."""
        if ask.session_epoch == INITIAL_EPOCH and session_id != NO_SESSION:
            self._session_id = session_id
            self._session_epoch = 1

    def reset_session(self) -> None:
        """Start a new session: the next request contains all partitions."""
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        for followed in self.followed.values():
            followed.is_in_session = False

    def wakeup_ms(self) -> int:
        """Return when the next delay ends."""
        return min(self._delayed.values(), default=FOREVER_MS)

    @property
    def has_session(self) -> bool:
        return self._session_id != NO_SESSION

    def has_changes(self, now_ms: int) -> bool:
        """Return whether there are changes that the leader does not know yet."""
        return bool(self._to_request or self._to_forget) or self.wakeup_ms() <= now_ms

    @property
    def failed_count(self) -> int:
        """Return the number of partitions that are delayed after a failed fetch."""
        return sum(1 for key in self._delayed if self.followed[key].failures)

    @property
    def lag_max(self) -> int:
        return max((max(0, followed.lag) for followed in self.followed.values()), default=0)

    def __repr__(self) -> str:
        return f"<FetchPlan {len(self.followed)} partitions, {len(self._delayed)} left out>"
