"""DescribeClientQuotas (key 48), v0-1: the quotas in force (KIP-546).  v1 flexible.

There are none yet, and nobody can set any. It is answered because `kafka-configs.sh --describe --entity-type users`
asks for quotas before it asks for passwords.
"""

from __future__ import annotations

from ottla.base.errors import Error
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context
from ottla.protocol.messages.client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse


def handle(_: DescribeClientQuotasRequest, context: Context) -> DescribeClientQuotasResponse:
    if not context.may(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        return DescribeClientQuotasResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED, entries=None)
    return DescribeClientQuotasResponse(entries=[])
