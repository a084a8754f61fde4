"""How far the login on one connection is. Pure: no socket, no clock.

Rules:
1. A mechanism is chosen (SaslHandshake), then tokens go to and fro until the exchange knows who is there, or fails.
   A failed login is the end of its connection.
2. A login may be good for a limited time (KIP-368). It is repeated on the same connection by the same principal with
   the same mechanism, at most once a second; until it is, an expired connection is good for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from ottla.base.errors import Error
from ottla.security.sasl.mechanism import Identity, LoginError, ServerExchange

REPEAT_MS_MIN: Final = 1_000


class Stage(Enum):
    """What the broker waits for."""

    HANDSHAKE = "handshake"
    TOKENS = "tokens"
    NOTHING = "logged in"
    EXPIRED = "expired"
    FAILED = "failed"


LEADS_TO: Final = {
    Stage.HANDSHAKE: {Stage.TOKENS, Stage.FAILED},
    Stage.TOKENS: {Stage.NOTHING, Stage.FAILED},
    Stage.NOTHING: {Stage.TOKENS, Stage.EXPIRED},
    Stage.EXPIRED: {Stage.TOKENS, Stage.FAILED},
    Stage.FAILED: {Stage.FAILED},
}

MakeExchange = Callable[[], ServerExchange]


class Login:
    """One connection's."""

    def __init__(self, mechanisms: Mapping[str, MakeExchange]) -> None:
        """`mechanisms` are those of the listener."""
        self.stage = Stage.HANDSHAKE
        self.mechanism = ""
        self.is_bare = False  # tokens come without a request around them: the handshake was of v0
        self.exchange: ServerExchange | None = None
        self.identity: Identity | None = None
        self._mechanisms = mechanisms
        self._first: tuple[str, str] | None = None  # mechanism and principal of the first login
        self._repeated_ms: int | None = None
        self._expires = False

    @property
    def is_repeated(self) -> bool:
        return self._first is not None

    @property
    def takes_bare_token(self) -> bool:
        return self.is_bare and self.stage is Stage.TOKENS

    def offer(self, mechanisms: Mapping[str, MakeExchange]) -> None:
        """The listener has others now: they count from the next handshake on."""
        self._mechanisms = mechanisms

    def choose(self, mechanism: str, version: int, now_ms: int) -> Error:
        """The client has named its mechanism; what the answer says. Any error but NONE is the connection's end."""
        if self.stage is Stage.TOKENS or self.stage is Stage.FAILED:
            return Error.ILLEGAL_SASL_STATE
        if self.stage is Stage.NOTHING and not self._may_repeat(now_ms):
            return Error.ILLEGAL_SASL_STATE
        make = self._mechanisms.get(mechanism)
        if make is None:
            return Error.UNSUPPORTED_SASL_MECHANISM
        if self.is_repeated:
            self._repeated_ms = now_ms
        self.mechanism = mechanism
        self.is_bare = version == 0
        self.exchange = make()
        self._move_to(Stage.TOKENS)
        return Error.NONE

    def _may_repeat(self, now_ms: int) -> bool:
        is_soon = self._repeated_ms is not None and now_ms - self._repeated_ms < REPEAT_MS_MIN
        return self._expires and not is_soon

    def begin_step(self) -> ServerExchange:
        """Whom to give the next token; LoginError if it need not even look at it."""
        assert self.stage is Stage.TOKENS, f"no token is expected: {self!r}"
        assert self.exchange is not None, "a handshake makes an exchange"
        if self._first is not None and self._first[0] != self.mechanism:
            told = (
                f"SASL mechanism '{self.mechanism}' requested by client is not supported for re-authentication "
                f"of mechanism '{self._first[0]}'"
            )
            raise LoginError(told, told)
        return self.exchange

    def end_step(self, now_ms: int, lifetime_ms_max: int) -> int | None:
        """The exchange has taken a token: None if it wants more, else how long the login is good for, 0 for ever."""
        assert self.exchange is not None, "a handshake makes an exchange"
        identity = self.exchange.identity
        if identity is None:
            return None
        if self._first is not None and self._first[1] != identity.principal:
            told = "Cannot change principals during re-authentication"
            raise LoginError(f"{told} from {self._first[1]} to {identity.principal}", told)
        self._first = (self.mechanism, identity.principal)
        self.identity = identity
        self.exchange = None
        self._move_to(Stage.NOTHING)
        limits = [lifetime_ms_max] if lifetime_ms_max > 0 else []
        if identity.expires_ms is not None:
            limits.append(max(0, identity.expires_ms - now_ms))
        self._expires = bool(limits)
        return min(limits, default=0)

    @property
    def expires(self) -> bool:
        """Whether this login is good for a limited time."""
        return self._expires

    def expire(self) -> None:
        """Its time is up; a repetition that has begun may still be finished."""
        if self.stage is Stage.NOTHING:
            self._move_to(Stage.EXPIRED)

    def fail(self) -> None:
        self.exchange = None
        self.stage = Stage.FAILED

    def _move_to(self, stage: Stage) -> None:
        assert stage in LEADS_TO[self.stage], f"{self.stage} does not lead to {stage}"
        self.stage = stage

    def __repr__(self) -> str:
        return f"<Login {self.mechanism or 'no mechanism'} {self.stage.value} {self.identity!r}>"
