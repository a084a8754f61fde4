"""Brokers in maintenance: somebody works at them, so they lead nothing, and nobody heals what they hold. Pure.

It is a setting of the one broker, with an end: a broker that is forgotten in maintenance must not stay there. Whoever
is the controller finds it in the image, so it outlives controllers and restarts of the broker itself. The broker stays
in the ISRs, and goes on leading what nobody else in sync can lead: maintenance never costs a partition its leader.

Brokers that do not know the setting would not leave leaders alone when they become the controller, so it counts and may
be set only when all brokers can (ottla_version.py).
"""

from __future__ import annotations

from typing import Final

from ottla.controller.decisions.ottla_version import SELF_OPERATION, level
from ottla.controller.image import MetadataImage

UNTIL: Final = "ottla.maintenance.until.ms"  # by the controller's clock, in milliseconds since 1970


def brokers_in_maintenance(image: MetadataImage, now_ms: int) -> frozenset[int]:
    """A value that is no number counts as not set."""
    if level(image) < SELF_OPERATION:
        return frozenset()
    return frozenset(broker for broker, until_ms in maintenance_ends(image).items() if until_ms > now_ms)


def maintenance_ends(image: MetadataImage) -> dict[int, int]:
    """By broker: until when its maintenance is to last, or has lasted."""
    found = {}
    for broker, config in image.broker_configs.items():
        until = config.get(UNTIL, "").strip()
        if broker.isdecimal() and until.isdecimal():
            found[int(broker)] = int(until)
    return found
