"""Fetch sessions (KIP-227): a consumer sends its partitions once; later fetches and responses carry only changes.

Rules:
1. All decisions about sessions are in this module; no socket, no clock: time is an argument.
2. A session continues only with its id and its next epoch.
3. A full cache evicts a session only if it was unused for a while, or is smaller and older (KIP-227).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.network.connection import ConnectedClient
from ottla.replication.partition import Partition

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
EPOCH_MAX: Final = 2**31 - 1
EVICTION_MS: Final = 120_000
SESSION_ID_MAX: Final = 2**31 - 1
UNKNOWN: Final = -1

PartitionKey = tuple[str, UUID, int]


class CachedPartition:
    """One partition of a fetch and, in a session, the values that its client received last."""

    def __init__(self, topic: str, topic_id: UUID, index: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.fetch_offset = 0
        self.max_bytes = 0
        self.leader_epoch = -1
        self.last_fetched_epoch = -1  # this and the next field are used for followers only
        self.log_start_offset = -1
        self.partition: Partition | None = None  # cached after the first lookup, and looked up again when it is closed
        self.authorized_client: ConnectedClient | None = None  # the client that may read it, and
        self.authorized_generation = -1  # the generation of the ACLs that granted access
        self.sent_high_watermark = UNKNOWN
        self.sent_log_start_offset = UNKNOWN

    def update_request_params(
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
        return f"<CachedPartition {self.topic or self.topic_id}-{self.index} from {self.fetch_offset}>"


class FetchSession:
    """The partitions of one client's fetches."""

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int, is_privileged: bool = False) -> None:
        self.id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.is_privileged = is_privileged  # of a follower
        self.partitions: dict[PartitionKey, CachedPartition] = {}
        self.next_epoch = 1
        self.creation_ms = now_ms
        self.last_used_ms = now_ms

    def update(self, asked: Iterable[CachedPartition], forgotten: Iterable[PartitionKey]) -> None:
        for new in asked:
            known = self.partitions.get(new.key)
            if known is None:
                self.partitions[new.key] = new
            else:
                known.update_request_params(
                    new.fetch_offset, new.max_bytes, new.leader_epoch, new.last_fetched_epoch, new.log_start_offset
                )
        for key in forgotten:
            self.partitions.pop(key, None)

    def advance_epoch(self, now_ms: int) -> None:
        self.next_epoch = 1 if self.next_epoch == EPOCH_MAX else self.next_epoch + 1
        self.last_used_ms = now_ms

    def move_to_end(self, partition: CachedPartition) -> None:
        """Move a partition that returned records to the end, for fairness."""
        key = partition.key
        if self.partitions.pop(key, None) is not None:
            self.partitions[key] = partition

    def __repr__(self) -> str:
        return f"<FetchSession {self.id} epoch {self.next_epoch}, {len(self.partitions)} partitions>"


class FetchSessionCache:
    """The bounded cache of all sessions of a broker (Kafka's FetchSessionCache)."""

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
        now_ms: int,
    ) -> FetchSession:
        """Return the session of an incremental fetch, before it is updated."""
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(Error.FETCH_SESSION_ID_NOT_FOUND)
        if session.next_epoch != epoch:
            raise KafkaError(Error.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(Error.FETCH_SESSION_TOPIC_ID_ERROR)
        session.advance_epoch(now_ms)
        return session

    def end_if_empty(self, session: FetchSession) -> bool:
        """Close a session without partitions."""
        is_empty = not session.partitions
        if is_empty:
            self.close(session.id)
        return is_empty

    def start(self, uses_topic_ids: bool, size: int, now_ms: int, is_privileged: bool = False) -> FetchSession | None:
        """Return a new, empty session for this number of partitions, or None without partitions or a free slot.
        Followers always get one.
        """
        if not size or not (self._has_slot(size, now_ms) or is_privileged):
            return None
        session = FetchSession(self._take_id(), uses_topic_ids, now_ms, is_privileged)
        self._sessions[session.id] = session
        return session

    def close(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def _has_slot(self, size: int, now_ms: int) -> bool:
        if len(self._sessions) < self.slots:
            return True
        if not self._sessions:
            return False
        oldest = min(self._sessions.values(), key=lambda session: session.last_used_ms)
        if now_ms - oldest.last_used_ms <= EVICTION_MS:
            smaller = [s for s in self._sessions.values() if len(s.partitions) < size and not s.is_privileged]
            oldest = min(smaller, key=lambda s: (len(s.partitions), s.creation_ms), default=oldest)
            if not smaller or now_ms - oldest.creation_ms <= EVICTION_MS:
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
        """Number of partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)

    def __repr__(self) -> str:
        return f"<FetchSessionCache {len(self._sessions)} of {self.slots}>"
