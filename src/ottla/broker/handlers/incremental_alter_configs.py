"""IncrementalAlterConfigs (key 44), v0-1: changes single settings (KIP-339).  v1 flexible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import Error
from ottla.broker.configs.alterations import Asked, alter, refused_rows
from ottla.broker.slices import in_slices
from ottla.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import Context


async def handle(request: IncrementalAlterConfigsRequest, context: Context) -> IncrementalAlterConfigsResponse:
    asked = [asked_of(resource) async for resource in in_slices(request.resources)]
    return IncrementalAlterConfigsResponse(responses=await alter(asked, request, context))


def asked_of(resource: IncrementalAlterConfigsResource) -> Asked:
    settings = [(config.config_operation, config.name, config.value) for config in resource.configs]
    return Asked(resource.resource_type, resource.resource_name, settings, replaces_all=False)


def refuse(
    request: IncrementalAlterConfigsRequest, error: Error, message: str | None, _: int
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=refused_rows(request, error, message))
