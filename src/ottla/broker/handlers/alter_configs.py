"""AlterConfigs (key 33), v0-2: replaces all settings of a resource; omitted ones become defaults. v2 flexible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import Error
from ottla.broker.configs.config_admin import RequestedResource, alter_configs, error_rows
from ottla.broker.offload import in_slices
from ottla.controller.decisions.config_changes import OperationType
from ottla.protocol.messages.configs import AlterConfigsRequest, AlterConfigsResource, AlterConfigsResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context


async def handle(request: AlterConfigsRequest, context: Context) -> AlterConfigsResponse:
    asked = [to_requested_resource(resource) async for resource in in_slices(request.resources)]
    return AlterConfigsResponse(responses=await alter_configs(asked, request, context))


def to_requested_resource(resource: AlterConfigsResource) -> RequestedResource:
    settings = [(OperationType.SET, config.name, config.value) for config in resource.configs]
    return RequestedResource(resource.resource_type, resource.resource_name, settings, replaces_all=True)


def refuse(request: AlterConfigsRequest, error: Error, message: str | None, _: int) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=error_rows(request, error, message))
