"""Configurations of topics and brokers: read, replace, change one by one."""

from __future__ import annotations

from ottla.protocol.schema import Int8, Int16, Int32, message, part, wire


@part
class DescribeConfigsResource:
    resource_type: Int8
    resource_name: str
    configuration_keys: list[str] | None = wire(nullable=0, default=None)  # null: all


@message(api_key=32, versions="1-4", flexible=4)
class DescribeConfigsRequest:
    """DescribeConfigs (key 32), v1-4. v1 synonyms; v3 documentation; v4 flexible."""

    resources: list[DescribeConfigsResource] = wire(default_factory=list)
    include_synonyms: bool = False
    include_documentation: bool = wire(since=3, default=False)


@part
class DescribeConfigsSynonym:
    """A value that the same config has at another place, in order of precedence."""

    name: str
    value: str | None = wire(nullable=0, default=None)
    source: Int8


@part
class DescribeConfigsResourceResult:
    name: str
    value: str | None = wire(nullable=0, default=None)
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsSynonym] = wire(default_factory=list)
    config_type: Int8 = wire(since=3, default=0)
    documentation: str | None = wire(since=3, nullable=0, default=None)


@part
class DescribeConfigsResult:
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    resource_type: Int8
    resource_name: str
    configs: list[DescribeConfigsResourceResult] = wire(default_factory=list)


@message(api_key=32, versions="1-4", flexible=4)
class DescribeConfigsResponse:
    """DescribeConfigs (key 32), v1-4. v1 sources and synonyms; v3 types and documentation; v4 flexible."""

    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = wire(default_factory=list)


@part
class AlterableConfig:
    name: str
    value: str | None = wire(nullable=0, default=None)


@part
class AlterConfigsResource:
    resource_type: Int8
    resource_name: str
    configs: list[AlterableConfig] = wire(default_factory=list)


@message(api_key=33, versions="0-2", flexible=2)
class AlterConfigsRequest:
    """AlterConfigs (key 33), v0-2: replaces all overrides of a resource by those given. v2 flexible."""

    resources: list[AlterConfigsResource] = wire(default_factory=list)
    validate_only: bool = False


@part
class AlterConfigsResourceResponse:
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    resource_type: Int8
    resource_name: str


@message(api_key=33, versions="0-2", flexible=2)
class AlterConfigsResponse:
    """AlterConfigs (key 33), v0-2. v2 flexible."""

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = wire(default_factory=list)


@part
class IncrementalAlterableConfig:
    """One change: operation 0 set, 1 delete, 2 append, 3 subtract."""

    name: str
    config_operation: Int8
    value: str | None = wire(nullable=0, default=None)


@part
class IncrementalAlterConfigsResource:
    resource_type: Int8
    resource_name: str
    configs: list[IncrementalAlterableConfig] = wire(default_factory=list)


@message(api_key=44, versions="0-1", flexible=1)
class IncrementalAlterConfigsRequest:
    """IncrementalAlterConfigs (key 44), v0-1: changes single overrides (KIP-339). v1 flexible."""

    resources: list[IncrementalAlterConfigsResource] = wire(default_factory=list)
    validate_only: bool = False


@message(api_key=44, versions="0-1", flexible=1)
class IncrementalAlterConfigsResponse:
    """IncrementalAlterConfigs (key 44), v0-1. v1 flexible."""

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = wire(default_factory=list)


@message(api_key=74, versions="0-1", flexible=0)
class ListConfigResourcesRequest:
    """ListConfigResources (key 74), v0-1: which resources have configs. v0 was about client metrics alone
    (KIP-714); v1 any type (KIP-1142).
    """

    resource_types: list[Int8] = wire(since=1, default_factory=list)


@part
class ConfigResource:
    resource_name: str
    resource_type: Int8 = wire(since=1, default=16)  # 16: client metrics, the only type of v0


@message(api_key=74, versions="0-1", flexible=0)
class ListConfigResourcesResponse:
    """ListConfigResources (key 74), v0-1. v1 types."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = wire(default_factory=list)
