"""What the rules find in a cluster: subject → sentence for each thing that is not well. Pure.

None instead means: it cannot be seen now. A broker's death must not open a hundred alerts: whatever is true of
partitions is one finding of its rule, with the number and a few of them by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from ottla.base.names import TopicPartition
from ottla.monitor.alerts.rules import Kind, Rule
from ottla.monitor.evaluation import GroupVerdict, PartitionVerdict, Status
from ottla.monitor.facts import NOBODY, ClusterFacts, FolderFacts, PartitionFacts
from ottla.monitor.rings import EndHistory

NAMED_MAX: Final = 5  # examples in a sentence
REMEMBERED_MS: Final = 3_600_000  # for so long a broker is missed that stores nothing
OF_GROUPS: Final = (Kind.VERDICT, Kind.LAG, Kind.LAG_SECONDS)

Findings = dict[str, str]


class View(NamedTuple):
    """All that rules may look at of one cluster."""

    facts: ClusterFacts | None
    is_stale: bool  # nobody has answered for a while
    is_ready: bool  # verdicts mean something
    problem: str
    verdicts: Mapping[str, GroupVerdict]
    ends: Mapping[TopicPartition, EndHistory]
    folders: Sequence[FolderFacts]
    min_isr: Mapping[str, int]
    brokers_seen_ms: Mapping[int, int]
    brokers_wanted: Sequence[int] = ()


def observe(rule: Rule, view: View, now_ms: int) -> Findings | None:
    """What one rule finds; pipelines are looked at elsewhere."""
    if rule.kind is Kind.BROKER_GONE and view.is_stale:
        return {"cluster": f"no broker answers: {view.problem or 'nothing has been heard yet'}"}
    if view.facts is None or view.is_stale:
        return None
    if rule.kind in OF_GROUPS:
        return _groups(rule, view) if view.is_ready else None
    if rule.kind is Kind.BROKER_GONE:
        return _brokers(view, now_ms)
    if rule.kind is Kind.CONTROLLER_GONE:
        is_gone = view.facts.controller == NOBODY or view.facts.controller not in view.facts.brokers
        return {"controller": "the cluster has no controller"} if is_gone else {}
    if rule.kind is Kind.DISK:
        return _disks(rule, view.folders)
    if rule.kind is Kind.DEAD_LETTERS:
        return _dead_letters(rule, view, now_ms)
    return _partitions(rule, view)


def _groups(rule: Rule, view: View) -> Findings:
    found: Findings = {}
    for group, verdict in view.verdicts.items():
        if not fnmatchcase(group, rule.group):
            continue
        if rule.kind is Kind.VERDICT and verdict.status.name in rule.statuses:
            found[f"group {group}"] = f"{verdict.status.name}, {_worst(verdict)}"
        elif rule.kind is Kind.LAG and verdict.totallag > rule.above:
            found[f"group {group}"] = f"{verdict.totallag} records behind, more than {rule.above:g}"
        elif rule.kind is Kind.LAG_SECONDS and (verdict.lag_ms or 0) > rule.above * 1000:
            seconds = (verdict.lag_ms or 0) / 1000
            found[f"group {group}"] = f"{seconds:.0f} s behind, more than {rule.above:g} s"
    return found


def _worst(verdict: GroupVerdict) -> str:
    bad = sorted((item for item in verdict.partitions if item.status > Status.OK), key=_badness)
    names = _names([f"{item.topic}-{item.partition} {item.status.name}" for item in bad])
    return f"{verdict.totallag} records behind{': ' if names else ''}{names}"


def _badness(verdict: PartitionVerdict) -> tuple[int, int]:
    return -verdict.status, -verdict.current_lag


def _brokers(view: View, now_ms: int) -> Findings:
    """Who stores something, was named or was there a moment ago, and is not there now."""
    assert view.facts is not None
    storing = {broker for item in view.facts.partitions for broker in item.replicas}
    seen = {broker for broker, seen_ms in view.brokers_seen_ms.items() if now_ms - seen_ms < REMEMBERED_MS}
    gone = (storing | seen | set(view.brokers_wanted)) - view.facts.brokers.keys()
    return {f"broker {broker}": "it is not in the cluster any more" for broker in sorted(gone)}


def _disks(rule: Rule, folders: Iterable[FolderFacts]) -> Findings:
    found: Findings = {}
    for folder in folders:
        subject = f"broker {folder.broker} {folder.path}"
        if folder.is_failed:
            found[subject] = "the log folder has failed"
        elif folder.total_bytes > 0 and folder.usable_bytes >= 0:
            share = folder.usable_bytes / folder.total_bytes
            if share < rule.below_share or folder.usable_bytes < rule.below_bytes:
                left = f"{folder.usable_bytes / 2**30:.1f} GiB"
                found[subject] = f"{left} are left, {share * 100:.0f} % of the disk"
    return found


def _dead_letters(rule: Rule, view: View, now_ms: int) -> Findings:
    assert view.facts is not None
    counts = {topic: 0 for topic in view.facts.topic_ids if fnmatchcase(topic, rule.topic)}
    for partition, history in view.ends.items():
        if partition.topic in counts:
            counts[partition.topic] += history.grown_since(now_ms - rule.within_ms)
    minutes = rule.within_ms / 60_000
    return {
        f"topic {topic}": f"{count} dead letters within {minutes:g} min"
        for topic, count in counts.items()
        if count > rule.above
    }


def _partitions(rule: Rule, view: View) -> Findings:
    assert view.facts is not None
    bad = [
        str(item)
        for item in view.facts.partitions
        if _is_bad(rule.kind, item, view) and fnmatchcase(item.topic, rule.topic)
    ]
    what = {
        Kind.LEADERLESS: "without a leader",
        Kind.UNDER_REPLICATED: "under-replicated",
        Kind.UNDER_MIN_ISR: "with fewer replicas in sync than min.insync.replicas",
    }[rule.kind]
    plural = "" if len(bad) == 1 else "s"
    return {"partitions": f"{len(bad)} partition{plural} {what}: {_names(bad)}"} if bad else {}


def _is_bad(kind: Kind, item: PartitionFacts, view: View) -> bool:
    assert view.facts is not None
    if kind is Kind.LEADERLESS:
        return item.leader == NOBODY or item.leader not in view.facts.brokers
    if kind is Kind.UNDER_REPLICATED:
        return len(item.isr) < len(item.replicas)
    wanted = view.min_isr.get(item.topic)
    return wanted is not None and len(item.isr) < wanted


def _names(items: Sequence[str]) -> str:
    rest = len(items) - NAMED_MAX
    return ", ".join(items[:NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")
