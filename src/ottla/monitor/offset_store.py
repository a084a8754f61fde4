"""The state of a cluster monitor: commits and members of groups, topics, and log end offsets. Pure.

Rules:
1. No clock, no socket: callers pass what they have read, and when.
2. A commit counts once the end offset of its partition is known. Without one no commits are shown, as in Burrow.
3. Deleted state is removed: deleted offsets (tombstones), groups without offsets, topics that no longer exist or have
   another ID, groups without a commit for `expire_group_ms`.
4. The state is bounded: beyond FOLLOWED_MAX partitions of groups new ones are counted and ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.base.names import TopicPartition
from ottla.monitor.lag_evaluation import (
    Commit,
    GroupVerdict,
    PartitionVerdict,
    Status,
    group_status,
    ottla_status,
    partition_status,
    share,
)
from ottla.monitor.offset_rings import CommitRing, FirstUnreadRecord, RecentEndHistory

# ---- cluster metadata
NO_BROKER = -1  # as a leader or controller


class PartitionFacts(NamedTuple):
    """A partition and its replicas."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ClusterFacts(NamedTuple):
    """The metadata of a cluster, with all topics."""

    cluster_id: str
    controller: int
    brokers: Mapping[int, str]  # live brokers with their addresses
    topic_ids: Mapping[str, UUID]
    partitions: tuple[PartitionFacts, ...]


class LogDirFacts(NamedTuple):
    """A log directory of a broker; sizes are those of its disk, -1 if an old broker does not report them."""

    broker: int
    path: str
    is_failed: bool
    total_bytes: int
    usable_bytes: int


# ---- group members
# A classic group has all its members in one record. A member of a consumer group (KIP-848) has one record with its
# client ID and one with its assignment by topic ID; the IDs are resolved on reading.
MEMBERS_MAX: Final = 100_000  # of all groups; more are not shown

TopicName = Callable[[UUID], str | None]


class ClassicMember(NamedTuple):
    """A member of a classic group and its assignment."""

    client_id: str
    host: str
    partitions: Sequence[TopicPartition]


class MemberChange(NamedTuple):
    """A change of a consumer group member: its client ID, its assignment, or that it left."""

    group: str
    member_id: str
    client: tuple[str, str] | None = None  # client ID and host
    assigned: Sequence[tuple[UUID, int]] | None = None
    has_left: bool = False


class Owner(NamedTuple):
    """The member that reads a partition."""

    client_id: str
    host: str


NO_OWNER: Final = Owner("", "")


class _ConsumerMember:
    __slots__ = ("assigned", "client")

    def __init__(self) -> None:
        self.client = NO_OWNER
        self.assigned: Sequence[tuple[UUID, int]] = ()


class Members:
    """The members of all groups of a cluster."""

    def __init__(self) -> None:
        self._classic: dict[str, Sequence[ClassicMember]] = {}
        self._new: dict[str, dict[str, _ConsumerMember]] = {}
        self.count = 0

    def set_classic(self, group: str, members: Sequence[ClassicMember]) -> None:
        self.count -= len(self._classic.pop(group, ()))
        if members and self.count + len(members) <= MEMBERS_MAX:
            self._classic[group] = members
            self.count += len(members)

    def apply(self, news: MemberChange) -> None:
        members = self._new.setdefault(news.group, {})
        if news.has_left:
            self.count -= members.pop(news.member_id, None) is not None
        elif news.member_id in members or self.count < MEMBERS_MAX:
            self.count += news.member_id not in members
            member = members.setdefault(news.member_id, _ConsumerMember())
            if news.client is not None:
                member.client = Owner(*news.client)
            if news.assigned is not None:
                member.assigned = news.assigned
        if not members:
            del self._new[news.group]

    def owners(self, group: str, topic_name: TopicName) -> dict[TopicPartition, Owner]:
        found = {
            partition: Owner(member.client_id, member.host)
            for member in self._classic.get(group, ())
            for partition in member.partitions
        }
        for new in self._new.get(group, {}).values():
            for topic_id, number in new.assigned:
                name = topic_name(topic_id)
                if name is not None:
                    found[TopicPartition(name, number)] = new.client
        return found

    def __repr__(self) -> str:
        return f"<Members {self.count} in {len(self._classic)} classic and {len(self._new)} new groups>"


FOLLOWED_MAX: Final = 100_000  # counted once for each group
PARTITIONS_PER_SLICE: Final = 200  # partitions evaluated at once, about 2 ms
RECENT_MS: Final = 30_000
UNREAD_MS: Final = 30_000  # an offset unchanged for so long gets the timestamp of its next record
STABLE_END_INTERVAL_MS: Final = 4_000  # between two samples that follow commits
COMMIT_PAUSE_MS: Final = 10_000  # after a pause longer than this a commit causes an immediate sample
SAMPLE_AGE_MS_MAX: Final = 10_000  # maximum age of a usable sample: Burrow's sampling interval


class HistoryLimits(NamedTuple):
    """Limits of the history; names and defaults are Burrow's."""

    intervals: int = 10
    min_distance_ms: int = 1_000
    expire_group_ms: int = 604_800_000
    minimum_complete: float = 0.0


class TopicFacts(NamedTuple):
    """A topic as the brokers describe it."""

    topic_id: UUID
    partitions: int


class Group:
    """The commits of one group."""

    __slots__ = ("last_commit_ms", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, CommitRing]] = {}
        self.last_commit_ms = 0

    def __repr__(self) -> str:
        return f"<Group of {len(self.topics)} topics, last commit {self.last_commit_ms}>"


class OffsetStore:
    """The state of one cluster."""

    def __init__(self, cluster: str, limits: HistoryLimits | None = None) -> None:
        self.cluster = cluster
        self.limits = limits or HistoryLimits()
        self.groups: dict[str, Group] = {}
        self.members = Members()
        self.topics: dict[str, TopicFacts] = {}
        self._topic_names: dict[UUID, str] = {}
        self.ends: dict[TopicPartition, RecentEndHistory] = {}
        self.followers: dict[TopicPartition, set[str]] = {}  # groups with a commit in the partition
        self.without_recent_end: set[TopicPartition] = set()  # with commits, but without a recent sample
        self._stable_end_due_ms: dict[TopicPartition, int] = {}  # partitions whose stable end offset is due, and when
        self._stable_end_sampled_ms: dict[TopicPartition, int] = {}  # when it was last sampled
        # by partition: a group and its offset; see `pending_first_unread`
        self._first_unread_requests: dict[TopicPartition, tuple[str, int]] = {}
        self._missing: set[str] = set()  # topics missing from the last metadata
        self.partition_count = 0
        self.ignored_commits = 0

    # ---- updates

    def add_commit(self, name: str, partition: TopicPartition, commit: Commit, now_ms: int) -> None:
        """Add a commit as read; its lag is not known yet."""
        if commit.timestamp_ms < now_ms - self.limits.expire_group_ms or partition.partition < 0:
            return
        group = self.groups.get(name)
        ring = group.topics.get(partition.topic, {}).get(partition.partition) if group is not None else None
        if ring is None:
            if self.partition_count >= FOLLOWED_MAX:
                self.ignored_commits += 1
                return
            self.partition_count += 1
            group = self.groups.setdefault(name, Group())
            ring = CommitRing(self.limits.intervals)
            group.topics.setdefault(partition.topic, {})[partition.partition] = ring
            self.followers.setdefault(partition, set()).add(name)
            self._discard_old_samples(partition, now_ms)
        assert group is not None
        seen = commit._replace(lag=self._lag_at(partition, commit), observed_ms=now_ms)
        is_seldom = not ring.commits or commit.timestamp_ms - ring.commits[-1].timestamp_ms >= COMMIT_PAUSE_MS
        if ring.add(seen, self.limits.min_distance_ms):
            group.last_commit_ms = max(group.last_commit_ms, commit.timestamp_ms)
            self._schedule_stable_end(
                partition,
                now_ms if is_seldom else self._stable_end_sampled_ms.get(partition, 0) + STABLE_END_INTERVAL_MS,
            )

    def forget_commit(self, name: str, partition: TopicPartition) -> None:
        group = self.groups.get(name)
        if group is None or group.topics.get(partition.topic, {}).pop(partition.partition, None) is None:
            return
        self._unfollow(name, partition)
        if not group.topics[partition.topic]:
            del group.topics[partition.topic]
        if not group.topics:
            del self.groups[name]

    def delete_group(self, name: str) -> bool:
        group = self.groups.pop(name, None)
        if group is None:
            return False
        for topic, rings in group.topics.items():
            for number in rings:
                self._unfollow(name, TopicPartition(topic, number))
        return True

    def set_topics(self, topics: Mapping[str, TopicFacts]) -> None:
        """Set the existing topics; state of deleted and recreated topics is removed.

        A broker that has just started may not know all topics: a topic counts as deleted if it is missing twice in a
        row.
        """
        found = dict(topics)
        missing = self.topics.keys() - topics.keys()
        for name, before in self.topics.items():
            now = topics.get(name)
            if now is None and name not in self._missing:
                found[name] = before
            elif now is None or now.topic_id != before.topic_id or now.partitions < before.partitions:
                self._delete_topic(name, before)
        self._missing = missing
        self.topics = found
        self._topic_names = {facts.topic_id: name for name, facts in found.items()}

    def add_end(self, partition: TopicPartition, end: int, now_ms: int) -> None:
        """Add the current log end offset."""
        history = self.ends.get(partition)
        if history is None:
            if not self._exists(partition):
                return
            history = self.ends[partition] = RecentEndHistory(self.limits.intervals)
        if partition in self.without_recent_end:
            self.without_recent_end.discard(partition)
            for name in self.followers.get(partition, ()):
                ring = self.groups[name].topics[partition.topic][partition.partition]
                ring.set_first_lag(end, ring.commits[-1].timestamp_ms >= now_ms - RECENT_MS)
        history.add(end, now_ms)
        for name in self.followers.get(partition, ()):
            ring = self.groups[name].topics[partition.topic][partition.partition]
            if ring.offset < end:
                self._schedule_stable_end(
                    partition, self._stable_end_sampled_ms.get(partition, 0) + STABLE_END_INTERVAL_MS
                )
            else:
                ring.trend.add_sample(ring.offset, end, now_ms, ring.commits[-1].timestamp_ms)

    def due_stable_ends(self, now_ms: int) -> list[TopicPartition]:
        """Partitions whose stable end offset is due."""
        return [place for place, due_ms in self._stable_end_due_ms.items() if due_ms <= now_ms and self._exists(place)]

    def add_stable_end(self, partition: TopicPartition, end: int, now_ms: int) -> None:
        """Add the current end offset for read_committed consumers."""
        self._stable_end_due_ms.pop(partition, None)
        followers = self.followers.get(partition)
        if not followers:
            return
        self._stable_end_sampled_ms[partition] = now_ms
        for name in followers:
            ring = self.groups[name].topics[partition.topic][partition.partition]
            ring.trend.add_sample(ring.offset, end, now_ms, ring.commits[-1].timestamp_ms)
            if ring.trend.lagging_since_ms is not None:
                self._request_first_unread(name, partition, ring, end, now_ms)

    def pending_first_unread(self, count: int) -> dict[TopicPartition, int]:
        """Unchanged offsets whose next record's timestamp is wanted."""
        return {place: self._first_unread_requests[place][1] for place in list(self._first_unread_requests)[:count]}

    def add_first_unread(self, partition: TopicPartition, offset: int, time_ms: int | None, *, is_known: bool) -> None:
        """Set the timestamp of the first record at or after `offset`; None: no record follows, or unknown."""
        name, wanted = self._first_unread_requests.pop(partition, ("", -1))
        group, history = self.groups.get(name), self.ends.get(partition)
        ring = group.topics.get(partition.topic, {}).get(partition.partition) if group is not None else None
        if ring is None or history is None or wanted != offset:
            return
        ring.first_unread = FirstUnreadRecord(offset, history.end, time_ms, is_known)
        if time_ms is not None:
            history.prepend(offset, time_ms)
        self._apply_first_unread(ring, history.end)

    def expire(self, now_ms: int) -> None:
        """Remove groups without a recent commit."""
        limit_ms = now_ms - self.limits.expire_group_ms
        for name in [name for name, group in self.groups.items() if group.last_commit_ms < limit_ms]:
            self.delete_group(name)

    # ---- queries

    def followed_partitions(self) -> list[TopicPartition]:
        """All existing partitions with a commit of any group."""
        return [partition for partition in self.followers if self._exists(partition)]

    def group_names(self) -> list[str]:
        """Groups with at least one partition that can be shown."""
        return sorted(
            name for name, group in self.groups.items() if any(topic in self.topics for topic in group.topics)
        )

    def consumers_of(self, topic: str) -> list[str]:
        facts = self.topics.get(topic)
        partitions = (TopicPartition(topic, number) for number in range(facts.partitions if facts is not None else 0))
        return sorted({name for partition in partitions for name in self.followers.get(partition, ())})

    def topic_ends(self, topic: str) -> list[int] | None:
        """The known end offsets of a topic in partition order; None if it does not exist."""
        facts = self.topics.get(topic)
        if facts is None:
            return None
        known = (self.ends.get(TopicPartition(topic, number)) for number in range(facts.partitions))
        return [history.end for history in known if history is not None]

    def ring(self, name: str, partition: TopicPartition) -> CommitRing | None:
        """The commits of a group in a partition, if they can be shown."""
        if partition not in self.ends:
            return None
        return self.groups[name].topics.get(partition.topic, {}).get(partition.partition)

    def shown_partitions(self, name: str) -> Iterator[TopicPartition]:
        """All partitions of the group's topics, including those without a commit."""
        for topic in sorted(self.groups[name].topics):
            facts = self.topics.get(topic)
            for number in range(facts.partitions if facts is not None else 0):
                yield TopicPartition(topic, number)

    def owners(self, name: str) -> dict[TopicPartition, Owner]:
        return self.members.owners(name, self._topic_names.get)

    def verdict(self, name: str, now_ms: int) -> GroupVerdict | None:
        """None if the group does not exist."""
        for found in self.verdict_in_slices(name, now_ms):
            if found is not None:
                return found
        return None

    def verdict_in_slices(self, name: str, now_ms: int) -> Iterator[GroupVerdict | None]:
        """The same in slices: None lets other tasks run. Ends without a verdict if the group is deleted."""
        if name not in self.groups or not any(topic in self.topics for topic in self.groups[name].topics):
            return
        partitions: list[PartitionVerdict] = []
        owners = self.owners(name)
        for partition in list(self.shown_partitions(name)):
            if len(partitions) % PARTITIONS_PER_SLICE == PARTITIONS_PER_SLICE - 1:
                yield None
                if name not in self.groups:
                    return
            partitions.append(self._partition_verdict(name, partition, owners.get(partition, NO_OWNER), now_ms))
        complete = sum(item.complete == 1.0 for item in partitions)
        yield GroupVerdict(
            cluster=self.cluster,
            group=name,
            status=group_status(item.status for item in partitions),
            complete=share(complete, len(partitions)),
            partitions=tuple(partitions),
            maxlag=max(partitions, key=lambda item: item.current_lag, default=None),
            totallag=sum(item.current_lag for item in partitions),
            at_ms=now_ms,
            ottla_status=group_status(item.ottla_status for item in partitions),
        )

    def _partition_verdict(self, name: str, partition: TopicPartition, owner: Owner, now_ms: int) -> PartitionVerdict:
        ring, history = self.ring(name, partition), self.ends.get(partition)
        if ring is None or history is None:
            return PartitionVerdict(*partition, owner.host, owner.client_id, Status.OK, None, None, 0, 0.0)
        commits = ring.commits
        lag = max(0, history.end - commits[-1].offset)
        complete = share(len(commits), self.limits.intervals)
        status = Status.OK
        if complete >= self.limits.minimum_complete:
            status = partition_status(commits, history.recent, lag, now_ms)
        lag_ms, is_older = history.lag_ms(commits[-1].offset, now_ms)
        own = ottla_status(commits, ring.trend, lag, now_ms)
        return PartitionVerdict(
            *partition,
            owner.host,
            owner.client_id,
            status,
            commits[0],
            commits[-1],
            lag,
            complete,
            lag_ms,
            is_older,
            own,
        )

    def _schedule_stable_end(self, partition: TopicPartition, due_ms: int) -> None:
        self._stable_end_due_ms[partition] = min(due_ms, self._stable_end_due_ms.get(partition, due_ms))

    def _request_first_unread(
        self, name: str, partition: TopicPartition, ring: CommitRing, end: int, now_ms: int
    ) -> None:
        """Request the timestamp of the first unread record if it is older than the first sample, or unread for long."""
        history, behind_ms = self.ends.get(partition), ring.trend.lagging_since_ms
        if ring.first_unread is not None and ring.first_unread.offset == ring.offset:
            self._apply_first_unread(ring, end)
        elif history is not None and behind_ms is not None:
            is_older = ring.first_unread is None and history.lag_ms(ring.offset, now_ms)[1]
            if is_older or behind_ms <= now_ms - UNREAD_MS:
                self._first_unread_requests[partition] = name, ring.offset

    def _apply_first_unread(self, ring: CommitRing, end: int) -> None:
        """Transaction markers alone are not lag, as long as no record follows."""
        known = ring.first_unread
        if known is None or known.offset != ring.offset or not known.is_known:
            return
        if known.time_ms is not None:
            ring.trend.set_unread_since(known.offset, max(known.time_ms, ring.commits[-1].timestamp_ms))
        elif end <= known.end:
            ring.trend.clear_lag(known.offset)
        else:
            ring.first_unread = None

    def _lag_at(self, partition: TopicPartition, commit: Commit) -> int | None:
        """The lag at the time of a commit; None if the log was not sampled then."""
        history = self.ends.get(partition)
        if (
            history is None
            or partition in self.without_recent_end
            or commit.timestamp_ms < history.first_ms - RECENT_MS
        ):
            return None
        return max(0, history.end - commit.offset)

    def _discard_old_samples(self, partition: TopicPartition, now_ms: int) -> None:
        """For a new group, older samples of the log are too far apart to be used."""
        history = self.ends.get(partition)
        if history is None:
            self.without_recent_end.add(partition)
        elif now_ms - history.at_ms > SAMPLE_AGE_MS_MAX:
            self.without_recent_end.add(partition)
            history.recent.clear()

    def _delete_topic(self, name: str, facts: TopicFacts) -> None:
        for number in range(facts.partitions):
            partition = TopicPartition(name, number)
            self.ends.pop(partition, None)
            for group in list(self.followers.get(partition, ())):
                self.forget_commit(group, partition)

    def _exists(self, partition: TopicPartition) -> bool:
        facts = self.topics.get(partition.topic)
        return facts is not None and partition.partition < facts.partitions

    def _unfollow(self, name: str, partition: TopicPartition) -> None:
        self.partition_count -= 1
        groups = self.followers[partition]
        groups.discard(name)
        if not groups:
            del self.followers[partition]
            self.without_recent_end.discard(partition)
            for kept in (self._stable_end_due_ms, self._stable_end_sampled_ms, self._first_unread_requests):
                kept.pop(partition, None)

    def __repr__(self) -> str:
        return (
            f"<OffsetStore {self.cluster}: {len(self.groups)} groups, {self.partition_count} followed, "
            f"{len(self.topics)} topics>"
        )
