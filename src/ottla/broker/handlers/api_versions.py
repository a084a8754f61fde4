"""ApiVersions (key 18), v0-4: what this broker serves.

v1 throttle time; v3 flexible, client software name and version, features; v4 features whose lowest version is 0.
A version that we do not know is answered in v0 with UNSUPPORTED_VERSION and the versions of ApiVersions itself.

The two APIs of client metrics are announced while somebody has subscribed to any, as Kafka announces them only if it
has a plug-in for them: clients that see them keep a push interval, and librdkafka writes a line about it.

What only brokers use among themselves is told to brokers of a cluster, who say so by their software's name. That is no
secret and opens no door: each of those APIs asks who may use it.

A feature is listed only once it is served: Java producers switch to the second transaction protocol as soon as
`transaction.version` is finalized, without asking for anything else.
"""

from __future__ import annotations

import re
from typing import Final

from ottla.base.errors import Error
from ottla.broker.context import Context
from ottla.controller.decisions import eligible_leaders, ottla_version
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
LEVELS_SINCE: Final = 1  # the first version of ClusterPoll in which a broker says which level it supports
NAMES_SINCE: Final = 3
BROKER_SOFTWARE: Final = "ottla-broker"
TELEMETRY: Final = frozenset({71, 72})
LOWEST_ZERO_SINCE: Final = 4  # older clients take a lowest version of 0 for a mistake
SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

# name -> (lowest, highest) version that this broker can run with.
SUPPORTED_FEATURES: Final[dict[str, tuple[int, int]]] = {
    "group.version": (0, 1),
    "transaction.version": (0, 2),
    eligible_leaders.FEATURE: (0, eligible_leaders.LEVEL_MAX),
    **ottla_version.SUPPORTED,
}

# What a cluster has that says nothing: the highest, but for what an older broker could not do.
DEFAULT_LEVELS: Final = {
    **{name: highest for name, (_, highest) in SUPPORTED_FEATURES.items()},
    ottla_version.FEATURE: ottla_version.LEVEL_MIN,
}


def handle(request: ApiVersionsRequest, context: Context) -> ApiVersionsResponse:
    version = context.api_version
    context.client.client_id = context.client_id or ""
    if version >= NAMES_SINCE and not has_valid_names(request):
        return ApiVersionsResponse(error_code=Error.INVALID_REQUEST)
    if version >= NAMES_SINCE:
        context.client.software_name = request.client_software_name
        context.client.software_version = request.client_software_version
    image = context.broker.image
    served = context.broker.served_apis
    if version >= NAMES_SINCE and request.client_software_name == BROKER_SOFTWARE:
        served = served + among_brokers(context.broker.broker_apis, image)
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


def among_brokers(ranges: list[tuple[int, int, int]], image: MetadataImage) -> list[tuple[int, int, int]]:
    """What brokers are told of their own APIs. One that knows no levels is told that it cannot poll where they count:
    then its own log says why it gets no metadata.
    """
    if ottla_version.level(image) == ottla_version.LEVEL_MIN:
        return ranges
    return [
        (key, max(lowest, LEVELS_SINCE), highest) if key == CLUSTER_POLL else (key, lowest, highest)
        for key, lowest, highest in ranges
    ]


def unsupported_version() -> ApiVersionsResponse:
    """The answer, in v0, to an ApiVersions request of a version that we do not know."""
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
        if lowest > 0 or version >= LOWEST_ZERO_SINCE
    ]


def finalized_features(image: MetadataImage) -> list[FinalizedFeatureKey]:
    return [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name in SUPPORTED_FEATURES
        if (level := feature_level(image, name)) > 0
    ]


def feature_level(image: MetadataImage, name: str) -> int:
    return image.features.get(name, DEFAULT_LEVELS[name])
