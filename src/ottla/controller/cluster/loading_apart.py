"""What a broker that takes over as the controller reads: a hundred thousand nodes take seconds, so a worker does it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from ottla.base.uncollected import uncollected
from ottla.controller.decisions.broker_epochs import known_broker_epochs
from ottla.controller.decisions.broker_index import BrokerIndex
from ottla.controller.image import MetadataImage
from ottla.controller.loading import load_readable
from ottla.controller.stores.store import Node

LOADED_AT_ONCE: Final = 300  # nodes

T = TypeVar("T")


class Loaded(NamedTuple):
    """What a controller begins with."""

    image: MetadataImage
    broker_epochs: Mapping[int, int]
    broker_index: BrokerIndex


async def load_apart(nodes: Mapping[str, Node], known: MetadataImage) -> Loaded:
    """What differs from the image that is known is found out on the way: nobody has to look for it on the loop."""
    return await apart(nodes, lambda: load_and_compare(nodes, known))


async def apart(nodes: Mapping[str, Node], work: Callable[[], T]) -> T:
    """Work with all of these nodes, by a worker if there are many."""
    if len(nodes) <= LOADED_AT_ONCE:
        return work()
    with uncollected:
        return await asyncio.to_thread(work)


def load_and_compare(nodes: Mapping[str, Node], known: MetadataImage) -> Loaded:
    image = load_readable(nodes, known).as_next_of(known)
    return Loaded(image, known_broker_epochs(nodes, image), BrokerIndex(image))
