"""Our side of a login at a broker: the requests to send, one after the other, and what the answers mean.

Rules:
1. Pure: whoever has a connection sends what is returned here and brings the answer (client/login.py for tools,
   broker/security/peer_login.py for brokers).
2. First SaslHandshake, then SaslAuthenticate until the mechanism is done. An exchange that comes to no end is ended.
3. What the broker refuses is a LoginRefusedError; what the mechanism does not like about the broker is a LoginError.
4. `begin` and `step` may read files or ask others, unless `is_quick`.
"""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error
from ottla.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ottla.security.sasl.client_logins import ClientLogin
from ottla.security.sasl.mechanism import LoginError

HANDSHAKE_VERSION: Final = 1  # the tokens that follow are requests
STEPS_MAX: Final = 20


class LoginRefusedError(LoginError):
    """The broker's answer: a code, what it says about it, and the mechanisms that it has."""

    def __init__(self, error_code: int, said: str | None = None, offered: tuple[str, ...] = ()) -> None:
        super().__init__(said or f"error {error_code}")
        self.error_code = error_code
        self.said = said
        self.offered = offered


class TokenExchange:
    """One login on one connection."""

    def __init__(self, login: ClientLogin, host: str) -> None:
        self.mechanism = login.mechanism
        self.lifetime_ms = 0  # for how long the login is good when it is done; 0 is for ever
        self._client = login.make(host)
        self._steps = 0

    @property
    def is_quick(self) -> bool:
        return self._client.is_quick

    def handshake(self) -> SaslHandshakeRequest:
        return SaslHandshakeRequest(mechanism=self.mechanism)

    def take_handshake(self, answer: SaslHandshakeResponse) -> None:
        """Raises LoginRefusedError."""
        if answer.error_code != Error.NONE:
            raise LoginRefusedError(answer.error_code, None, tuple(sorted(answer.mechanisms)))

    def begin(self) -> SaslAuthenticateRequest:
        """The first token. Raises LoginError."""
        return SaslAuthenticateRequest(auth_bytes=self._client.first())

    def step(self, answer: SaslAuthenticateResponse) -> SaslAuthenticateRequest | None:
        """What to send next, None if nothing is left to do. Raises LoginError."""
        if answer.error_code != Error.NONE:
            raise LoginRefusedError(answer.error_code, answer.error_message)
        token = self._client.step(bytes(answer.auth_bytes))
        if self._client.is_done:
            self.lifetime_ms = answer.session_lifetime_ms
            return None
        self._steps += 1
        if self._steps >= STEPS_MAX:
            raise LoginError("it comes to no end")
        return SaslAuthenticateRequest(auth_bytes=token)

    def __repr__(self) -> str:
        return f"<TokenExchange {self.mechanism} after {self._steps} steps>"
