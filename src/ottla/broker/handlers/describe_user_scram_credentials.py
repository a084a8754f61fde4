"""DescribeUserScramCredentials (key 50), v0: SCRAM mechanisms and iterations of users (KIP-554).

Null or no users means all users with credentials. The credentials themselves are never returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ottla.base.errors import Error
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.offload import in_slices
from ottla.controller.decisions.scram_changes import credentials_of
from ottla.protocol.messages.credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialInfo,
    ScramUserResult,
)
from ottla.security.scram_credentials import MECHANISMS, parse_credential


async def handle(
    request: DescribeUserScramCredentialsRequest, context: Context
) -> DescribeUserScramCredentialsResponse:
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        refused = Error.CLUSTER_AUTHORIZATION_FAILED
        rows = [ScramUserResult(user=user.name, error_code=refused) async for user in in_slices(request.users or [])]
        return DescribeUserScramCredentialsResponse(error_code=refused, results=rows)
    configs = context.broker.image.user_configs
    if not request.users:
        rows = [described(name, config) async for name, config in in_slices(list(configs.items()))]
        return DescribeUserScramCredentialsResponse(results=[row for row in rows if row.credential_infos])
    named = Counter(user.name for user in request.users)
    return DescribeUserScramCredentialsResponse(
        results=[describe_requested_user(name, count, configs) async for name, count in in_slices(list(named.items()))]
    )


def describe_requested_user(name: str, count: int, configs: Mapping[str, Mapping[str, str]]) -> ScramUserResult:
    if count > 1:
        return ScramUserResult(
            user=name,
            error_code=Error.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
        )
    found = described(name, configs.get(name, {}))
    if found.credential_infos:
        return found
    return ScramUserResult(
        user=name,
        error_code=Error.RESOURCE_NOT_FOUND,
        error_message=f"Attempt to describe a user credential that does not exist: {name}",
    )


def described(name: str, config: Mapping[str, str]) -> ScramUserResult:
    """Return the credentials of a user, without unreadable ones, which do not allow a login."""
    infos = []
    for number, text in credentials_of(config).items():
        try:
            iterations = parse_credential(MECHANISMS[number], text).iterations
        except ValueError:
            continue
        infos.append(ScramCredentialInfo(mechanism=number, iterations=iterations))
    return ScramUserResult(user=name, credential_infos=infos)
