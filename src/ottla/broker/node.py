"""What every part of a broker may know: who it is, what time it is, what is set, what the cluster looks like.

Whoever needs more (replicas, the controller, other brokers) is given it by name. Compiled with mypyc where possible.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.broker.configs.live_settings import LiveSettings
from ottla.controller.holder import ImageHolder
from ottla.controller.image import MetadataImage


class Node:
    """One broker, without anything that it does."""

    def __init__(
        self, id_: int, live: LiveSettings, clock: Clock, images: ImageHolder, workers: ThreadPoolExecutor
    ) -> None:
        self.id = id_
        self.live = live
        self.clock = clock
        self.images = images
        self.workers = workers

    @property
    def settings(self) -> BrokerSettings:
        """The settings in force now."""
        return self.live.broker

    @property
    def image(self) -> MetadataImage:
        return self.images.image

    def __repr__(self) -> str:
        return f"<Node {self.id}>"
