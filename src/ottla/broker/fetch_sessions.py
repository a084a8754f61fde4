"""Fetch sessions (KIP-227): a consumer names its partitions once, later fetches and answers carry only changes.

Rules:
1. Everything that decides about sessions lives here; no socket, no clock: the time is an argument.
2. A session belongs to the id it was given, and only the next epoch may go on with it.
3. A full cache gives a slot away only if its session was not used for a while, or is smaller and older (KIP-227).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.network.client_facts import ClientFacts
from ottla.replication.partition import Partition

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
EPOCH_MAX: Final = 2**31 - 1
EVICTION_MS: Final = 120_000
SESSION_ID_MAX: Final = 2**31 - 1
UNKNOWN: Final = -1

PartitionKey = tuple[str, UUID, int]


class FetchPartition:
    """One partition of a fetch, and, in a session, what its client was told last."""

    def __init__(self, topic: str, topic_id: UUID, index: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.fetch_offset = 0
        self.max_bytes = 0
        self.leader_epoch = -1
        self.last_fetched_epoch = -1  # this and the next are of followers only
        self.log_start_offset = -1
        self.partition: Partition | None = None  # looked up at the first use, and again when it is gone
        self.granted_to: ClientFacts | None = None  # who may read it, by the …
        self.granted_by = -1  # … generation of the rules that said so
        self.sent_high_watermark = UNKNOWN
        self.sent_log_start_offset = UNKNOWN

    def ask(
        self,
        fetch_offset: int,
        max_bytes: int,
        leader_epoch: int,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
    ) -> None:
        self.fetch_offset = fetch_offset
        self.max_bytes = max(0, max_bytes)
        self.leader_epoch = leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset

    @property
    def key(self) -> PartitionKey:
        return self.topic, self.topic_id, self.index

    def __repr__(self) -> str:
        return f"<FetchPartition {self.topic or self.topic_id}-{self.index} from {self.fetch_offset}>"


class FetchSession:
    """The partitions one client is following."""

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int, is_privileged: bool = False) -> None:
        self.id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.is_privileged = is_privileged  # a follower's
        self.partitions: dict[PartitionKey, FetchPartition] = {}
        self.next_epoch = 1
        self.created_ms = now_ms
        self.used_ms = now_ms

    def update(self, asked: Iterable[FetchPartition], forgotten: Iterable[PartitionKey]) -> None:
        for new in asked:
            known = self.partitions.get(new.key)
            if known is None:
                self.partitions[new.key] = new
            else:
                known.ask(
                    new.fetch_offset, new.max_bytes, new.leader_epoch, new.last_fetched_epoch, new.log_start_offset
                )
        for key in forgotten:
            self.partitions.pop(key, None)

    def step(self, now_ms: int) -> None:
        self.next_epoch = 1 if self.next_epoch == EPOCH_MAX else self.next_epoch + 1
        self.used_ms = now_ms

    def move_to_end(self, partition: FetchPartition) -> None:
        """A partition that gave records goes behind the others, so that all get their turn."""
        key = partition.key
        if self.partitions.pop(key, None) is not None:
            self.partitions[key] = partition

    def __repr__(self) -> str:
        return f"<FetchSession {self.id} epoch {self.next_epoch}, {len(self.partitions)} partitions>"


class FetchSessions:
    """All sessions of a broker, a bounded number of them."""

    def __init__(self, slots: int, first_id: int) -> None:
        self.slots = slots
        self.evictions = 0
        self._sessions: dict[int, FetchSession] = {}
        self._next_id = first_id

    def resume(
        self,
        session_id: int,
        epoch: int,
        uses_topic_ids: bool,
        asked: list[FetchPartition],
        forgotten: Iterable[PartitionKey],
        now_ms: int,
    ) -> FetchSession | None:
        """The session of an incremental fetch, brought up to date; None if it has no partition left."""
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(Error.FETCH_SESSION_ID_NOT_FOUND)
        if session.next_epoch != epoch:
            raise KafkaError(Error.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(Error.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(asked, forgotten)
        if not session.partitions:
            del self._sessions[session_id]
            return None
        session.step(now_ms)
        return session

    def start(
        self, uses_topic_ids: bool, asked: list[FetchPartition], now_ms: int, is_privileged: bool = False
    ) -> FetchSession | None:
        """A new session, or None when there is no partition in it or no slot for it; followers get one anyway."""
        if not asked or not (self._has_slot(len(asked), now_ms) or is_privileged):
            return None
        session = FetchSession(self._take_id(), uses_topic_ids, now_ms, is_privileged)
        session.update(asked, ())
        self._sessions[session.id] = session
        return session

    def close(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def _has_slot(self, size: int, now_ms: int) -> bool:
        if len(self._sessions) < self.slots:
            return True
        if not self._sessions:
            return False
        oldest = min(self._sessions.values(), key=lambda session: session.used_ms)
        if now_ms - oldest.used_ms <= EVICTION_MS:
            smaller = [s for s in self._sessions.values() if len(s.partitions) < size and not s.is_privileged]
            oldest = min(smaller, key=lambda s: (len(s.partitions), s.created_ms), default=oldest)
            if not smaller or now_ms - oldest.created_ms <= EVICTION_MS:
                return False
        del self._sessions[oldest.id]
        self.evictions += 1
        return True

    def _take_id(self) -> int:
        while True:
            candidate = self._next_id
            self._next_id = 1 if candidate >= SESSION_ID_MAX else candidate + 1
            if candidate > NO_SESSION and candidate not in self._sessions:
                return candidate

    @property
    def partition_count(self) -> int:
        """Partitions that all sessions together follow."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)

    def __repr__(self) -> str:
        return f"<FetchSessions {len(self._sessions)} of {self.slots}>"
