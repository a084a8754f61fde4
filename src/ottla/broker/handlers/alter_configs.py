"""AlterConfigs (key 33), v0-2: what is not named goes back to its default.  v2 flexible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import Error
from ottla.broker.configs.alterations import Asked, alter, refused_rows
from ottla.broker.slices import in_slices
from ottla.controller.decisions.config_changes import OperationType
from ottla.protocol.messages.configs import AlterConfigsRequest, AlterConfigsResource, AlterConfigsResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context


async def handle(request: AlterConfigsRequest, context: Context) -> AlterConfigsResponse:
    asked = [asked_of(resource) async for resource in in_slices(request.resources)]
    return AlterConfigsResponse(responses=await alter(asked, request, context))


def asked_of(resource: AlterConfigsResource) -> Asked:
    settings = [(OperationType.SET, config.name, config.value) for config in resource.configs]
    return Asked(resource.resource_type, resource.resource_name, settings, replaces_all=True)


def refuse(request: AlterConfigsRequest, error: Error, message: str | None, _: int) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=refused_rows(request, error, message))
