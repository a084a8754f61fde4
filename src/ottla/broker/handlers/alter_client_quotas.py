"""AlterClientQuotas (key 49), v0-1: sets and removes quotas of users, clients and addresses (KIP-546). v1 flexible."""

from __future__ import annotations

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.offload import in_slices
from ottla.controller.decisions.quota_changes import EntityParts, QuotaAlteration, QuotaOperation, decide_quota_changes
from ottla.protocol.messages.configs import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    QuotaAlterationResult,
    QuotaEntity,
)


async def handle(request: AlterClientQuotasRequest, context: Context) -> AlterClientQuotasResponse:
    if not context.is_authorized(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        return refuse(request, Error.CLUSTER_AUTHORIZATION_FAILED, None, context.api_version)
    alterations = [
        QuotaAlteration(
            tuple((part.entity_type, part.entity_name) for part in each.entity),
            tuple(QuotaOperation(op.key, None if op.remove else op.value) for op in each.ops),
        )
        async for each in in_slices(request.entries)
    ]
    try:
        results = await context.broker.controller.change(
            lambda image: decide_quota_changes(image, alterations),
            validate_only=request.validate_only,
            size=len(alterations),
        )
    except KafkaError as refusal:
        return refuse(request, refusal.error, refusal.message, context.api_version)
    rows = [
        QuotaAlterationResult(error_code=each.error, error_message=each.message, entity=entity(each.parts))
        async for each in in_slices(results)
    ]
    return AlterClientQuotasResponse(entries=rows)


def entity(parts: EntityParts) -> list[QuotaEntity]:
    return [QuotaEntity(entity_type=kind, entity_name=name) for kind, name in parts]


def refuse(request: AlterClientQuotasRequest, error: Error, message: str | None, _: int) -> AlterClientQuotasResponse:
    rows = [
        QuotaAlterationResult(error_code=error, error_message=message, entity=each.entity) for each in request.entries
    ]
    return AlterClientQuotasResponse(entries=rows)
