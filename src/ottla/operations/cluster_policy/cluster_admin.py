"""Reads the state of a cluster over the wire and applies a plan to it.

Before anything changes, the brokers validate the plan (`validateOnly`). The order of the steps: schemas first, because
the registry may still reject them; topics and partitions before settings; users before their ACLs; additions before
removals; topic deletions last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from ottla.base.errors import Error
from ottla.base.names import is_bookkeeping
from ottla.client.admin import CLUSTER_DEFAULT, Admin, NewTopic, Topic, create_partitions, create_topics, delete_topics
from ottla.client.client import Client
from ottla.client.configs import (
    Alteration,
    Config,
    Resource,
    Source,
    alter_configs_of_many,
    describe_configs,
    resources_with_configs,
)
from ottla.client.errors import BrokerError, ClientError
from ottla.client.groups import list_groups
from ottla.client.reassignments import list_reassignments
from ottla.operations.acls.evaluation import Caller
from ottla.operations.cluster_policy.cluster_plan import (
    ClusterPlan,
    Refusal,
    SettingChange,
    TopicChange,
    make_cluster_plan,
)
from ottla.operations.cluster_policy.cluster_state import (
    ALL_BROKERS,
    BROKERS,
    GROUPS,
    REASSIGNMENT_KEYS,
    SCHEMAS,
    TOPICS,
    ClusterState,
    Settings,
    TopicState,
)
from ottla.operations.cluster_policy.schemas import NO_SCHEMAS, make_schema_plan, schema_steps
from ottla.operations.cluster_policy.security_admin import batches, check_authorizer, check_own_access, security_steps
from ottla.operations.cluster_policy.security_admin import read_cluster as read_policy
from ottla.operations.cluster_policy.security_plan import ADD, CHANGE, NOT_POSSIBLE, REMOVE, Row, Step
from ottla.operations.cluster_policy.security_policy import SECTIONS as POLICY_SECTIONS
from ottla.operations.schema_registry.client import RegistryClient
from ottla.operations.topic_summary import Moves, replication_factor

RESOURCES_MAX: Final = 500  # in one request
NO_SETTINGS: Final[Settings] = {}

T = TypeVar("T")


def read_cluster(client: Client, sections: Collection[str], wanted: ClusterState | None = None) -> ClusterState:
    """Read these sections. Settings are read for the topics and groups in `wanted`, or for all without it."""
    brokers, fixed = _brokers(client) if BROKERS in sections else (None, frozenset())
    return ClusterState(
        _topics(client, wanted and wanted.topics) if TOPICS in sections else None,
        brokers,
        _groups(client, wanted.groups if wanted is not None and wanted.groups else {}) if GROUPS in sections else None,
        None,
        read_policy(client, [name for name in POLICY_SECTIONS if name in sections]),
        fixed,
    )


def without_temporary_settings(state: ClusterState) -> ClusterState:
    """The state without service topics and without temporary settings of replica moves."""
    topics = {
        name: topic._replace(settings=_permanent_settings(topic.settings))
        for name, topic in (state.topics or {}).items()
        if not is_bookkeeping(name)
    }
    brokers = {name: _permanent_settings(settings) for name, settings in (state.brokers or {}).items()}
    return state._replace(topics=topics, brokers=brokers)


def _permanent_settings(settings: Settings) -> Settings:
    return {key: value for key, value in settings.items() if key not in REASSIGNMENT_KEYS}


def _topics(client: Client, wanted: Collection[str] | None) -> Mapping[str, TopicState]:
    topics = [topic for topic in Admin(client).topics() if not topic.is_internal]
    moves = list_reassignments(client)
    names = [topic.name for topic in topics if wanted is None or topic.name in wanted]
    settings: dict[str, Settings] = {}
    for some in batches(names, RESOURCES_MAX):
        for name, configs in describe_configs(client, Resource.TOPIC, some).items():
            settings[name] = _own_settings(configs, Source.DYNAMIC_TOPIC_CONFIG)
    return {topic.name: _topic(topic, moves, settings.get(topic.name, NO_SETTINGS)) for topic in topics}


def _topic(topic: Topic, moves: Moves, settings: Settings) -> TopicState:
    return TopicState(len(topic.partitions), replication_factor(topic, moves), settings)


def _brokers(client: Client) -> tuple[Mapping[str, Settings], frozenset[str]]:
    """The dynamic settings of brokers, and the names of read-only ones."""
    default = describe_configs(client, Resource.BROKER, [ALL_BROKERS])[ALL_BROKERS]
    found = {ALL_BROKERS: _own_settings(default, Source.DYNAMIC_DEFAULT_BROKER_CONFIG)}
    fixed: set[str] = set()
    for broker in sorted(Admin(client).live_brokers()):
        name = str(broker)
        configs = describe_configs(client, Resource.BROKER, [name])[name]
        found[name] = _own_settings(configs, Source.DYNAMIC_BROKER_CONFIG)
        fixed |= {config.name for config in configs if config.is_read_only}
    return found, frozenset(fixed)


def _groups(client: Client, wanted: Iterable[str]) -> Mapping[str, Settings]:
    try:
        known = resources_with_configs(client, Resource.GROUP)
    except ClientError as problem:
        if problem.error is not Error.UNSUPPORTED_VERSION:
            raise
        known = [
            group.group_id for group in list_groups(client)
        ]  # an older broker cannot list the groups that have settings
    found: dict[str, Settings] = {}
    for some in batches(sorted({*known, *wanted}), RESOURCES_MAX):
        for name, configs in describe_configs(client, Resource.GROUP, some).items():
            found[name] = _own_settings(configs, Source.DYNAMIC_GROUP_CONFIG)
    return found


def _own_settings(configs: Iterable[Config], source: Source) -> Settings:
    """The settings that are set on this resource itself."""
    return {config.name: None if config.is_sensitive else config.value for config in configs if config.source == source}


TOPICS_MAX: Final = 100  # in one request
RESOURCES: Final = {TOPICS: Resource.TOPIC, BROKERS: Resource.BROKER, GROUPS: Resource.GROUP}
POLL_MS: Final = 50
VISIBLE_MS_MAX: Final = 10_000
DELETE_TOPICS_KEY: Final = "delete.topic.enable"


def make_checked_plan(
    client: Client,
    registry: RegistryClient | None,
    wanted: ClusterState,
    caller: Caller,
    *,
    prunes: bool,
    sets_secrets: bool,
) -> ClusterPlan:
    """The changes that bring the cluster to the wanted state, validated by the brokers. Changes nothing."""
    found = read_cluster(client, [name for name in wanted.sections() if name != SCHEMAS], wanted)
    check_authorizer(wanted.policy, found.policy)
    schemas = NO_SCHEMAS
    if registry is not None and wanted.schemas is not None:
        schemas = make_schema_plan(registry, wanted.schemas, prunes=prunes)
    plan = make_cluster_plan(wanted, found, schemas, prunes=prunes, sets_secrets=sets_secrets)
    check_own_access(client, caller, plan.policy, found.policy)
    return validate_plan(client, plan)


def validate_plan(client: Client, plan: ClusterPlan) -> ClusterPlan:
    """Validate a plan on the brokers and turn rejected changes into refusals. Changes nothing."""
    refused: dict[Row, str] = {}
    for step in _topic_steps(client, plan, validate_only=True):
        reported: set[int] = set()
        for row, problem in (step.run() or {}).items():
            refused[row] = "" if id(problem) in reported else f"{row[1]} {row[2]}: {problem}"
            reported.add(id(problem))  # one refusal may cover several settings of a resource
    if any(change.mark == REMOVE for change in plan.topics) and not _allows_topic_deletion(client):
        removed = [change for change in plan.topics if change.mark == REMOVE]
        why = f"the cluster does not delete topics ({DELETE_TOPICS_KEY}=false)"
        refused |= {change.row(): f"topic {change.name}: {why}" for change in removed}
    if not refused:
        return plan
    return plan._replace(
        topics=[change for change in plan.topics if change.row() not in refused],
        settings=[change for change in plan.settings if change.row() not in refused],
        refusals=[*plan.refusals, *(Refusal((NOT_POSSIBLE, *row[1:]), why) for row, why in refused.items())],
    )


def cluster_steps(client: Client, registry: RegistryClient | None, plan: ClusterPlan) -> list[Step]:
    coming, going = schema_steps(registry, plan.schemas) if registry is not None else ([], [])
    removed = [change for change in plan.topics if change.mark == REMOVE]
    return [
        *coming,
        *_topic_steps(client, plan, validate_only=False),
        *security_steps(client, plan.policy),
        *going,
        *(_topic_step(some, lambda names: delete_topics(client, list(names))) for some in batches(removed, TOPICS_MAX)),
    ]


def wait_for_topics(client: Client, plan: ClusterPlan) -> None:
    """Wait, for a limited time, until the brokers know the created and deleted topics."""
    made = {change.name for change in plan.topics if change.mark == ADD}
    removed = {change.name for change in plan.topics if change.mark == REMOVE}
    deadline_ms = client.clock.monotonic_ms() + VISIBLE_MS_MAX
    while made or removed:
        names = {topic.name for topic in Admin(client).topics()}
        if (made <= names and not removed & names) or client.clock.monotonic_ms() > deadline_ms:
            return
        client.sleep(POLL_MS / 1000)


def _topic_steps(client: Client, plan: ClusterPlan, *, validate_only: bool) -> Iterator[Step]:
    """Steps that create and change topics and settings, or only validate them."""
    new = [change for change in plan.topics if change.mark == ADD]
    grown = [change for change in plan.topics if change.mark == CHANGE]

    def create(changes: Mapping[str, TopicChange]) -> dict[str, BrokerError]:
        wanted = {name: _new_topic(change) for name, change in changes.items()}
        return create_topics(client, wanted, validate_only=validate_only)

    def grow(changes: Mapping[str, TopicChange]) -> dict[str, BrokerError]:
        counts = {name: each.after.partitions or 0 for name, each in changes.items() if each.after is not None}
        return create_partitions(client, counts, validate_only=validate_only)

    yield from (_topic_step(some, create) for some in batches(new, TOPICS_MAX))
    yield from (_topic_step(some, grow) for some in batches(grown, TOPICS_MAX))
    for kind, resource in RESOURCES.items():
        named = _by_name(change for change in plan.settings if change.kind == kind)
        for names in batches(list(named), TOPICS_MAX):
            yield _settings_step(client, resource, {name: named[name] for name in names}, validate_only)


def _topic_step(
    changes: Sequence[TopicChange], do: Callable[[Mapping[str, TopicChange]], Mapping[str, BrokerError]]
) -> Step:
    rows = {change.name: change.row() for change in changes}

    def run() -> dict[Row, Exception]:
        refused = do({change.name: change for change in changes})
        return {rows[name]: problem for name, problem in refused.items()}

    return Step(list(rows.values()), run)


def _settings_step(
    client: Client, resource: Resource, changes: Mapping[str, list[SettingChange]], validate_only: bool
) -> Step:
    alterations = {name: _alteration(some) for name, some in changes.items()}
    rows = {name: [change.row() for change in some] for name, some in changes.items()}

    def run() -> dict[Row, Exception]:
        refused = alter_configs_of_many(client, resource, alterations, validate_only=validate_only)
        return {row: problem for name, problem in refused.items() for row in rows[name]}

    return Step([row for some in rows.values() for row in some], run)


def _alteration(changes: Sequence[SettingChange]) -> Alteration:
    changed = {change.key: change.after for change in changes if change.after is not None}
    return Alteration(changed, [change.key for change in changes if change.after is None])


def _new_topic(change: TopicChange) -> NewTopic:
    assert change.after is not None
    partitions, factor, settings = change.after
    configs = {key: value for key, value in settings.items() if value is not None}
    return NewTopic(partitions or CLUSTER_DEFAULT, factor or CLUSTER_DEFAULT, configs)


def _allows_topic_deletion(client: Client) -> bool:
    broker = str(Admin(client).live_brokers()[0])
    configs = describe_configs(client, Resource.BROKER, [broker])[broker]
    return not any(config.name == DELETE_TOPICS_KEY and config.value == "false" for config in configs)


def _by_name(changes: Iterable[SettingChange]) -> dict[str, list[SettingChange]]:
    found: dict[str, list[SettingChange]] = {}
    for change in changes:
        found.setdefault(change.name, []).append(change)
    return found
