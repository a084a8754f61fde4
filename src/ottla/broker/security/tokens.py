"""The delegation tokens of the metadata, with the passwords that this broker's secret makes of them.

Rules:
1. Without `delegation.token.secret.key` there are no tokens, whatever the metadata say.
2. A password is made when somebody first needs it, without keeping the loop. It is never logged, and leaves the broker
   only towards who may see it.
3. A token that has expired is good for nothing, whether it has been removed or not.
4. Who has logged in with a token, or is known to nobody, can neither make nor see tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ottla.base.clock import Clock
from ottla.base.errors import Error, KafkaError
from ottla.base.security import ANONYMOUS
from ottla.broker.slices import in_slices
from ottla.controller.decisions.machine import Decision
from ottla.controller.decisions.token_changes import REMOVED_AT_ONCE, decide_remove_expired
from ottla.controller.holder import ImageHolder
from ottla.controller.image import MetadataImage
from ottla.security.delegation_tokens import DelegationToken, token_hmac, token_password
from ottla.security.scram import ScramCredential, make_credential

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.controller.service import ControllerService
    from ottla.security.sasl.scram import TokenCredential

logger = logging.getLogger(__name__)

CREDENTIALS_MAX: Final = 10_000
NO_TIME: Final = -1  # what the answer to somebody who may not ask has for all times

DecideToken = Callable[[MetadataImage, str | None, str, int, int], Decision[DelegationToken]]
"""With the id of a token, who asks, a period and the time now: how the token changes."""


class Tokens:
    """One a broker. All calls are made on the loop, but credential(), which takes milliseconds: a worker may ask."""

    def __init__(self, secret: str | None, images: ImageHolder, clock: Clock) -> None:
        self._secret = secret or ""
        self._images = images
        self._clock = clock
        self._hmacs: dict[str, bytes] = {}  # by token, as far as somebody has looked for one
        self._ids: dict[bytes, str] = {}  # the other way
        self._credentials: dict[tuple[str, str], ScramCredential] = {}  # by mechanism and token, for logins
        if self.is_enabled:
            images.on_image(self._on_image)

    @property
    def is_enabled(self) -> bool:
        return bool(self._secret)

    def hmac_of(self, token_id: str) -> bytes:
        known = self._hmacs.get(token_id)
        return known if known is not None else token_hmac(self._secret, token_id)

    async def id_of(self, hmac: bytes) -> str | None:
        """The token that a password belongs to."""
        tokens = self._images.image.delegation_tokens
        if hmac not in self._ids and len(self._hmacs) < len(tokens):
            async for token_id in in_slices([token_id for token_id in tokens if token_id not in self._hmacs]):
                if token_id in self._images.image.delegation_tokens:  # it may be gone by now
                    made = self._hmacs[token_id] = token_hmac(self._secret, token_id)
                    self._ids[made] = token_id
        return self._ids.get(hmac)

    def credential(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """What checks a login with a token; None if there is none, or none that is good any more."""
        token = self._images.image.delegation_tokens.get(token_id) if self.is_enabled else None
        if token is None or token.is_expired(self._clock.now_ms()):
            return None
        key = (mechanism, token_id)
        credential = self._credentials.get(key)
        if credential is None:
            if len(self._credentials) >= CREDENTIALS_MAX:
                self._credentials.clear()
            credential = make_credential(mechanism, token_password(self.hmac_of(token_id)).encode())
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
        return f"<Tokens {len(self._images.image.delegation_tokens)}>" if self.is_enabled else "<Tokens disabled>"


def remove_expired(controller: ControllerService, clock: Clock) -> Callable[[], Awaitable[None]]:
    """The chore that forgets tokens whose time is up; only an active controller has something to do."""

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
            if len(gone) < REMOVED_AT_ONCE:
                return

    return remove


def may_ask_for_tokens(context: Context) -> bool:
    """Rule 4. A request that another broker has passed on came to a listener of that one, which has looked."""
    client = context.client
    if client.is_delegated:
        return False
    if context.is_forwarded:
        return True
    protocols = {listener.name: listener.protocol for listener in context.broker.settings.listeners}
    protocol = protocols.get(client.listener_name, "PLAINTEXT")
    return protocol != "PLAINTEXT" and not (protocol == "SSL" and client.principal == ANONYMOUS)


async def change_token(
    context: Context, hmac: bytes, decide: DecideToken, period_ms: int, now_ms: int
) -> DelegationToken:
    """Have the controller change the token with this password. Raises KafkaError."""
    broker = context.broker
    check_enabled(broker.tokens)
    token_id = await broker.tokens.id_of(hmac)
    return await broker.controller.change(
        lambda image: decide(image, token_id, context.principal, period_ms, now_ms),
        size=len(broker.image.delegation_tokens),
    )


def check_enabled(tokens: Tokens) -> None:
    if not tokens.is_enabled:
        raise KafkaError(Error.DELEGATION_TOKEN_AUTH_DISABLED)
