"""Advice for a consumer group. Pure; facts come from group_samples.py.

Rates cover at most the last minute: commits and writes in the same period. A partition with fewer than two commits has
no rate, and a group without rates gets no advice about its speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import median
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.base.text import format_count
from ottla.operations.advice.advice import Advice, Figure, Report, number_text

BEHIND_RECORDS_MIN = 100
BEHIND_SECONDS_MIN = 2.0  # of incoming records
BEHIND_SHARE = 0.9  # of the incoming rate
SLOW_SHARE = 0.5  # of the rate of other members
HEADROOM = 1.25  # members that just keep up never catch up
COMMITS_MIN = 10.0  # per second
RECORDS_PER_COMMIT_FEW = 10.0
COMMIT_INTERVAL_MS = 5000  # the clients' default


class PartitionProgress(NamedTuple):
    """Rates of one partition: records per second that arrive and that are consumed; None: unknown."""

    lag: int | None
    incoming_per_s: float | None
    consumed_per_s: float | None


class MemberFacts(NamedTuple):
    """A member and its partitions."""

    name: str  # client ID and address
    partitions: tuple[TopicPartition, ...]


@dataclass
class GroupFacts:
    """All facts about the group; what could not be read is empty, and `unknown` says why."""

    group_id: str
    state: str
    members: Sequence[MemberFacts] = ()
    progress: Mapping[TopicPartition, PartitionProgress] = field(default_factory=dict)
    partition_counts: Mapping[str, int] = field(default_factory=dict)  # of the subscribed topics
    commits_per_s: float | None = None  # counted per partition
    unknown: list[str] = field(default_factory=list)

    @property
    def read_per_s(self) -> float:
        return sum(each.consumed_per_s or 0.0 for each in self.progress.values())


class MemberRates(NamedTuple):
    """Incoming rate, consumption rate and lag of a member, over its partitions with known rates."""

    name: str
    incoming_per_s: float
    consumed_per_s: float
    lag: int
    partitions: int

    @property
    def is_behind(self) -> bool:
        late = max(BEHIND_RECORDS_MIN, BEHIND_SECONDS_MIN * self.incoming_per_s)
        return self.lag >= late and self.consumed_per_s < BEHIND_SHARE * self.incoming_per_s


def advise_group(facts: GroupFacts) -> Report:
    advice = [*check_idle_members(facts), *check_speed(facts), *check_commit_rate(facts)]
    return Report(f"group {facts.group_id}", figures(facts), advice, facts.unknown)


def check_idle_members(facts: GroupFacts) -> Iterator[Advice]:
    """Only in a stable group: during a rebalance all members are idle."""
    idle = [member.name for member in facts.members if not member.partitions]
    busy = len(facts.members) - len(idle)
    if not idle or not busy or facts.state != "Stable":
        return
    partitions = sum(facts.partition_counts.values())
    if partitions >= len(facts.members):
        return  # they subscribe to other topics, or the assignor decided so
    topic = max(facts.partition_counts, key=lambda name: facts.partition_counts[name])
    wanted = len(facts.members) - partitions + facts.partition_counts[topic]
    yield Advice(
        "idle-members",
        f"{len(idle)} of {format_count(len(facts.members), 'member')} have nothing to read, because the topics have "
        f"{format_count(partitions, 'partition')}",
        f"ottla topics alter {topic} --partitions {wanted} (a key may then go to another partition than before), or "
        f"stop {len(idle)} of the members",
        f"all {len(facts.members)} members read: {number_text(len(facts.members) / busy)} times as many as now",
        {"partitions": wanted, "idle": 0},
    )


def check_speed(facts: GroupFacts) -> Iterator[Advice]:
    rates = [each for member in facts.members if (each := member_rates(facts, member)) is not None]
    late = [each for each in rates if each.is_behind]
    if not late:
        return
    if len(late) < len(rates):
        yield from _advise_slow_members(late, [each for each in rates if not each.is_behind])
        return
    came, read = sum(each.incoming_per_s for each in rates), sum(each.consumed_per_s for each in rates)
    each_reads = read / len(rates)
    if each_reads <= 0:
        return  # they make no progress, so more members do not help
    wanted = ceil(HEADROOM * came / each_reads)
    partitions = sum(facts.partition_counts.values())
    lag = sum(each.lag for each in rates)
    drained_s = lag / (wanted * each_reads - came)
    first = f"{format_count(wanted, 'partition')} and " if wanted > partitions else ""
    yield Advice(
        "too-few-members",
        f"{number_text(came)} records a second come in and {format_count(len(rates), 'member')} read "
        f"{number_text(read)}: {lag:,} "
        "records behind, and more every second",
        f"{first}{format_count(wanted, 'member')}, or less work for each record (partitions now: {partitions})",
        f"{number_text(wanted * each_reads)} records a second: the lag is gone after about {number_text(drained_s)} s",
        {"members": wanted, "read_per_s": wanted * each_reads, "drained_s": drained_s},
    )


def _advise_slow_members(late: Sequence[MemberRates], others: Sequence[MemberRates]) -> Iterator[Advice]:
    usual_read, usual_came = (
        median(each.consumed_per_s for each in others),
        median(each.incoming_per_s for each in others),
    )
    for each in late:
        if each.consumed_per_s < SLOW_SHARE * usual_read and each.incoming_per_s > SLOW_SHARE * usual_came:
            yield Advice(
                "slow-member",
                f"member {each.name} reads {number_text(each.consumed_per_s)} records a second and others "
                f"{number_text(usual_read)}, "
                f"though as much comes in for it: it is {each.lag:,} records behind",
                "check that member and its machine, or replace it by one that is as fast as the others",
                f"{number_text(usual_read)} records a second instead of "
                f"{number_text(each.consumed_per_s)}: its lag shrinks",
                {"read_per_s": usual_read},
            )
        elif each.incoming_per_s > usual_came / SLOW_SHARE:
            one = each.partitions == 1
            yield Advice(
                "unfair-share",
                f"member {each.name} gets {number_text(each.incoming_per_s)} records a second and others "
                f"{number_text(usual_came)}: it is "
                f"{each.lag:,} records behind",
                "spread the records over the partitions: ottla advise --topic shows the key that prevents it"
                if one
                else f"more members: its {each.partitions} partitions are then shared",
                f"{number_text(each.incoming_per_s / usual_came)} times less for this member",
                {"times_less": each.incoming_per_s / usual_came},
            )


def check_commit_rate(facts: GroupFacts) -> Iterator[Advice]:
    commits, read = facts.commits_per_s, facts.read_per_s
    if commits is None or commits < COMMITS_MIN or read <= 0 or read / commits >= RECORDS_PER_COMMIT_FEW:
        return
    partitions = sum(1 for each in facts.progress.values() if each.consumed_per_s)
    after = partitions * 1000 / COMMIT_INTERVAL_MS
    yield Advice(
        "commits",
        f"{number_text(commits)} offsets are committed a second for {number_text(read)} records: one for "
        f"{number_text(read / commits)} records",
        f"enable.auto.commit=true with auto.commit.interval.ms={COMMIT_INTERVAL_MS}, or a commit after many records "
        "instead of each",
        f"{number_text(after)} commits a second, {number_text(commits / after)} times fewer; after a crash up to "
        f"{COMMIT_INTERVAL_MS // 1000} s of records are read again",
        {"commits_per_s": after, "times_fewer": commits / after},
    )


def member_rates(facts: GroupFacts, member: MemberFacts) -> MemberRates | None:
    known = [each for place in member.partitions if (each := facts.progress.get(place)) and each.lag is not None]
    told = [each for each in known if each.incoming_per_s is not None and each.consumed_per_s is not None]
    if not told:
        return None
    return MemberRates(
        member.name,
        sum(each.incoming_per_s or 0.0 for each in told),
        sum(each.consumed_per_s or 0.0 for each in told),
        sum(each.lag or 0 for each in told),
        len(member.partitions),
    )


def figures(facts: GroupFacts) -> list[Figure]:
    lags = [each.lag for each in facts.progress.values() if each.lag is not None]
    came = [each.incoming_per_s for each in facts.progress.values() if each.incoming_per_s is not None]
    read = [each.consumed_per_s for each in facts.progress.values() if each.consumed_per_s is not None]
    idle = sum(not member.partitions for member in facts.members)
    return [
        Figure("state", facts.state),
        Figure("members", f"{len(facts.members):,}, {idle} of them without partitions"),
        Figure(
            "partitions",
            f"{sum(facts.partition_counts.values()):,} of {format_count(len(facts.partition_counts), 'topic')}",
        ),
        Figure("lag", f"{sum(lags):,}" if lags else "?"),
        Figure("records that come in", f"{number_text(sum(came))}/s" if came else "?"),
        Figure("records that are read", f"{number_text(sum(read))}/s" if read else "?"),
        Figure(
            "commits of partitions", "?" if facts.commits_per_s is None else f"{number_text(facts.commits_per_s)}/s"
        ),
    ]
