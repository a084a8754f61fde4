"""Access rights as the settings want them, and as the metadata have them: makes the authorizer, tells it of changes."""

from __future__ import annotations

import asyncio
import gc
from typing import Final

from ottla.base import tasks
from ottla.base.broker_keys.security import parse_principals
from ottla.broker.node import Node
from ottla.controller.holder import ImageHolder
from ottla.controller.image import MetadataImage
from ottla.security.authorizer import Authorizer
from ottla.security.denials import DenialLog

FROZEN_MIN: Final = 20_000  # patterns: a collection that looks at their rules takes a tenth of a second
FROZEN_AGAIN: Final = 2  # times as many


def start_authorizer(node: Node) -> Authorizer | None:
    """None: `authorizer.class.name` is not set, and everybody may do everything. Follows the metadata from now on."""
    settings = node.settings
    if not settings.authorizer_class_name.strip():
        return None
    is_permissive = settings.ottla_authorizer_mode == "permissive"
    authorizer = Authorizer(
        node.image.acls,
        parse_principals(settings.super_users),
        allows_without_rules=settings.allow_everyone_if_no_acl_found,
        is_permissive=is_permissive,
        denials=DenialLog(node.clock.monotonic_ms, is_permissive=is_permissive),
    )
    follow_acls(node.images, authorizer)
    return authorizer


def follow_acls(images: ImageHolder, authorizer: Authorizer) -> None:
    """Tell it of every change from now on; thousands of rules take a while, in which others are served."""

    patience = CollectorPatience()

    def on_image(old: MetadataImage, new: MetadataImage) -> None:
        if new.acls is old.acls:
            return
        is_settling = not authorizer.is_settled
        authorizer.take(new.acls, new.changed_acls_since(old))
        if not authorizer.is_settled and not is_settling:
            tasks.start(settle(authorizer, patience), "indexing access rules")

    images.on_image(on_image)


class CollectorPatience:
    """No collection looks at very many rules again: they stay, are in no cycle, and all threads would stand meanwhile.

    Whatever lives at that moment is left out, too, and would never be collected if it came into a cycle. So this
    happens a few times in the life of a broker, and never for rules by the hundred.
    """

    def __init__(self) -> None:
        self._frozen = FROZEN_MIN // FROZEN_AGAIN

    def note(self, patterns: int) -> None:
        if patterns >= self._frozen * FROZEN_AGAIN:
            self._frozen = patterns
            gc.freeze()

    def __repr__(self) -> str:
        return f"<CollectorPatience from {self._frozen * FROZEN_AGAIN} patterns on>"


async def settle(authorizer: Authorizer, patience: CollectorPatience) -> None:
    while not authorizer.is_settled:
        authorizer.settle()
        await asyncio.sleep(0)
    patience.note(len(authorizer.acls))
