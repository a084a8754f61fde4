"""AlterUserScramCredentials (key 51), v0: sets and removes SCRAM credentials of users (KIP-554).

The client has salted the password: neither the request nor the stored credential can be used to log in.
"""

from __future__ import annotations

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context
from ottla.controller.decisions.scram_changes import ScramDeletion, ScramUpsertion, decide_scram_changes
from ottla.protocol.messages.credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramAlterationResult,
)


async def handle(request: AlterUserScramCredentialsRequest, context: Context) -> AlterUserScramCredentialsResponse:
    if not context.is_authorized(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return refuse(request, Error.CLUSTER_AUTHORIZATION_FAILED, None, context.api_version)
    deletions = [ScramDeletion(each.name, each.mechanism) for each in request.deletions]
    upsertions = [
        ScramUpsertion(each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password))
        for each in request.upsertions
    ]
    try:
        results = await context.broker.controller.change(
            lambda image: decide_scram_changes(image, deletions, upsertions), size=len(deletions) + len(upsertions)
        )
    except KafkaError as refusal:
        return refuse(request, refusal.error, refusal.message, context.api_version)
    return AlterUserScramCredentialsResponse(
        results=[
            ScramAlterationResult(user=each.name, error_code=each.error, error_message=each.message) for each in results
        ]
    )


def refuse(
    request: AlterUserScramCredentialsRequest, error: Error, message: str | None, _: int
) -> AlterUserScramCredentialsResponse:
    names = dict.fromkeys([*(each.name for each in request.deletions), *(each.name for each in request.upsertions)])
    rows = [ScramAlterationResult(user=name, error_code=error, error_message=message) for name in names]
    return AlterUserScramCredentialsResponse(results=rows)
