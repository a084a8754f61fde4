"""UpdateFeatures (key 57), v0-2: changes feature levels (KIP-584). v1 upgrade types, validation only; v2 no results.

api_versions.py lists the supported features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.handlers.api_versions import DEFAULT_LEVELS, SUPPORTED_FEATURES
from ottla.controller.cluster.controller import ClusterController
from ottla.controller.decisions.decision import Decision
from ottla.controller.decisions.features import FeatureUpdate, decide_feature_updates
from ottla.controller.decisions.leader_eligibility import decide_cluster_min_isr
from ottla.controller.image import MetadataImage
from ottla.protocol.messages.cluster import UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context

SUCCESS: Final = "NONE"  # Kafka's message of a feature without an error


async def handle(request: UpdateFeaturesRequest, context: Context) -> UpdateFeaturesResponse:
    if not context.is_authorized(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return UpdateFeaturesResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    updates = [
        FeatureUpdate(item.feature, item.max_version_level, item.upgrade_type) for item in request.feature_updates
    ]
    minimum = context.broker.settings.with_dynamic({}, {}).min_insync_replicas
    controller = context.broker.controller

    def decide(image: MetadataImage) -> Decision[None]:
        registered = controller.versions.registered if isinstance(controller, ClusterController) else image.brokers
        decision = decide_feature_updates(image, updates, SUPPORTED_FEATURES, DEFAULT_LEVELS, registered.values())
        settled = decide_cluster_min_isr(decision.image, minimum)
        return Decision((*decision.operations, *settled.operations), settled.image, None)

    try:
        await controller.change(decide, validate_only=request.validate_only)
    except KafkaError as refusal:
        return UpdateFeaturesResponse(error_code=refusal.error, error_message=refusal.message)
    results = [UpdatableFeatureResult(feature=update.name, error_message=SUCCESS) for update in updates]
    return UpdateFeaturesResponse(results=results)


def refuse(request: UpdateFeaturesRequest, error: Error, message: str | None, _: int) -> UpdateFeaturesResponse:
    rows = [
        UpdatableFeatureResult(feature=update.feature, error_code=error, error_message=message)
        for update in request.feature_updates
    ]
    return UpdateFeaturesResponse(error_code=error, error_message=message, results=rows)
