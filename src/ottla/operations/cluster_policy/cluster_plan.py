"""Compares the wanted state of a cluster with the current one. Pure.

Rules:
1. Only differences are changed: after a plan is applied, the next plan is empty.
2. Resources that the file does not contain stay, unless pruning is on. Sections that the file does not contain are
   ignored. Never pruned: internal and service topics, secrets, and temporary settings of replica moves.
3. A change that no request can make is refused together with the whole plan; the refusal names an alternative.
4. Secrets cannot be compared: a missing one is set, an existing one only on request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ottla.base.names import is_bookkeeping
from ottla.operations.cluster_policy.cluster_state import (
    ALL_BROKERS,
    BROKERS,
    GROUPS,
    NEVER_PRUNED,
    REASSIGNMENT_KEYS,
    TOPICS,
    ClusterState,
    Settings,
    TopicState,
    is_internal,
    is_secret,
)
from ottla.operations.cluster_policy.schemas import SchemaChange, SchemaPlan
from ottla.operations.cluster_policy.security_plan import (
    ADD,
    CHANGE,
    NOT_POSSIBLE,
    NOTHING,
    REMOVE,
    Plan,
    Row,
    make_plan,
)

HIDDEN: Final = "(hidden)"
KINDS: Final = {TOPICS: "topic", BROKERS: "broker", GROUPS: "group"}
UNMANAGED_SETTINGS: Final = "settings"


class TopicChange(NamedTuple):
    """A topic to create, delete or grow."""

    mark: str
    name: str
    before: TopicState | None
    after: TopicState | None

    def row(self) -> Row:
        if self.mark == CHANGE:
            assert self.before is not None
            assert self.after is not None
            return self.mark, "topic", self.name, _partitions(self.before), _partitions(self.after)
        return self.mark, "topic", self.name, _topic_text(self.before), _topic_text(self.after)


class SettingChange(NamedTuple):
    """One setting of a topic, a broker, all brokers or a group."""

    mark: str
    kind: str  # a key of KINDS
    name: str
    key: str
    before: str | None
    after: str | None

    def row(self) -> Row:
        owner = "all brokers" if (self.kind, self.name) == (BROKERS, ALL_BROKERS) else f"{KINDS[self.kind]} {self.name}"
        hidden = is_secret(self.key)
        before, after = (value and HIDDEN if hidden else value for value in (self.before, self.after))
        if hidden and self.mark == CHANGE:
            before = HIDDEN
        return self.mark, "setting", f"{owner}: {self.key}", before or NOTHING, after or NOTHING


class Refusal(NamedTuple):
    """An impossible change and the alternative; the text is empty if another refusal explains it."""

    row: Row
    why: str


class ClusterPlan(NamedTuple):
    """The changes, the impossible changes, and the resources that are not in the file."""

    topics: list[TopicChange]
    settings: list[SettingChange]
    schemas: list[SchemaChange]
    policy: Plan
    refusals: list[Refusal]
    unmanaged: dict[str, int]
    uncompared_secrets: list[str]

    @property
    def is_empty(self) -> bool:
        return not (self.refusals or self.topics or self.settings or self.schemas) and self.policy.is_empty

    def rows(self) -> list[Row]:
        changes: list[TopicChange | SettingChange | SchemaChange] = [*self.topics, *self.settings, *self.schemas]
        return [
            *(refusal.row for refusal in self.refusals),
            *(change.row() for change in changes),
            *self.policy.rows(),
        ]

    def reasons(self) -> list[str]:
        """Why the plan cannot be applied; empty if it can."""
        return [
            *(refusal.why for refusal in self.refusals if refusal.why),
            *(change.impossible_reason() for change in self.policy.impossible()),
        ]

    def removals(self) -> list[Row]:
        return [row for row in self.rows() if row[0] == REMOVE]


class PlanBuilder:
    """Collects the differences while two states are compared."""

    def __init__(self, fixed: frozenset[str], prunes: bool, sets_secrets: bool) -> None:
        self.read_only_keys = fixed
        self.prunes = prunes
        self.sets_secrets = sets_secrets
        self.topics: list[TopicChange] = []
        self.settings: list[SettingChange] = []
        self.refusals: list[Refusal] = []
        self.unmanaged: dict[str, int] = {}
        self.uncompared_secrets: list[str] = []

    def __repr__(self) -> str:
        return f"<PlanBuilder topics={len(self.topics)} settings={len(self.settings)} refusals={len(self.refusals)}>"

    def refuse(self, kind: str, what: str, before: str, after: str, why: str) -> None:
        self.refusals.append(Refusal((NOT_POSSIBLE, kind, what, before, after), why))

    def count_unmanaged(self, what: str, count: int = 1) -> None:
        if count:
            self.unmanaged[what] = self.unmanaged.get(what, 0) + count


def make_cluster_plan(
    wanted: ClusterState,
    found: ClusterState,
    schemas: SchemaPlan,
    *,
    prunes: bool = False,
    sets_secrets: bool = False,
) -> ClusterPlan:
    """`found` contains at least the wanted sections, and the names of all topics."""
    found_now = PlanBuilder(found.read_only_keys, prunes, sets_secrets)
    if wanted.topics is not None:
        _compare_topics(wanted.topics, found.topics or {}, found_now)
    for kind, some, others in ((BROKERS, wanted.brokers, found.brokers), (GROUPS, wanted.groups, found.groups)):
        if some is not None:
            _compare_resources(kind, some, others or {}, found_now)
    policy = make_plan(wanted.policy, found.policy, prunes=prunes, sets_passwords=sets_secrets)
    return ClusterPlan(
        found_now.topics,
        found_now.settings,
        schemas.changes,
        policy,
        [*found_now.refusals, *(Refusal(*each) for each in schemas.refusals)],
        {**found_now.unmanaged, **schemas.unmanaged, **policy.unmanaged},
        [*found_now.uncompared_secrets, *policy.uncompared_passwords],
    )


# ---- topics


def _compare_topics(
    wanted: Mapping[str, TopicState], found: Mapping[str, TopicState], differences: PlanBuilder
) -> None:
    for name, topic in wanted.items():
        before = found.get(name)
        if is_internal(name):
            why = f"topic {name} is the cluster's own: leave it out of the file (ottla configs set topic {name} ...)"
            differences.refuse("topic", name, NOTHING, NOTHING, why)
        elif before is None:
            differences.topics.append(TopicChange(ADD, name, None, topic))
        else:
            _compare_numbers(name, topic, before, differences)
            differences.settings += _setting_changes(TOPICS, name, topic.settings, before.settings, differences)
    for name, before in found.items():
        if name in wanted or is_bookkeeping(name):
            continue
        if differences.prunes:
            differences.topics.append(TopicChange(REMOVE, name, before, None))
        else:
            differences.count_unmanaged(TOPICS)


def _compare_numbers(name: str, wanted: TopicState, found: TopicState, differences: PlanBuilder) -> None:
    partitions, factor = wanted.partitions or found.partitions or 0, wanted.replication_factor
    if partitions < (found.partitions or 0):
        why = (
            f"topic {name} has {found.partitions} partitions, the file wants {partitions}: topics cannot shrink. "
            "Put the current number into the file, or copy the records to a new topic"
        )
        differences.refuse("topic", name, _partitions(found), _partitions(wanted), why)
    elif partitions > (found.partitions or 0):
        differences.topics.append(TopicChange(CHANGE, name, found, wanted))
    if factor is not None and factor != found.replication_factor:
        why = (
            f"topic {name} has replication factor {found.replication_factor}, the file wants {factor}: that moves "
            "data, and is done with a throttle and progress by ottla cluster replication-factor (or ottla reassign "
            f"generate {name} --replication-factor {factor})"
        )
        differences.refuse("topic", name, _factor(found.replication_factor), _factor(factor), why)


# ---- settings


def _compare_resources(
    kind: str, wanted: Mapping[str, Settings], found: Mapping[str, Settings], differences: PlanBuilder
) -> None:
    for name, settings in wanted.items():
        if name in found:
            differences.settings += _setting_changes(kind, name, settings, found[name], differences)
        else:
            known = ", ".join(sorted(each for each in found if each != ALL_BROKERS)) or "none"
            why = f"{KINDS[kind]} {name} is not online (online: {known}); start it, or remove it from the file"
            differences.refuse(kind.removesuffix("s"), name, NOTHING, NOTHING, why)
    for name, settings in found.items():
        if name not in wanted:
            differences.settings += _setting_changes(kind, name, {}, settings, differences)


def _setting_changes(
    kind: str, name: str, wanted: Settings, found: Settings, differences: PlanBuilder
) -> Iterator[SettingChange]:
    for key, value in wanted.items():
        before = found.get(key)
        if kind == BROKERS and key in differences.read_only_keys:
            row = SettingChange(NOT_POSSIBLE, kind, name, key, before, value).row()
            why = f"{row[2]} is read when a broker starts: put it into server.properties, and restart"
            differences.refusals.append(Refusal(row, why))
        elif key not in found:
            yield SettingChange(ADD, kind, name, key, None, value)
        elif before is not None and is_same_value(before, value or ""):
            continue
        elif before is None and not differences.sets_secrets:
            differences.uncompared_secrets.append(f"{key} of {KINDS[kind]} {name or 'defaults'}")
        else:
            yield SettingChange(CHANGE, kind, name, key, before, value)
    extra = [key for key, value in found.items() if key not in wanted and _is_pruned(name, key, value)]
    if differences.prunes:
        for key in extra:
            yield SettingChange(REMOVE, kind, name, key, found[key], None)
    else:
        differences.count_unmanaged(UNMANAGED_SETTINGS, len(extra))


def _is_pruned(name: str, key: str, value: str | None) -> bool:
    return value is not None and key not in REASSIGNMENT_KEYS and (name, key) not in NEVER_PRUNED


def is_same_value(one: str, other: str) -> bool:
    """Whether two texts mean the same value to a broker. Brokers return values in a normalized form."""
    if one == other:
        return True
    some, others = ([item.strip() for item in text.split(",")] for text in (one, other))
    if some == others:
        return True
    try:
        return int(one) == int(other)
    except ValueError:
        pass
    try:
        return float(one) == float(other)
    except ValueError:
        return one.strip().lower() == other.strip().lower() and one.strip().lower() in ("true", "false")


# ---- texts


def _topic_text(topic: TopicState | None) -> str:
    if topic is None:
        return NOTHING
    words = [_partitions(topic), _factor(topic.replication_factor)]
    words += [f"{key}={value}" for key, value in topic.settings.items() if value is not None]
    return ", ".join(word for word in words if word)


def _partitions(topic: TopicState) -> str:
    if topic.partitions is None:
        return NOTHING
    return f"{topic.partitions} partition{'' if topic.partitions == 1 else 's'}"


def _factor(number: int | None) -> str:
    return NOTHING if number is None else f"replication factor {number}"
