"""All that a monitor knows about one cluster's groups: their commits and members, and the ends of the logs. Pure.

Rules:
1. No clock, no socket: whoever reads tells what it has read, and when.
2. A commit counts as soon as the end of its partition is known; a partition without a known end shows no commits, as
   with Burrow, for a lag against nothing would be a guess.
3. What is gone goes: offsets that were deleted (a null value), groups without offsets, topics that the brokers do not
   have any more or have under another id, groups that have not committed for `expire_group_ms`.
4. Everything is bounded: past FOLLOWED_MAX partitions of groups new ones are counted and left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ottla.base.names import TopicPartition
from ottla.monitor.evaluation import (
    Commit,
    GroupVerdict,
    PartitionVerdict,
    Status,
    group_status,
    partition_status,
    share,
)
from ottla.monitor.members import NOBODY, Members, Owner
from ottla.monitor.rings import CommitRing, EndHistory

FOLLOWED_MAX: Final = 100_000  # partitions, counted once for each group that follows them
SLICE: Final = 200  # partitions that are judged in one go, about 2 ms
RECENT_MS: Final = 30_000
LOOK_MS_MAX: Final = 10_000  # how old a look may be that counts: as often does Burrow look at every log


class Limits(NamedTuple):
    """How much is kept; names and defaults are Burrow's."""

    intervals: int = 10
    min_distance_ms: int = 1_000
    expire_group_ms: int = 604_800_000
    minimum_complete: float = 0.0


class TopicFacts(NamedTuple):
    """A topic as the brokers describe it."""

    topic_id: UUID
    partitions: int


class Group:
    """What one group has committed."""

    __slots__ = ("last_commit_ms", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, CommitRing]] = {}
        self.last_commit_ms = 0

    def __repr__(self) -> str:
        return f"<Group of {len(self.topics)} topics, last commit {self.last_commit_ms}>"


class Store:
    """One cluster."""

    def __init__(self, cluster: str, limits: Limits | None = None) -> None:
        self.cluster = cluster
        self.limits = limits or Limits()
        self.groups: dict[str, Group] = {}
        self.members = Members()
        self.topics: dict[str, TopicFacts] = {}
        self._topic_names: dict[UUID, str] = {}
        self.ends: dict[TopicPartition, EndHistory] = {}
        self.followers: dict[TopicPartition, set[str]] = {}  # the groups that have committed it
        self.without_end: set[TopicPartition] = set()  # followed, but nobody has looked at the log yet, or long ago
        self._missing: set[str] = set()  # topics that were not there when they were looked for last
        self.followed = 0
        self.left_out = 0

    # What was read

    def add_commit(self, name: str, partition: TopicPartition, commit: Commit, now_ms: int) -> None:
        """`commit` as it was read, its lag not known yet."""
        if commit.timestamp_ms < now_ms - self.limits.expire_group_ms or partition.partition < 0:
            return
        group = self.groups.get(name)
        ring = group.topics.get(partition.topic, {}).get(partition.partition) if group is not None else None
        if ring is None:
            if self.followed >= FOLLOWED_MAX:
                self.left_out += 1
                return
            self.followed += 1
            group = self.groups.setdefault(name, Group())
            ring = CommitRing(self.limits.intervals)
            group.topics.setdefault(partition.topic, {})[partition.partition] = ring
            self.followers.setdefault(partition, set()).add(name)
            self._look_anew(partition, now_ms)
        assert group is not None
        seen = commit._replace(lag=self._lag_at(partition, commit), observed_ms=now_ms)
        if ring.add(seen, self.limits.min_distance_ms):
            group.last_commit_ms = max(group.last_commit_ms, commit.timestamp_ms)

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
        """All topics that there are; what was known of others, or of their namesakes from before, is forgotten.

        A broker that has just started may not know all of them: gone is what is missing twice in a row.
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
        """Where a log ends now."""
        history = self.ends.get(partition)
        if history is None:
            if not self._exists(partition):
                return
            history = self.ends[partition] = EndHistory(self.limits.intervals)
        if partition in self.without_end:
            self.without_end.discard(partition)
            for name in self.followers.get(partition, ()):
                ring = self.groups[name].topics[partition.topic][partition.partition]
                ring.end_is_known(end, ring.commits[-1].timestamp_ms >= now_ms - RECENT_MS)
        history.add(end, now_ms)

    def expire(self, now_ms: int) -> None:
        """Drop whoever has not committed for too long."""
        limit_ms = now_ms - self.limits.expire_group_ms
        for name in [name for name, group in self.groups.items() if group.last_commit_ms < limit_ms]:
            self.delete_group(name)

    # What is known

    def followed_partitions(self) -> list[TopicPartition]:
        """All partitions that some group has committed and that exist."""
        return [partition for partition in self.followers if self._exists(partition)]

    def group_names(self) -> list[str]:
        """Groups of which at least one partition can be shown."""
        return sorted(
            name for name, group in self.groups.items() if any(topic in self.topics for topic in group.topics)
        )

    def consumers_of(self, topic: str) -> list[str]:
        facts = self.topics.get(topic)
        partitions = (TopicPartition(topic, number) for number in range(facts.partitions if facts is not None else 0))
        return sorted({name for partition in partitions for name in self.followers.get(partition, ())})

    def topic_ends(self, topic: str) -> list[int] | None:
        """The known ends of a topic in the order of its partitions; None if there is no such topic."""
        facts = self.topics.get(topic)
        if facts is None:
            return None
        known = (self.ends.get(TopicPartition(topic, number)) for number in range(facts.partitions))
        return [history.end for history in known if history is not None]

    def ring(self, name: str, partition: TopicPartition) -> CommitRing | None:
        """What a group has committed, if it may be shown."""
        if partition not in self.ends:
            return None
        return self.groups[name].topics.get(partition.topic, {}).get(partition.partition)

    def shown_partitions(self, name: str) -> Iterator[TopicPartition]:
        """All partitions of the topics that a group follows, also those that it has not committed."""
        for topic in sorted(self.groups[name].topics):
            facts = self.topics.get(topic)
            for number in range(facts.partitions if facts is not None else 0):
                yield TopicPartition(topic, number)

    def owners(self, name: str) -> dict[TopicPartition, Owner]:
        return self.members.owners(name, self._topic_names.get)

    def verdict(self, name: str, now_ms: int) -> GroupVerdict | None:
        """None if there is no such group."""
        for found in self.verdict_in_slices(name, now_ms):
            if found is not None:
                return found
        return None

    def verdict_in_slices(self, name: str, now_ms: int) -> Iterator[GroupVerdict | None]:
        """The same in pieces: None is a good moment to let others go on. Ends without a verdict if the group goes."""
        if name not in self.groups or not any(topic in self.topics for topic in self.groups[name].topics):
            return
        partitions: list[PartitionVerdict] = []
        owners = self.owners(name)
        for partition in list(self.shown_partitions(name)):
            if len(partitions) % SLICE == SLICE - 1:
                yield None
                if name not in self.groups:
                    return
            partitions.append(self._judge(name, partition, owners.get(partition, NOBODY), now_ms))
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
        )

    def _judge(self, name: str, partition: TopicPartition, owner: Owner, now_ms: int) -> PartitionVerdict:
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
        return PartitionVerdict(
            *partition, owner.host, owner.client_id, status, commits[0], commits[-1], lag, complete, lag_ms, is_older
        )

    def _lag_at(self, partition: TopicPartition, commit: Commit) -> int | None:
        """What a commit left: unknown if the log was not looked at yet in its time."""
        history = self.ends.get(partition)
        if history is None or partition in self.without_end or commit.timestamp_ms < history.first_ms - RECENT_MS:
            return None
        return max(0, history.end - commit.offset)

    def _look_anew(self, partition: TopicPartition, now_ms: int) -> None:
        """A group begins to follow it: looks from when nobody did, which are far apart, say nothing of its commits."""
        history = self.ends.get(partition)
        if history is None:
            self.without_end.add(partition)
        elif now_ms - history.at_ms > LOOK_MS_MAX:
            self.without_end.add(partition)
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
        self.followed -= 1
        groups = self.followers[partition]
        groups.discard(name)
        if not groups:
            del self.followers[partition]
            self.without_end.discard(partition)

    def __repr__(self) -> str:
        return f"<Store {self.cluster}: {len(self.groups)} groups, {self.followed} followed, {len(self.topics)} topics>"
