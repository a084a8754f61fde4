"""A real Node for what is tested without a broker around it."""

from collections.abc import Mapping
from typing import Any

from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.broker.configs.live_settings import LiveSettings
from ottla.broker.node import Node
from ottla.controller.holder import ImageHolder
from ottla.controller.image import MetadataImage
from virtual_time import LoopClock


def node(
    settings: BrokerSettings | Mapping[str, str] | None = None,
    *,
    id_: int = 1,
    image: MetadataImage | None = None,
    images: ImageHolder | None = None,
    clock: Clock | None = None,
) -> Node:
    """Its work for threads is done where the loop of the test does such work."""
    if not isinstance(settings, BrokerSettings):
        settings = BrokerSettings({"node.id": str(id_), **(settings or {})})
    images = images or ImageHolder()
    if image is not None:
        images.publish(image)
    workers: Any = None
    return Node(id_, LiveSettings(settings), clock or LoopClock(), images, workers)
