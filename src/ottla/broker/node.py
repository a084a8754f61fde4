"""Basic facts of one broker: id, clock, settings and metadata image.

Components that need more (replicas, the controller, other brokers) get it by name. The server that
is made of them: main.py. Compiled with mypyc where possible.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.broker.configs.dynamic_broker_config import DynamicBrokerConfig
from ottla.controller.image import MetadataCache, MetadataImage


class Node:
    """One broker, without its components."""

    def __init__(
        self, id_: int, live: DynamicBrokerConfig, clock: Clock, images: MetadataCache, workers: ThreadPoolExecutor
    ) -> None:
        self.id = id_
        self.dynamic_config = live
        self.clock = clock
        self.images = images
        self.workers = workers

    @property
    def settings(self) -> BrokerSettings:
        """The current settings."""
        return self.dynamic_config.broker

    @property
    def image(self) -> MetadataImage:
        return self.images.image

    def __repr__(self) -> str:
        return f"<Node {self.id}>"
