"""The login state of one connection. Pure: no socket, no clock.

Rules:
1. The client selects a mechanism (SaslHandshake), then tokens are exchanged until the login succeeds or fails. A failed
   login ends its connection.
2. A login may expire (KIP-368). It is repeated on the same connection by the same principal with the same mechanism, at
   most once per second. An expired connection accepts no other requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from ottla.base.errors import Error
from ottla.security.sasl.exchange import Identity, LoginError, ServerExchange

REAUTHENTICATION_INTERVAL_MS_MIN: Final = 1_000


class Stage(Enum):
    """The state of the login."""

    HANDSHAKE = "handshake"
    TOKENS = "tokens"
    AUTHENTICATED = "logged in"
    EXPIRED = "expired"
    FAILED = "failed"


TRANSITIONS: Final = {
    Stage.HANDSHAKE: {Stage.TOKENS, Stage.FAILED},
    Stage.TOKENS: {Stage.AUTHENTICATED, Stage.FAILED},
    Stage.AUTHENTICATED: {Stage.TOKENS, Stage.EXPIRED},
    Stage.EXPIRED: {Stage.TOKENS, Stage.FAILED},
    Stage.FAILED: {Stage.FAILED},
}

MakeExchange = Callable[[], ServerExchange]


class LoginState:
    """The login state of one connection."""

    def __init__(self, mechanisms: Mapping[str, MakeExchange]) -> None:
        """`mechanisms` are those of the listener."""
        self.stage = Stage.HANDSHAKE
        self.mechanism = ""
        self.uses_bare_tokens = False  # tokens are sent without a request header: the handshake was v0
        self.exchange: ServerExchange | None = None
        self.identity: Identity | None = None
        self._mechanisms = mechanisms
        self._first_login: tuple[str, str] | None = None  # mechanism and principal of the first login
        self._reauthenticated_ms: int | None = None
        self.expires = False  # whether the login expires

    @property
    def is_reauthentication(self) -> bool:
        return self._first_login is not None

    @property
    def takes_bare_token(self) -> bool:
        return self.uses_bare_tokens and self.stage is Stage.TOKENS

    def update_mechanisms(self, mechanisms: Mapping[str, MakeExchange]) -> None:
        """Use the listener's changed mechanisms from the next handshake on."""
        self._mechanisms = mechanisms

    def select_mechanism(self, mechanism: str, version: int, now_ms: int) -> Error:
        """Select the client's mechanism. Any error but NONE ends the connection."""
        if self.stage is Stage.TOKENS or self.stage is Stage.FAILED:
            return Error.ILLEGAL_SASL_STATE
        if self.stage is Stage.AUTHENTICATED and not self._may_reauthenticate(now_ms):
            return Error.ILLEGAL_SASL_STATE
        make = self._mechanisms.get(mechanism)
        if make is None:
            return Error.UNSUPPORTED_SASL_MECHANISM
        if self.is_reauthentication:
            self._reauthenticated_ms = now_ms
        self.mechanism = mechanism
        self.uses_bare_tokens = version == 0
        self.exchange = make()
        self._change_stage(Stage.TOKENS)
        return Error.NONE

    def _may_reauthenticate(self, now_ms: int) -> bool:
        is_soon = (
            self._reauthenticated_ms is not None
            and now_ms - self._reauthenticated_ms < REAUTHENTICATION_INTERVAL_MS_MIN
        )
        return self.expires and not is_soon

    def begin_step(self) -> ServerExchange:
        """Return the exchange for the next token. Raises LoginError if the token is rejected without a check."""
        assert self.stage is Stage.TOKENS, f"no token is expected: {self!r}"
        assert self.exchange is not None, "a handshake makes an exchange"
        if self._first_login is not None and self._first_login[0] != self.mechanism:
            told = (
                f"SASL mechanism '{self.mechanism}' requested by client is not supported for re-authentication "
                f"of mechanism '{self._first_login[0]}'"
            )
            raise LoginError(told, told)
        return self.exchange

    def end_step(self, now_ms: int, lifetime_ms_max: int) -> int | None:
        """Process the result of a token:

        None if more are needed, otherwise the lifetime of the login in ms, 0: unlimited.
        """
        assert self.exchange is not None, "a handshake makes an exchange"
        identity = self.exchange.identity
        if identity is None:
            return None
        if self._first_login is not None and self._first_login[1] != identity.principal:
            told = "Cannot change principals during re-authentication"
            raise LoginError(f"{told} from {self._first_login[1]} to {identity.principal}", told)
        self._first_login = (self.mechanism, identity.principal)
        self.identity = identity
        self.exchange = None
        self._change_stage(Stage.AUTHENTICATED)
        limits = [lifetime_ms_max] if lifetime_ms_max > 0 else []
        if identity.expires_ms is not None:
            limits.append(max(0, identity.expires_ms - now_ms))
        self.expires = bool(limits)
        return min(limits, default=0)

    def expire(self) -> None:
        """Expire the login; a re-authentication in progress may still finish."""
        if self.stage is Stage.AUTHENTICATED:
            self._change_stage(Stage.EXPIRED)

    def fail(self) -> None:
        self.exchange = None
        self.stage = Stage.FAILED

    def _change_stage(self, stage: Stage) -> None:
        assert stage in TRANSITIONS[self.stage], f"{self.stage} does not lead to {stage}"
        self.stage = stage

    def __repr__(self) -> str:
        return f"<LoginState {self.mechanism or 'no mechanism'} {self.stage.value} {self.identity!r}>"
