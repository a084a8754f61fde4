"""The SCRAM credentials of users and of delegation tokens, as the metadata have them now."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.broker.security.tokens import Tokens
from ottla.controller.holder import ImageHolder
from ottla.security.scram import ScramCredential, parse_credential

if TYPE_CHECKING:
    from ottla.security.sasl.scram import TokenCredential

logger = logging.getLogger(__name__)


class ImageCredentials:
    """Reads the image at each login: a password counts as soon as the broker has heard of it."""

    def __init__(self, images: ImageHolder, tokens: Tokens) -> None:
        self._images = images
        self._tokens = tokens
        self._seen: Mapping[str, Mapping[str, str]] | None = None
        self._any: dict[str, ScramCredential | None] = {}  # by mechanism, as long as the users are the same

    def find(self, mechanism: str, name: str) -> ScramCredential | None:
        text = self._images.image.user_configs.get(name, {}).get(mechanism)
        if text is None:
            return None
        try:
            return parse_credential(mechanism, text)
        except ValueError:
            logger.warning("the %s credential of user %r is damaged: set the password anew", mechanism, name[:100])
            return None

    def any_of(self, mechanism: str) -> ScramCredential | None:
        users = self._images.image.user_configs
        if users is not self._seen:
            self._seen = users
            self._any.clear()
        if mechanism not in self._any:
            name = next((name for name, config in users.items() if mechanism in config), None)
            self._any[mechanism] = self.find(mechanism, name) if name is not None else None
        return self._any[mechanism]

    @property
    def has_tokens(self) -> bool:
        return self._tokens.is_enabled

    def find_token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        return self._tokens.credential(mechanism, token_id)

    def __repr__(self) -> str:
        return f"<ImageCredentials {len(self._images.image.user_configs)} users>"
