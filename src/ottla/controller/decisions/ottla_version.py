"""What all brokers of a cluster can do, as a feature of the cluster (KIP-584). Pure, under the rules of machine.py.

Level 1 is what brokers could before they had such a feature. A level is raised by somebody, when every broker is new
enough (`kafka-features.sh upgrade`, `ottla features`); until then nothing is written that an older one would not
understand.
"""

from __future__ import annotations

from typing import Final

from ottla.controller.image import MetadataImage

FEATURE: Final = "ottla.version"
LEVEL_MAX: Final = 2
SELF_OPERATION: Final = 2  # the controller moves replicas and leaders by itself: healing, balance, maintenance


def level(image: MetadataImage) -> int:
    return image.features.get(FEATURE, LEVEL_MAX)
