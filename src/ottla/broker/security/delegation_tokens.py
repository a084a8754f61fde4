"""Delegation tokens of the metadata, with the HMACs derived from this broker's secret (Kafka's DelegationTokenManager).

Rules:
1. Without `delegation.token.secret.key` there are no tokens, whatever the metadata contain.
2. An HMAC is computed at its first use, off the event loop. It is never logged, and sent only to authorized clients.
3. An expired token is invalid, even before it is removed.
4. A client that logged in with a token, or is anonymous, can neither create nor describe tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ottla.base.clock import Clock
from ottla.base.errors import Error, KafkaError
from ottla.base.security import ANONYMOUS
from ottla.broker.offload import in_slices
from ottla.controller.decisions.decision import Decision
from ottla.controller.decisions.token_changes import REMOVALS_PER_DECISION_MAX, decide_remove_expired
from ottla.controller.image import MetadataCache, MetadataImage
from ottla.security.delegation_tokens import DelegationToken, password_of_hmac, token_hmac
from ottla.security.scram_credentials import ScramCredential, make_credential

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.controller.service import ControllerService
    from ottla.security.sasl.scram import TokenCredential

logger = logging.getLogger(__name__)

CREDENTIALS_MAX: Final = 10_000
NO_TIMESTAMP: Final = -1  # the time fields of responses without permission

ChangeToken = Callable[[MetadataImage, str | None, str, int, int], Decision[DelegationToken]]
"""Changes a token; takes the token id, the requester, a period and the current time."""


class DelegationTokenManager:
    """The tokens of one broker. Runs on the loop, except for credential(), which takes milliseconds and may run in a
    worker.
    """

    def __init__(self, secret: str | None, images: MetadataCache, clock: Clock) -> None:
        self._secret = secret or ""
        self._images = images
        self._clock = clock
        self._hmacs: dict[str, bytes] = {}  # by token, computed at the first lookup
        self._ids: dict[bytes, str] = {}  # the reverse
        self._credentials: dict[tuple[str, str], ScramCredential] = {}  # by mechanism and token, for logins
        if self.is_enabled:
            images.add_listener(self._on_image)

    @property
    def is_enabled(self) -> bool:
        return bool(self._secret)

    def hmac_of(self, token_id: str) -> bytes:
        known = self._hmacs.get(token_id)
        return known if known is not None else token_hmac(self._secret, token_id)

    async def id_of(self, hmac: bytes) -> str | None:
        """Return the token with this HMAC."""
        tokens = self._images.image.delegation_tokens
        if hmac not in self._ids and len(self._hmacs) < len(tokens):
            async for token_id in in_slices([token_id for token_id in tokens if token_id not in self._hmacs]):
                if token_id in self._images.image.delegation_tokens:  # it may be removed by now
                    made = self._hmacs[token_id] = token_hmac(self._secret, token_id)
                    self._ids[made] = token_id
        return self._ids.get(hmac)

    def credential(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Return the credential for a login with a token; None if the token is unknown or expired."""
        token = self._images.image.delegation_tokens.get(token_id) if self.is_enabled else None
        if token is None or token.is_expired(self._clock.now_ms()):
            return None
        key = (mechanism, token_id)
        credential = self._credentials.get(key)
        if credential is None:
            if len(self._credentials) >= CREDENTIALS_MAX:
                self._credentials.clear()
            credential = make_credential(mechanism, password_of_hmac(self.hmac_of(token_id)).encode())
            self._credentials[key] = credential
        from ottla.security.sasl.scram import TokenCredential  # noqa: PLC0415 (brokers without logins start without it)

        return TokenCredential(credential, token.owner, token.expiry_ms)

    def _on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        if new.delegation_tokens is old.delegation_tokens:
            return
        for token_id in [token_id for token_id in self._hmacs if token_id not in new.delegation_tokens]:
            self._ids.pop(self._hmacs.pop(token_id), None)
        for key in list(self._credentials):
            if key[1] not in new.delegation_tokens:
                self._credentials.pop(key, None)

    def __repr__(self) -> str:
        return (
            f"<DelegationTokenManager {len(self._images.image.delegation_tokens)}>"
            if self.is_enabled
            else "<Tokens disabled>"
        )


def remove_expired(controller: ControllerService, clock: Clock) -> Callable[[], Awaitable[None]]:
    """Return the scheduled task that removes expired tokens; works on the active controller only."""

    async def remove() -> None:
        while controller.is_active:
            try:
                gone: list[DelegationToken] = await controller.change(
                    lambda image: decide_remove_expired(image, clock.now_ms()),
                    size=len(controller.image.delegation_tokens),
                )
            except KafkaError as problem:  # the next round may succeed
                logger.warning("expired delegation tokens could not be removed: %s", problem)
                return
            for token in gone:
                logger.info("Delegation token expired for token: %s for owner: %s", token.token_id, token.owner)
            if len(gone) < REMOVALS_PER_DECISION_MAX:
                return

    return remove


def may_request_tokens(context: Context) -> bool:
    """Return whether the client may request tokens (rule 4).

    The broker that received a forwarded request has checked it.
    """
    client = context.client
    if client.is_delegated:
        return False
    if context.is_forwarded:
        return True
    protocols = {listener.name: listener.protocol for listener in context.broker.settings.listeners}
    protocol = protocols.get(client.listener_name, "PLAINTEXT")
    return protocol != "PLAINTEXT" and not (protocol == "SSL" and client.principal == ANONYMOUS)


async def change_token(
    context: Context, hmac: bytes, decide: ChangeToken, period_ms: int, now_ms: int
) -> DelegationToken:
    """Make the controller change the token with this HMAC. Raises KafkaError."""
    broker = context.broker
    check_enabled(broker.delegation_tokens)
    token_id = await broker.delegation_tokens.id_of(hmac)
    return await broker.controller.change(
        lambda image: decide(image, token_id, context.principal, period_ms, now_ms),
        size=len(broker.image.delegation_tokens),
    )


def check_enabled(tokens: DelegationTokenManager) -> None:
    if not tokens.is_enabled:
        raise KafkaError(Error.DELEGATION_TOKEN_AUTH_DISABLED)
