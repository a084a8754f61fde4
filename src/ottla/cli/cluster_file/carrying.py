"""A plan on its way to the cluster: what the brokers would refuse is asked first, then it is done step by step.

The order: schemas, because a registry may refuse them at the last moment; topics and partitions before settings; users
before their rights; what is given before what is taken away; topics that go come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from ottla.cli.cluster_file.model import BROKERS, GROUPS, TOPICS
from ottla.cli.cluster_file.plan import ClusterPlan, Refusal, SettingChange, TopicChange
from ottla.cli.cluster_file.registry import schema_steps
from ottla.cli.security.cluster import security_steps
from ottla.cli.security.plan import ADD, CHANGE, NOT_POSSIBLE, REMOVE
from ottla.cli.security.steps import Row, Step
from ottla.client.admin import CLUSTER_DEFAULT, Admin
from ottla.client.client import Client
from ottla.client.configs import Alteration, Resource, alter_many, describe_configs
from ottla.client.errors import RefusedError
from ottla.client.many_topics import NewTopic, create_topics, delete_topics, grow_topics
from ottla.operations.schema_registry.client import RegistryClient

TOPICS_MAX: Final = 100  # in one request
RESOURCES: Final = {TOPICS: Resource.TOPIC, BROKERS: Resource.BROKER, GROUPS: Resource.GROUP}
SETTLE_MS: Final = 50
SETTLE_MS_MAX: Final = 10_000
DELETES: Final = "delete.topic.enable"

T = TypeVar("T")


def with_refusals(client: Client, plan: ClusterPlan) -> ClusterPlan:
    """The plan without what the brokers would refuse, which is among its refusals then. Changes nothing."""
    refused: dict[Row, str] = {}
    for step in _topic_steps(client, plan, validate_only=True):
        told: set[int] = set()
        for row, problem in (step.run() or {}).items():
            refused[row] = "" if id(problem) in told else f"{row[1]} {row[2]}: {problem}"
            told.add(id(problem))  # one refusal of several settings of a resource
    if any(change.mark == REMOVE for change in plan.topics) and not _deletes_topics(client):
        gone = [change for change in plan.topics if change.mark == REMOVE]
        why = f"the cluster does not delete topics ({DELETES}=false)"
        refused |= {change.row(): f"topic {change.name}: {why}" for change in gone}
    if not refused:
        return plan
    return plan._replace(
        topics=[change for change in plan.topics if change.row() not in refused],
        settings=[change for change in plan.settings if change.row() not in refused],
        refusals=[*plan.refusals, *(Refusal((NOT_POSSIBLE, *row[1:]), why) for row, why in refused.items())],
    )


def cluster_steps(client: Client, registry: RegistryClient | None, plan: ClusterPlan) -> list[Step]:
    coming, going = schema_steps(registry, plan.schemas) if registry is not None else ([], [])
    gone = [change for change in plan.topics if change.mark == REMOVE]
    return [
        *coming,
        *_topic_steps(client, plan, validate_only=False),
        *security_steps(client, plan.policy),
        *going,
        *(_topic_step(some, lambda names: delete_topics(client, list(names))) for some in _portions(gone)),
    ]


def wait_for_topics(client: Client, plan: ClusterPlan) -> None:
    """Until the brokers know what the controller has decided, so that whoever compares next sees it; or for a while."""
    made = {change.name for change in plan.topics if change.mark == ADD}
    gone = {change.name for change in plan.topics if change.mark == REMOVE}
    deadline_ms = client.clock.monotonic_ms() + SETTLE_MS_MAX
    while made or gone:
        names = {topic.name for topic in Admin(client).topics()}
        if (made <= names and not gone & names) or client.clock.monotonic_ms() > deadline_ms:
            return
        client.sleep(SETTLE_MS / 1000)


def _topic_steps(client: Client, plan: ClusterPlan, *, validate_only: bool) -> Iterator[Step]:
    """What makes and changes topics and settings, or asks whether it could be done."""
    new = [change for change in plan.topics if change.mark == ADD]
    grown = [change for change in plan.topics if change.mark == CHANGE]

    def create(changes: Mapping[str, TopicChange]) -> dict[str, RefusedError]:
        wanted = {name: _new_topic(change) for name, change in changes.items()}
        return create_topics(client, wanted, validate_only=validate_only)

    def grow(changes: Mapping[str, TopicChange]) -> dict[str, RefusedError]:
        counts = {name: each.after.partitions or 0 for name, each in changes.items() if each.after is not None}
        return grow_topics(client, counts, validate_only=validate_only)

    yield from (_topic_step(some, create) for some in _portions(new))
    yield from (_topic_step(some, grow) for some in _portions(grown))
    for kind, resource in RESOURCES.items():
        named = _by_name(change for change in plan.settings if change.kind == kind)
        for names in _portions(list(named)):
            yield _settings_step(client, resource, {name: named[name] for name in names}, validate_only)


def _topic_step(
    changes: Sequence[TopicChange], do: Callable[[Mapping[str, TopicChange]], Mapping[str, RefusedError]]
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
        refused = alter_many(client, resource, alterations, validate_only=validate_only)
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


def _deletes_topics(client: Client) -> bool:
    broker = str(Admin(client).live_brokers()[0])
    configs = describe_configs(client, Resource.BROKER, [broker])[broker]
    return not any(config.name == DELETES and config.value == "false" for config in configs)


def _by_name(changes: Iterable[SettingChange]) -> dict[str, list[SettingChange]]:
    found: dict[str, list[SettingChange]] = {}
    for change in changes:
        found.setdefault(change.name, []).append(change)
    return found


def _portions(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + TOPICS_MAX] for start in range(0, len(items), TOPICS_MAX))
