"""Configurations of topics, brokers, groups and other resources: describe, alter, list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.client.client import Client
from ottla.client.errors import BrokerError, error_from_code, raise_for_error
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
RESOURCES_PER_REQUEST = 1_000


class Resource(IntEnum):
    """The type of a resource, by its number on the wire."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Source(IntEnum):
    """The source of a value, by its number on the wire."""

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
    """The value of the same setting from another source."""

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
    """The settings of several resources of one type, in the broker's order; only `keys` if given.

    Requests are split, because a broker needs a while for tens of thousands of resources, and the time-out stays the
    same.
    """
    asked = None if keys is None else list(keys)
    wanted = [
        DescribeConfigsResource(resource_type=resource, resource_name=name, configuration_keys=asked) for name in names
    ]
    found: dict[str, list[Config]] = {}
    for begin in range(0, len(wanted), RESOURCES_PER_REQUEST):
        portion = wanted[begin : begin + RESOURCES_PER_REQUEST]
        request = DescribeConfigsRequest(resources=portion, include_synonyms=with_synonyms)
        if _is_broker_specific(resource, portion[0].resource_name):
            broker_id = int(portion[0].resource_name)
            answer = client.call_broker(broker_id, request, DescribeConfigsResponse, _check_described)
        else:
            answer = client.call(request, DescribeConfigsResponse, _check_described)
        found |= {result.resource_name: [_config(item) for item in result.configs] for result in answer.results}
    return found


def alter_configs(
    client: Client, resource: Resource, name: str, changed: Mapping[str, str], deleted: Sequence[str]
) -> None:
    """Set some settings of one resource, and reset others to their defaults."""
    for problem in alter_configs_of_many(client, resource, {name: Alteration(changed, deleted)}).values():
        raise problem


class Alteration(NamedTuple):
    """Changes of one resource: values to set, and settings to reset to their defaults."""

    changed: Mapping[str, str]
    deleted: Sequence[str]


def alter_configs_of_many(
    client: Client, resource: Resource, wanted: Mapping[str, Alteration], *, validate_only: bool = False
) -> dict[str, BrokerError]:
    """Alter several resources; returns the errors by name. One refused resource does not affect the others.

    Settings of single brokers are sent to each broker, because only the broker itself can validate them.
    """
    refused: dict[str, BrokerError] = {}
    shared = [name for name in wanted if not _is_broker_specific(resource, name)]
    for names in ([shared] if shared else []) + [[name] for name in wanted if _is_broker_specific(resource, name)]:
        request = IncrementalAlterConfigsRequest(
            resources=[_alterations(resource, name, wanted[name]) for name in names], validate_only=validate_only
        )
        if _is_broker_specific(resource, names[0]):
            answer = client.call_broker(int(names[0]), request, IncrementalAlterConfigsResponse, _check_retriable)
        else:
            answer = client.call(request, IncrementalAlterConfigsResponse, _check_retriable)
        for result in answer.responses:
            if result.error_code:
                refused[result.resource_name] = error_from_code(result.error_code, result.error_message)
    return refused


def _alterations(resource: Resource, name: str, wanted: Alteration) -> IncrementalAlterConfigsResource:
    changes = [IncrementalAlterableConfig(name=key, config_operation=DELETE, value="") for key in wanted.deleted]
    changes += [
        IncrementalAlterableConfig(name=key, config_operation=SET, value=value) for key, value in wanted.changed.items()
    ]
    return IncrementalAlterConfigsResource(resource_type=resource, resource_name=name, configs=changes)


def resources_with_configs(client: Client, resource: Resource) -> list[str]:
    """The names of the resources of one type with settings of their own."""
    answer = client.call(ListConfigResourcesRequest(resource_types=[resource]), ListConfigResourcesResponse)
    raise_for_error(answer.error_code)
    return [item.resource_name for item in answer.config_resources if item.resource_type == resource]


def _is_broker_specific(resource: Resource, name: str) -> bool:
    """Whether only the broker itself can answer; every broker knows the cluster-wide default ("")."""
    return resource in (Resource.BROKER, Resource.BROKER_LOGGER) and name != ""


def _config(item: DescribeConfigsResourceResult) -> Config:
    synonyms = tuple(Synonym(other.name, other.value, other.source) for other in item.synonyms)
    return Config(item.name, item.value, item.config_source, item.is_sensitive, item.read_only, synonyms)


def _check_described(answer: DescribeConfigsResponse) -> None:
    for result in answer.results:
        raise_for_error(result.error_code, result.error_message)


def _check_retriable(answer: IncrementalAlterConfigsResponse) -> None:
    """Raises retriable errors, so that the whole request is retried: setting the same value twice is harmless."""
    for result in answer.responses:
        problem = error_from_code(result.error_code, result.error_message) if result.error_code else None
        if problem is not None and problem.is_retriable:
            raise problem
