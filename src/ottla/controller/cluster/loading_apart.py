"""What a broker that takes over as the controller reads: a hundred thousand nodes take seconds, so a worker does it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from ottla.base.uncollected import uncollected
from ottla.controller.image import MetadataImage
from ottla.controller.loading import load_readable
from ottla.controller.stores.store import Node

LOADED_AT_ONCE: Final = 300  # nodes


async def load_apart(nodes: Mapping[str, Node], known: MetadataImage) -> MetadataImage:
    """The image; where it takes long, what differs from the one that is known is found out on the way."""
    if len(nodes) <= LOADED_AT_ONCE:
        return load_readable(nodes, known)
    with uncollected:
        return await asyncio.to_thread(load_and_compare, nodes, known)


def load_and_compare(nodes: Mapping[str, Node], known: MetadataImage) -> MetadataImage:
    return load_readable(nodes, known).as_next_of(known)
