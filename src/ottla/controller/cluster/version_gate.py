"""Excludes brokers that do not support the cluster's level of `ottla.version` (decisions/ottla_version.py).

A broker of an older version does not know these levels: it registers, polls and is a candidate in elections. So the
other brokers exclude it:

1. The controller does not admit it to the live brokers, and rejects its polls with UNSUPPORTED_VERSION. The response
   contains the supported versions of ClusterPoll, which the older broker logs.
2. A controller that resigns while such a broker is registered offers /controller instead of deleting it: newer brokers
   replace an offered node in one transaction, older ones ignore it. If an older broker is elected nevertheless, because
   the controller has failed, any newer broker replaces it in the same way.
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


class BrokerVersionGate:
    """The gate of one controller. All calls are made on the loop."""

    def __init__(self) -> None:
        self.registered: Mapping[int, BrokerImage] = {}  # as last read, admitted or not
        self._refused: dict[int, int] = {}  # broker -> epoch of the registration whose rejection was logged

    def admit(self, image: MetadataImage, registered: Mapping[int, BrokerImage]) -> dict[int, BrokerImage]:
        """Return the brokers that support the level; rejections of the others are logged once for each registration."""
        self.registered = registered
        refused = {id_: broker for id_, broker in registered.items() if not is_admitted(image, broker)}
        for id_, broker in refused.items():
            if self._refused.get(id_) != broker.epoch:
                logger.error("[Controller] %s", refusal_message(image, id_, ottla_version.supported_levels(broker)))
        self._refused = {id_: broker.epoch for id_, broker in refused.items()}
        return {id_: broker for id_, broker in registered.items() if id_ not in refused}

    @property
    def has_refused(self) -> bool:
        return bool(self._refused)

    def check_poll(self, image: MetadataImage, broker: int, level_max: int) -> None:
        """Check a poll. Raises KafkaError(UNSUPPORTED_VERSION) if the broker is too old."""
        level = ottla_version.cluster_level(image)
        if level_max < level:
            levels = (ottla_version.LEVEL_MIN, level_max)
            raise KafkaError(Error.UNSUPPORTED_VERSION, refusal_message(image, broker, levels))


def is_admitted(image: MetadataImage, broker: BrokerImage) -> bool:
    return ottla_version.supports(broker, ottla_version.cluster_level(image))


def refusal_message(image: MetadataImage, broker: int, supported: tuple[int, int]) -> str:
    lowest, highest = supported
    levels = f"only {highest}" if lowest == highest else f"{lowest} to {highest}"
    cluster_level = f"{ottla_version.OTTLA_VERSION_FEATURE}={ottla_version.cluster_level(image)}"
    return (
        f"broker {broker} is refused: this cluster runs at {cluster_level}, and it supports {levels}. Install the "
        "version that the other brokers have (docs/upgrade.md)"
    )


async def is_too_old(store: MetadataStore, broker_id: int | None) -> bool:
    """Return whether the registration of a broker lacks support for the level in the store; False without a
    registration.
    """
    if broker_id is None:
        return False
    feature, registration = await store.get(tree.FEATURE), await store.get(tree.broker_path(broker_id))
    if feature is None or registration is None:
        return False
    try:
        level = ottla_version.level_of(tree.decode_feature(feature.data))
        broker = tree.decode_broker(broker_id, registration.data, registration.created_id)
    except tree.DamagedNodeError:
        return False  # unknown: the registration cannot be read
    return not ottla_version.supports(broker, level)
