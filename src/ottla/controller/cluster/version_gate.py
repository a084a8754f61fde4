"""Who of the registered brokers may be one of a cluster at its level of `ottla.version` (decisions/ottla_version.py).

A broker of an older version does not know that there are levels: it registers, polls and stands for election as ever.
So it is the others who keep it out:

1. The controller does not count on it, and answers its polls with UNSUPPORTED_VERSION. It is told that the controller
   serves ClusterPoll only in newer versions, and that is what an older broker writes into its log.
2. A controller that steps down while such a broker is there offers /controller instead of removing it: an older one
   does not know what that means, the others take it in one transaction. If it is elected all the same (the controller
   has died, and it was the first to notice), whoever finds it elected takes its place in the same way.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla.base.errors import Error, KafkaError
from ottla.controller import tree
from ottla.controller.decisions import ottla_version
from ottla.controller.image import BrokerImage, MetadataImage
from ottla.controller.stores.store import MetadataStore

logger = logging.getLogger(__name__)


class VersionGate:
    """One a controller. All calls are made on the loop."""

    def __init__(self) -> None:
        self.registered: Mapping[int, BrokerImage] = {}  # counted on or not, as they were seen last
        self._refused: dict[int, int] = {}  # broker -> epoch of the life that was told

    def admit(self, image: MetadataImage, registered: Mapping[int, BrokerImage]) -> dict[int, BrokerImage]:
        """Those who may be counted on; the others are told in the log, once in each of their lives."""
        self.registered = registered
        refused = {id_: broker for id_, broker in registered.items() if not is_admitted(image, broker)}
        for id_, broker in refused.items():
            if self._refused.get(id_) != broker.epoch:
                logger.error("[Controller] %s", refusal_of(image, id_, ottla_version.supported_by(broker)))
        self._refused = {id_: broker.epoch for id_, broker in refused.items()}
        return {id_: broker for id_, broker in registered.items() if id_ not in refused}

    @property
    def refuses_anybody(self) -> bool:
        return bool(self._refused)

    def check_poll(self, image: MetadataImage, broker: int, level_max: int) -> None:
        """Raises KafkaError(UNSUPPORTED_VERSION) for a broker that asks for metadata and is too old for them."""
        level = ottla_version.level(image)
        if level_max < level:
            levels = (ottla_version.LEVEL_MIN, level_max)
            raise KafkaError(Error.UNSUPPORTED_VERSION, refusal_of(image, broker, levels))


def is_admitted(image: MetadataImage, broker: BrokerImage) -> bool:
    return ottla_version.supports(broker, ottla_version.level(image))


def refusal_of(image: MetadataImage, broker: int, supported: tuple[int, int]) -> str:
    lowest, highest = supported
    levels = f"only {highest}" if lowest == highest else f"{lowest} to {highest}"
    cluster_level = f"{ottla_version.FEATURE}={ottla_version.level(image)}"
    return (
        f"broker {broker} is refused: this cluster runs at {cluster_level}, and it supports {levels}. Install the "
        "version that the other brokers have (docs/upgrade.md)"
    )


async def is_too_old(store: MetadataStore, broker_id: int | None) -> bool:
    """Whether a broker does not support the level in the store, as its registration tells; no node, no judgement."""
    if broker_id is None:
        return False
    feature, registration = await store.get(tree.FEATURE), await store.get(tree.broker_path(broker_id))
    if feature is None or registration is None:
        return False
    try:
        level = ottla_version.level_of(tree.decode_feature(feature.data))
        broker = tree.decode_broker(broker_id, registration.data, registration.created_id)
    except tree.DamagedNodeError:
        return False  # somebody who cannot be read is not judged
    return not ottla_version.supports(broker, level)
