"""DescribeClientQuotas (key 48), v0-1: the quotas of users, clients and addresses (KIP-546).  v1 flexible."""

from __future__ import annotations

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.offload import in_slices
from ottla.protocol.messages.configs import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaEntity,
    QuotaEntry,
    QuotaValue,
)
from ottla.quotas.entities import Component, Entity, Filter
from ottla.quotas.rules import Values


async def handle(request: DescribeClientQuotasRequest, context: Context) -> DescribeClientQuotasResponse:
    if not context.is_authorized(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        return DescribeClientQuotasResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED, entries=None)
    components = [Component(each.entity_type, each.match_type, each.match) for each in request.components]
    try:
        wanted = Filter(components, request.strict)
    except KafkaError as refusal:
        return DescribeClientQuotasResponse(error_code=refusal.error, error_message=refusal.message, entries=None)
    rules = context.broker.quotas.rules
    entries = [entry(entity, values) async for entity, values in in_slices(rules) if wanted.matches(entity)]
    return DescribeClientQuotasResponse(error_message="", entries=entries)


def entry(entity: Entity, values: Values) -> QuotaEntry:
    return QuotaEntry(
        entity=[QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity.parts],
        values=[QuotaValue(key=key, value=value) for key, value in values.items()],
    )
