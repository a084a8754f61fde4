"""Settings of topics, brokers, groups and whatever else has settings: read them, change them, list who has some."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.client.client import Client
from ottla.client.errors import RefusedError, refusal
from ottla.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

SET, DELETE = 0, 1  # operations of IncrementalAlterConfigs
RESOURCES_A_QUESTION = 1_000


class Resource(IntEnum):
    """What can have settings, by its number on the wire."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Source(IntEnum):
    """Where a value comes from, by its number on the wire."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class Synonym(NamedTuple):
    """A value that the same setting has at another place."""

    name: str
    value: str | None
    source: int


class Config(NamedTuple):
    """One setting as the broker shows it."""

    name: str
    value: str | None
    source: int
    is_sensitive: bool
    is_read_only: bool = False
    synonyms: tuple[Synonym, ...] = ()

    @property
    def is_default(self) -> bool:
        return self.source == Source.DEFAULT_CONFIG


def describe_configs(
    client: Client,
    resource: Resource,
    names: Iterable[str],
    with_synonyms: bool = False,
    keys: Sequence[str] | None = None,
) -> dict[str, list[Config]]:
    """The settings of several resources of one type, in the order in which the broker lists them; only `keys` if given.

    Asked for in portions: a broker needs a while for ten thousands, and is waited for no longer than otherwise.
    """
    asked = None if keys is None else list(keys)
    wanted = [
        DescribeConfigsResource(resource_type=resource, resource_name=name, configuration_keys=asked) for name in names
    ]
    found: dict[str, list[Config]] = {}
    for begin in range(0, len(wanted), RESOURCES_A_QUESTION):
        portion = wanted[begin : begin + RESOURCES_A_QUESTION]
        request = DescribeConfigsRequest(resources=portion, include_synonyms=with_synonyms)
        if _is_of_one_broker(resource, portion[0].resource_name):
            broker_id = int(portion[0].resource_name)
            answer = client.call_broker(broker_id, request, DescribeConfigsResponse, _check_described)
        else:
            answer = client.call(request, DescribeConfigsResponse, _check_described)
        found |= {result.resource_name: [_config(item) for item in result.configs] for result in answer.results}
    return found


def alter_configs(
    client: Client, resource: Resource, name: str, changed: Mapping[str, str], deleted: Sequence[str]
) -> None:
    """Set some settings of one resource and put others back to what they would be without it."""
    for problem in alter_many(client, resource, {name: Alteration(changed, deleted)}).values():
        raise problem


class Alteration(NamedTuple):
    """What changes of one resource: values to set, and names to put back to what they would be without it."""

    changed: Mapping[str, str]
    deleted: Sequence[str]


def alter_many(
    client: Client, resource: Resource, wanted: Mapping[str, Alteration], *, validate_only: bool = False
) -> dict[str, RefusedError]:
    """The same for several resources, by name; what is refused is told, by name, and keeps nobody else from it.

    What belongs to single brokers is asked of each of them: only they can judge it.
    """
    refused: dict[str, RefusedError] = {}
    shared = [name for name in wanted if not _is_of_one_broker(resource, name)]
    for names in ([shared] if shared else []) + [[name] for name in wanted if _is_of_one_broker(resource, name)]:
        request = IncrementalAlterConfigsRequest(
            resources=[_alterations(resource, name, wanted[name]) for name in names], validate_only=validate_only
        )
        if _is_of_one_broker(resource, names[0]):
            answer = client.call_broker(int(names[0]), request, IncrementalAlterConfigsResponse, _check_retriable)
        else:
            answer = client.call(request, IncrementalAlterConfigsResponse, _check_retriable)
        for result in answer.responses:
            if result.error_code:
                refused[result.resource_name] = refusal(result.error_code, result.error_message)
    return refused


def _alterations(resource: Resource, name: str, wanted: Alteration) -> IncrementalAlterConfigsResource:
    changes = [IncrementalAlterableConfig(name=key, config_operation=DELETE, value="") for key in wanted.deleted]
    changes += [
        IncrementalAlterableConfig(name=key, config_operation=SET, value=value) for key, value in wanted.changed.items()
    ]
    return IncrementalAlterConfigsResource(resource_type=resource, resource_name=name, configs=changes)


def resources_with_configs(client: Client, resource: Resource) -> list[str]:
    """The names of the resources of one type that have settings of their own."""
    answer = client.call(ListConfigResourcesRequest(resource_types=[resource]), ListConfigResourcesResponse)
    if answer.error_code:
        raise refusal(answer.error_code)
    return [item.resource_name for item in answer.config_resources if item.resource_type == resource]


def _is_of_one_broker(resource: Resource, name: str) -> bool:
    """What only the broker itself can tell; the default of all brokers ("") is known to each."""
    return resource in (Resource.BROKER, Resource.BROKER_LOGGER) and name != ""


def _config(item: DescribeConfigsResourceResult) -> Config:
    synonyms = tuple(Synonym(other.name, other.value, other.source) for other in item.synonyms)
    return Config(item.name, item.value, item.config_source, item.is_sensitive, item.read_only, synonyms)


def _check_described(answer: DescribeConfigsResponse) -> None:
    for result in answer.results:
        if result.error_code:
            raise refusal(result.error_code, result.error_message)


def _check_retriable(answer: IncrementalAlterConfigsResponse) -> None:
    """What a second try may mend is tried again, all of it: to set a setting twice is to set it once."""
    for result in answer.responses:
        problem = refusal(result.error_code, result.error_message) if result.error_code else None
        if problem is not None and problem.is_retriable:
            raise problem
