"""What to change about a consumer group. Pure; facts come from group_gathering.py.

Rates are those of at most the last minute: what was committed and what was written in the same time. A partition that
was committed once or never in it has no rate, and a group without rates gets no advice about its speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import median
from typing import NamedTuple

from ottla.base.counting import counted
from ottla.base.names import TopicPartition
from ottla.operations.advice.report import Advice, Figure, Report, number

BEHIND_RECORDS_MIN = 100
BEHIND_SECONDS_MIN = 2.0  # of what comes in
BEHIND_SHARE = 0.9  # reads less than that of what comes in
SLOW_SHARE = 0.5  # of what other members read
HEADROOM = 1.25  # members that just keep up never catch up
COMMITS_MIN = 10.0  # a second
RECORDS_PER_COMMIT_FEW = 10.0
COMMIT_INTERVAL_MS = 5000  # the default of clients


class Progress(NamedTuple):
    """One partition: records a second that come in and that were read; None: nobody knows."""

    lag: int | None
    came: float | None
    read: float | None


class MemberFacts(NamedTuple):
    """One member and what it reads."""

    name: str  # client id and address
    partitions: tuple[TopicPartition, ...]


@dataclass
class GroupFacts:
    """Everything; what could not be asked is empty, and `unknown` says why."""

    group_id: str
    state: str
    members: Sequence[MemberFacts] = ()
    progress: Mapping[TopicPartition, Progress] = field(default_factory=dict)
    partition_counts: Mapping[str, int] = field(default_factory=dict)  # of the topics that are read
    commits_per_s: float | None = None  # of single partitions
    unknown: list[str] = field(default_factory=list)

    @property
    def read_per_s(self) -> float:
        return sum(each.read or 0.0 for each in self.progress.values())


class MemberRates(NamedTuple):
    """A member: what comes in for it, what it reads, and how far it is behind; only of partitions with rates."""

    name: str
    came: float
    read: float
    lag: int
    partitions: int

    @property
    def is_behind(self) -> bool:
        late = max(BEHIND_RECORDS_MIN, BEHIND_SECONDS_MIN * self.came)
        return self.lag >= late and self.read < BEHIND_SHARE * self.came


def advise_group(facts: GroupFacts) -> Report:
    advice = [*check_idle(facts), *check_speed(facts), *check_commits(facts)]
    return Report(f"group {facts.group_id}", figures(facts), advice, facts.unknown)


def check_idle(facts: GroupFacts) -> Iterator[Advice]:
    """Only while nothing is being handed out: in a rebalance everybody is idle."""
    idle = [member.name for member in facts.members if not member.partitions]
    busy = len(facts.members) - len(idle)
    if not idle or not busy or facts.state != "Stable":
        return
    partitions = sum(facts.partition_counts.values())
    if partitions >= len(facts.members):
        return  # they read other topics, or the assignor has its reasons
    topic = max(facts.partition_counts, key=lambda name: facts.partition_counts[name])
    wanted = len(facts.members) - partitions + facts.partition_counts[topic]
    yield Advice(
        "idle-members",
        f"{len(idle)} of {counted(len(facts.members), 'member')} have nothing to read, because the topics have "
        f"{counted(partitions, 'partition')}",
        f"ottla topics alter {topic} --partitions {wanted} (a key may then go to another partition than before), or "
        f"stop {len(idle)} of the members",
        f"all {len(facts.members)} members read: {number(len(facts.members) / busy)} times as many as now",
        {"partitions": wanted, "idle": 0},
    )


def check_speed(facts: GroupFacts) -> Iterator[Advice]:
    rates = [each for member in facts.members if (each := member_rates(facts, member)) is not None]
    late = [each for each in rates if each.is_behind]
    if not late:
        return
    if len(late) < len(rates):
        yield from _some_are_late(late, [each for each in rates if not each.is_behind])
        return
    came, read = sum(each.came for each in rates), sum(each.read for each in rates)
    each_reads = read / len(rates)
    if each_reads <= 0:
        return  # they stand still: no number of them helps
    wanted = ceil(HEADROOM * came / each_reads)
    partitions = sum(facts.partition_counts.values())
    lag = sum(each.lag for each in rates)
    drained_s = lag / (wanted * each_reads - came)
    first = f"{counted(wanted, 'partition')} and " if wanted > partitions else ""
    yield Advice(
        "too-few-members",
        f"{number(came)} records a second come in and {counted(len(rates), 'member')} read {number(read)}: {lag:,} "
        "records behind, and more every second",
        f"{first}{counted(wanted, 'member')}, or less work for each record (partitions now: {partitions})",
        f"{number(wanted * each_reads)} records a second: the lag is gone after about {number(drained_s)} s",
        {"members": wanted, "read_per_s": wanted * each_reads, "drained_s": drained_s},
    )


def _some_are_late(late: Sequence[MemberRates], others: Sequence[MemberRates]) -> Iterator[Advice]:
    usual_read, usual_came = (median(getattr(each, name) for each in others) for name in ("read", "came"))
    for each in late:
        if each.read < SLOW_SHARE * usual_read and each.came > SLOW_SHARE * usual_came:
            yield Advice(
                "slow-member",
                f"member {each.name} reads {number(each.read)} records a second and others {number(usual_read)}, "
                f"though as much comes in for it: it is {each.lag:,} records behind",
                "look at that member and its machine, or replace it by one that is as fast as the others",
                f"{number(usual_read)} records a second instead of {number(each.read)}: its lag shrinks",
                {"read_per_s": usual_read},
            )
        elif each.came > usual_came / SLOW_SHARE:
            one = each.partitions == 1
            yield Advice(
                "unfair-share",
                f"member {each.name} gets {number(each.came)} records a second and others {number(usual_came)}: it is "
                f"{each.lag:,} records behind",
                "spread the records over the partitions: ottla advise --topic tells by which key they are not"
                if one
                else f"more members: its {each.partitions} partitions are then shared",
                f"{number(each.came / usual_came)} times less for this member",
                {"times_less": each.came / usual_came},
            )


def check_commits(facts: GroupFacts) -> Iterator[Advice]:
    commits, read = facts.commits_per_s, facts.read_per_s
    if commits is None or commits < COMMITS_MIN or read <= 0 or read / commits >= RECORDS_PER_COMMIT_FEW:
        return
    partitions = sum(1 for each in facts.progress.values() if each.read)
    after = partitions * 1000 / COMMIT_INTERVAL_MS
    yield Advice(
        "commits",
        f"{number(commits)} offsets are committed a second for {number(read)} records: one for "
        f"{number(read / commits)} records",
        f"enable.auto.commit=true with auto.commit.interval.ms={COMMIT_INTERVAL_MS}, or a commit after many records "
        "instead of each",
        f"{number(after)} commits a second, {number(commits / after)} times fewer; after a crash up to "
        f"{COMMIT_INTERVAL_MS // 1000} s of records are read again",
        {"commits_per_s": after, "times_fewer": commits / after},
    )


def member_rates(facts: GroupFacts, member: MemberFacts) -> MemberRates | None:
    known = [each for place in member.partitions if (each := facts.progress.get(place)) and each.lag is not None]
    told = [each for each in known if each.came is not None and each.read is not None]
    if not told:
        return None
    return MemberRates(
        member.name,
        sum(each.came or 0.0 for each in told),
        sum(each.read or 0.0 for each in told),
        sum(each.lag or 0 for each in told),
        len(member.partitions),
    )


def figures(facts: GroupFacts) -> list[Figure]:
    lags = [each.lag for each in facts.progress.values() if each.lag is not None]
    came = [each.came for each in facts.progress.values() if each.came is not None]
    read = [each.read for each in facts.progress.values() if each.read is not None]
    idle = sum(not member.partitions for member in facts.members)
    return [
        Figure("state", facts.state),
        Figure("members", f"{len(facts.members):,}, {idle} of them without partitions"),
        Figure(
            "partitions", f"{sum(facts.partition_counts.values()):,} of {counted(len(facts.partition_counts), 'topic')}"
        ),
        Figure("lag", f"{sum(lags):,}" if lags else "?"),
        Figure("records that come in", f"{number(sum(came))}/s" if came else "?"),
        Figure("records that are read", f"{number(sum(read))}/s" if read else "?"),
        Figure("commits of partitions", "?" if facts.commits_per_s is None else f"{number(facts.commits_per_s)}/s"),
    ]
