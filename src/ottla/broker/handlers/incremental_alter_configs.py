"""IncrementalAlterConfigs (key 44), v0-1: changes single settings (KIP-339). v1 flexible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import Error
from ottla.broker.configs.config_admin import RequestedResource, alter_configs, error_rows
from ottla.broker.offload import in_slices
from ottla.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import Context


async def handle(request: IncrementalAlterConfigsRequest, context: Context) -> IncrementalAlterConfigsResponse:
    asked = [to_requested_resource(resource) async for resource in in_slices(request.resources)]
    return IncrementalAlterConfigsResponse(responses=await alter_configs(asked, request, context))


def to_requested_resource(resource: IncrementalAlterConfigsResource) -> RequestedResource:
    settings = [(config.config_operation, config.name, config.value) for config in resource.configs]
    return RequestedResource(resource.resource_type, resource.resource_name, settings, replaces_all=False)


def refuse(
    request: IncrementalAlterConfigsRequest, error: Error, message: str | None, _: int
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=error_rows(request, error, message))
