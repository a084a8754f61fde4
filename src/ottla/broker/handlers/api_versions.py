"""ApiVersions (key 18), v0-4: the APIs and features of this broker.

v1 throttle time; v3 flexible, client software name and version, features; v4 features with a minimum version of 0. The
response to an unknown version is v0, with UNSUPPORTED_VERSION and the versions of ApiVersions (KIP-511).

The client metrics APIs are advertised only while there is a subscription, as Kafka does with a plugin: clients that
see them run a push timer, and librdkafka logs a line.

Inter-broker APIs are advertised only to brokers of the cluster, which are recognized by their software name. This is
not a protection: each of those APIs authorizes its callers.

A feature is listed only if it is supported: Java producers use transactions V2 as soon as `transaction.version` is
finalized.
"""

from __future__ import annotations

import re
from typing import Any, Final

from ottla.base.errors import Error
from ottla.broker.context import Context
from ottla.controller.decisions import leader_eligibility, ottla_version
from ottla.controller.image import MetadataImage
from ottla.protocol.apis import APIS
from ottla.protocol.messages.cluster import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

API_VERSIONS: Final = 18
CLUSTER_POLL: Final = 10000
LEVELS_SINCE: Final = 1  # the first version of ClusterPoll in which a broker reports its supported level
NAMES_SINCE: Final = 3
BROKER_SOFTWARE: Final = "ottla-broker"
TELEMETRY: Final = frozenset({71, 72})
MIN_VERSION_ZERO_SINCE: Final = 4  # older clients reject a minimum version of 0
SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

# name -> (minimum, maximum) version supported by this broker.
SUPPORTED_FEATURES: Final[dict[str, tuple[int, int]]] = {
    "group.version": (0, 1),
    "transaction.version": (0, 2),
    leader_eligibility.ELR_FEATURE: (0, leader_eligibility.ELR_LEVEL_MAX),
    **ottla_version.SUPPORTED,
}

# Levels of a cluster without explicit ones: the highest, except for those that older brokers do not support.
DEFAULT_LEVELS: Final = {
    **{name: highest for name, (_, highest) in SUPPORTED_FEATURES.items()},
    ottla_version.OTTLA_VERSION_FEATURE: ottla_version.LEVEL_MIN,
}


def handle(request: ApiVersionsRequest, context: Context) -> Any:
    refusal = context.broker.authenticator.refuse_versions(context)
    if refusal is not None:
        return refusal
    version = context.api_version
    context.client.client_id = context.client_id or ""
    if version >= NAMES_SINCE and not has_valid_names(request):
        return ApiVersionsResponse(error_code=Error.INVALID_REQUEST)
    if version >= NAMES_SINCE:
        context.client.software_name = request.client_software_name
        context.client.software_version = request.client_software_version
    context.broker.authenticator.on_api_versions_answered(context.client)
    image = context.broker.image
    served = context.broker.served_apis
    if version >= NAMES_SINCE and request.client_software_name == BROKER_SOFTWARE:
        served = served + inter_broker_apis(context.broker.broker_apis, image)
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=lowest, max_version=highest)
            for key, lowest, highest in served
            if key not in TELEMETRY or image.client_metrics_configs
        ],
        supported_features=supported_features(version),
        finalized_features_epoch=image.features_epoch,
        finalized_features=finalized_features(image),
    )


def inter_broker_apis(ranges: list[tuple[int, int, int]], image: MetadataImage) -> list[tuple[int, int, int]]:
    """Return the inter-broker APIs. A broker without feature levels does not get ClusterPoll if levels are required, so
    that it logs the reason.
    """
    if ottla_version.cluster_level(image) == ottla_version.LEVEL_MIN:
        return ranges
    return [
        (key, max(lowest, LEVELS_SINCE), highest) if key == CLUSTER_POLL else (key, lowest, highest)
        for key, lowest, highest in ranges
    ]


def unsupported_version(context: Context) -> Any:
    """Return the response in v0 to an ApiVersions request in an unknown version."""
    refusal = context.broker.authenticator.refuse_versions(context)
    if refusal is not None:
        return refusal
    api = APIS[API_VERSIONS]
    own = ApiVersion(api_key=API_VERSIONS, min_version=api.min_version, max_version=api.max_version)
    return ApiVersionsResponse(error_code=Error.UNSUPPORTED_VERSION, api_keys=[own])


def has_valid_names(request: ApiVersionsRequest) -> bool:
    texts = request.client_software_name, request.client_software_version
    return all(SOFTWARE.fullmatch(text) for text in texts)


def supported_features(version: int) -> list[SupportedFeatureKey]:
    return [
        SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
        for name, (lowest, highest) in SUPPORTED_FEATURES.items()
        if lowest > 0 or version >= MIN_VERSION_ZERO_SINCE
    ]


def finalized_features(image: MetadataImage) -> list[FinalizedFeatureKey]:
    return [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name in SUPPORTED_FEATURES
        if (level := feature_level(image, name)) > 0
    ]


def feature_level(image: MetadataImage, name: str) -> int:
    return image.features.get(name, DEFAULT_LEVELS[name])
