"""Quotas of users, clients and addresses."""

from __future__ import annotations

from ottla.protocol.schema import Float64, Int8, Int16, Int32, message, part, wire


@part
class QuotaFilterComponent:
    """Which entities are asked for: match type 0 exactly `match`, 1 the default, 2 any that is named."""

    entity_type: str  # user, client-id or ip
    match_type: Int8
    match: str | None = wire(nullable=0, default=None)


@message(api_key=48, versions="0-1", flexible=1)
class DescribeClientQuotasRequest:
    """DescribeClientQuotas (key 48), v0-1 (KIP-546). v1 flexible. Strict: no entities of further types besides."""

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
