"""WriteAudit (key 10001), v0: audit events of another broker (ottla's own inter-broker API).

Clients cannot produce to `__ottla_audit`; brokers use this API, which needs ClusterAction.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.base.errors import Error, KafkaError
from ottla.base.names import AUDIT_TOPIC
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.audit.writer import append
from ottla.protocol.messages.inter_broker import WriteAuditRequest, WriteAuditResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context

WAIT_SECONDS_MAX: Final = 4.0  # less than the caller's timeout


async def handle(request: WriteAuditRequest, context: Context) -> WriteAuditResponse:
    if not context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return WriteAuditResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    broker = context.broker
    partition = broker.replicas.get(AUDIT_TOPIC, request.partition_index)
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await append(partition, request.records, broker.clock, broker.workers)
    except KafkaError as refusal:
        return WriteAuditResponse(error_code=refusal.error, error_message=refusal.message)
    except TimeoutError:
        return WriteAuditResponse(
            error_code=Error.REQUEST_TIMED_OUT, error_message="the replicas did not acknowledge in time"
        )
    return WriteAuditResponse()
