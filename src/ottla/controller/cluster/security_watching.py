"""Access rules and delegation tokens that somebody else has written into the store: Kafka 3.x leaves notices of them.

At work on the active controller.
"""

from __future__ import annotations

import logging

from ottla.base.clock import Clock
from ottla.controller import acl_nodes, token_nodes
from ottla.controller.cluster.controller import ClusterController
from ottla.controller.cluster.notices import Delete, Notices
from ottla.controller.decisions.acl_changes import decide_external_acls
from ottla.controller.decisions.token_changes import decide_external_tokens
from ottla.controller.stores.store import Node, SessionStore
from ottla.security.acls import ResourcePattern

logger = logging.getLogger(__name__)


class SecurityWatching:
    """What is looked at is decided by watching.py."""

    def __init__(self, store: SessionStore, controller: ClusterController, clock: Clock, delete: Delete) -> None:
        self._store = store
        self._controller = controller
        self.acls: Notices[ResourcePattern] = Notices(
            store, clock, delete, acl_nodes.CHANGES, acl_nodes.changed_pattern, self._take_acls
        )
        self.tokens: Notices[str] = Notices(
            store, clock, delete, (token_nodes.CHANGES,), token_nodes.changed_token, self._take_tokens
        )

    def begin(self) -> None:
        self.acls.begin()
        self.tokens.begin()

    async def _take_acls(self, changed: set[ResourcePattern]) -> None:
        patterns = sorted(changed)
        count = await self._controller.change_after_reading(
            lambda: self._read(list(map(acl_nodes.acl_path, patterns))),
            lambda image, nodes: decide_external_acls(image, patterns, nodes),
        )
        if count:
            logger.info("[Controller] access rules of %d resources were changed in the store by somebody else", count)

    async def _take_tokens(self, changed: set[str]) -> None:
        token_ids = sorted(changed)
        count = await self._controller.change_after_reading(
            lambda: self._read(list(map(token_nodes.token_path, token_ids))),
            lambda image, nodes: decide_external_tokens(image, token_ids, nodes),
        )
        if count:
            logger.info("[Controller] %d delegation tokens were changed in the store by somebody else", count)

    async def _read(self, paths: list[str]) -> dict[str, Node]:
        nodes = {path: await self._store.get(path) for path in paths}
        return {path: node for path, node in nodes.items() if node is not None}

    def __repr__(self) -> str:
        return f"<SecurityWatching {self.acls!r} {self.tokens!r}>"
