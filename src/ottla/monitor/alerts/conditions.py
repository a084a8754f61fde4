"""The conditions of alert rules: findings as subject → sentence. Pure.

None means that the state is unknown. Conditions of partitions yield one finding per rule, with the number and some
names, so that a dead broker does not open a hundred alerts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from ottla.base.names import TopicPartition
from ottla.monitor.alerts.alert_states import Condition, Rule
from ottla.monitor.lag_evaluation import GroupVerdict, PartitionVerdict, Status
from ottla.monitor.offset_rings import RecentEndHistory
from ottla.monitor.offset_store import NO_BROKER, ClusterFacts, LogDirFacts, PartitionFacts

NAMED_MAX: Final = 5  # names in a sentence
REMEMBER_BROKER_MS: Final = 3_600_000  # time for which a broker without replicas is missed
GROUP_CONDITIONS: Final = (Condition.VERDICT, Condition.LAG, Condition.LAG_SECONDS)

Findings = dict[str, str]


class ClusterView(NamedTuple):
    """The inputs of the rules for one cluster."""

    facts: ClusterFacts | None
    is_stale: bool  # no broker has answered for a while
    is_ready: bool  # verdicts are valid
    problem: str
    verdicts: Mapping[str, GroupVerdict]
    ends: Mapping[TopicPartition, RecentEndHistory]
    folders: Sequence[LogDirFacts]
    min_isr: Mapping[str, int]
    brokers_seen_ms: Mapping[int, int]
    brokers_wanted: Sequence[int] = ()


def evaluate_rule(rule: Rule, view: ClusterView, now_ms: int) -> Findings | None:
    """The findings of one rule, except for pipelines."""
    if rule.kind is Condition.BROKER_GONE and view.is_stale:
        return {"cluster": f"no broker answers: {view.problem or 'no response yet'}"}
    if view.facts is None or view.is_stale:
        return None
    if rule.kind in GROUP_CONDITIONS:
        return _groups(rule, view) if view.is_ready else None
    if rule.kind is Condition.BROKER_GONE:
        return _brokers(view, now_ms)
    if rule.kind is Condition.CONTROLLER_GONE:
        is_gone = view.facts.controller == NO_BROKER or view.facts.controller not in view.facts.brokers
        return {"controller": "the cluster has no controller"} if is_gone else {}
    if rule.kind is Condition.DISK:
        return _disks(rule, view.folders)
    if rule.kind is Condition.DEAD_LETTERS:
        return _dead_letters(rule, view, now_ms)
    return _partitions(rule, view)


def _groups(rule: Rule, view: ClusterView) -> Findings:
    found: Findings = {}
    for group, verdict in view.verdicts.items():
        if not fnmatchcase(group, rule.group):
            continue
        if rule.kind is Condition.VERDICT and verdict.ottla_status.name in rule.statuses:
            found[f"group {group}"] = f"{verdict.ottla_status.name}, {_lag_text(verdict)}"
        elif rule.kind is Condition.LAG and verdict.totallag > rule.above:
            found[f"group {group}"] = f"{verdict.totallag} records behind, more than {rule.above:g}"
        elif rule.kind is Condition.LAG_SECONDS and (verdict.lag_ms or 0) > rule.above * 1000:
            seconds = (verdict.lag_ms or 0) / 1000
            found[f"group {group}"] = f"{seconds:.0f} s behind, more than {rule.above:g} s"
    return found


def _lag_text(verdict: GroupVerdict) -> str:
    bad = sorted((item for item in verdict.partitions if item.ottla_status > Status.OK), key=_badness)
    names = _names([f"{item.topic}-{item.partition} {item.ottla_status.name}" for item in bad])
    return f"{verdict.totallag} records behind{': ' if names else ''}{names}"


def _badness(verdict: PartitionVerdict) -> tuple[int, int]:
    return -verdict.ottla_status, -verdict.current_lag


def _brokers(view: ClusterView, now_ms: int) -> Findings:
    """Brokers with replicas, listed ones and recently seen ones that are not in the cluster."""
    assert view.facts is not None
    storing = {broker for item in view.facts.partitions for broker in item.replicas}
    seen = {broker for broker, seen_ms in view.brokers_seen_ms.items() if now_ms - seen_ms < REMEMBER_BROKER_MS}
    gone = (storing | seen | set(view.brokers_wanted)) - view.facts.brokers.keys()
    return {f"broker {broker}": "it is not in the cluster any more" for broker in sorted(gone)}


def _disks(rule: Rule, folders: Iterable[LogDirFacts]) -> Findings:
    found: Findings = {}
    for folder in folders:
        subject = f"broker {folder.broker} {folder.path}"
        if folder.is_failed:
            found[subject] = "the log directory has failed"
        elif folder.total_bytes > 0 and folder.usable_bytes >= 0:
            share = folder.usable_bytes / folder.total_bytes
            if share < rule.below_share or folder.usable_bytes < rule.below_bytes:
                left = f"{folder.usable_bytes / 2**30:.1f} GiB"
                found[subject] = f"{left} are left, {share * 100:.0f} % of the disk"
    return found


def _dead_letters(rule: Rule, view: ClusterView, now_ms: int) -> Findings:
    assert view.facts is not None
    counts = {topic: 0 for topic in view.facts.topic_ids if fnmatchcase(topic, rule.topic)}
    for partition, history in view.ends.items():
        if partition.topic in counts:
            counts[partition.topic] += history.records_since(now_ms - rule.within_ms)
    minutes = rule.within_ms / 60_000
    return {
        f"topic {topic}": f"{count} dead letters within {minutes:g} min"
        for topic, count in counts.items()
        if count > rule.above
    }


def _partitions(rule: Rule, view: ClusterView) -> Findings:
    assert view.facts is not None
    bad = [
        str(item)
        for item in view.facts.partitions
        if _is_bad(rule.kind, item, view) and fnmatchcase(item.topic, rule.topic)
    ]
    what = {
        Condition.LEADERLESS: "without a leader",
        Condition.UNDER_REPLICATED: "under-replicated",
        Condition.UNDER_MIN_ISR: "with fewer replicas in sync than min.insync.replicas",
    }[rule.kind]
    plural = "" if len(bad) == 1 else "s"
    return {"partitions": f"{len(bad)} partition{plural} {what}: {_names(bad)}"} if bad else {}


def _is_bad(kind: Condition, item: PartitionFacts, view: ClusterView) -> bool:
    assert view.facts is not None
    if kind is Condition.LEADERLESS:
        return item.leader == NO_BROKER or item.leader not in view.facts.brokers
    if kind is Condition.UNDER_REPLICATED:
        return len(item.isr) < len(item.replicas)
    wanted = view.min_isr.get(item.topic)
    return wanted is not None and len(item.isr) < wanted


def _names(items: Sequence[str]) -> str:
    rest = len(items) - NAMED_MAX
    return ", ".join(items[:NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")
