"""Configurations of resources and client quotas: describe, replace, change incrementally."""

from __future__ import annotations

from ottla.protocol.schema import Float64, Int8, Int16, Int32, message, part, wire


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
    """A source of the same config, in order of precedence."""

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
    """AlterConfigs (key 33), v0-2: replaces all overrides of a resource. v2 flexible."""

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
    """ListConfigResources (key 74), v0-1: the resources that have configs. v0 client metrics only (KIP-714); v1 any
    type (KIP-1142).
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


# Quotas of users, client ids and addresses.
@part
class QuotaFilterComponent:
    """An entity filter: match type 0 matches exactly `match`, 1 the default, 2 any name."""

    entity_type: str  # user, client-id or ip
    match_type: Int8
    match: str | None = wire(nullable=0, default=None)


@message(api_key=48, versions="0-1", flexible=1)
class DescribeClientQuotasRequest:
    """DescribeClientQuotas (key 48), v0-1 (KIP-546). v1 flexible. Strict: excludes entities with further types."""

    components: list[QuotaFilterComponent] = wire(default_factory=list)
    strict: bool = False


@part
class QuotaEntity:
    entity_type: str
    entity_name: str | None = wire(nullable=0, default=None)  # null: the default


@part
class QuotaValue:
    key: str
    value: Float64


@part
class QuotaEntry:
    entity: list[QuotaEntity] = wire(default_factory=list)
    values: list[QuotaValue] = wire(default_factory=list)


@message(api_key=48, versions="0-1", flexible=1)
class DescribeClientQuotasResponse:
    """DescribeClientQuotas (key 48), v0-1. v1 flexible."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    entries: list[QuotaEntry] | None = wire(nullable=0, default=None)


@part
class QuotaOperation:
    key: str
    value: Float64
    remove: bool = False


@part
class QuotaAlteration:
    entity: list[QuotaEntity] = wire(default_factory=list)
    ops: list[QuotaOperation] = wire(default_factory=list)


@message(api_key=49, versions="0-1", flexible=1)
class AlterClientQuotasRequest:
    """AlterClientQuotas (key 49), v0-1 (KIP-546). v1 flexible."""

    entries: list[QuotaAlteration] = wire(default_factory=list)
    validate_only: bool = False


@part
class QuotaAlterationResult:
    error_code: Int16 = 0
    error_message: str | None = wire(nullable=0, default=None)
    entity: list[QuotaEntity] = wire(default_factory=list)


@message(api_key=49, versions="0-1", flexible=1)
class AlterClientQuotasResponse:
    """AlterClientQuotas (key 49), v0-1. v1 flexible."""

    throttle_time_ms: Int32 = 0
    entries: list[QuotaAlterationResult] = wire(default_factory=list)
