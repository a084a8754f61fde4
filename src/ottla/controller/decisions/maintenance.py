"""Brokers in maintenance: somebody works at them, so they lead nothing, and nobody heals what they hold. Pure.

It is a setting of the one broker, with an end: a broker that is forgotten in maintenance must not stay there.
"""

from __future__ import annotations

from typing import Final

from ottla.controller.image import MetadataImage

UNTIL: Final = "ottla.maintenance.until.ms"  # by the controller's clock, in milliseconds since 1970


def brokers_in_maintenance(image: MetadataImage, now_ms: int) -> frozenset[int]:
    """A value that is no number counts as not set."""
    found = set()
    for broker, config in image.broker_configs.items():
        until = config.get(UNTIL, "")
        if broker.isdigit() and until.isdigit() and int(until) > now_ms:
            found.add(int(broker))
    return frozenset(found)
