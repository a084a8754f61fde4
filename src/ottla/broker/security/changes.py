"""Settings of TLS and SASL that change while the broker runs.

Rules:
1. A change is tried before it is taken: certificates are read and logins are made of it, by a worker. What does not
   work is refused with its reason, and nothing has changed.
2. What was taken counts for the next handshake of TLS and the next login, also a repeated one; nobody is disconnected.
3. One change after the other, and only the last of several that wait. What a broker finds in the metadata when it
   starts is in force before it listens (`settled`).
4. What does not work any more when it is to be used (a file is gone) is told, and the old stays in force.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.base import tasks
from ottla.base.broker_settings import BrokerSettings
from ottla.base.listener_keys import split_listener_key, without_mechanism
from ottla.base.setting_types import BadValueError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from ottla.broker.security.logins import ListenerRules, Logins
    from ottla.broker.security.peer_login import PeerLogin
    from ottla.broker.security.tls import BrokerTls
    from ottla.security.sasl.client_logins import ClientLogin

logger = logging.getLogger(__name__)

FAMILIES: Final = ("ssl.", "sasl.", "connections.max.reauth.ms")

MakeRules = Callable[[BrokerSettings], "dict[str, ListenerRules]"]
MakeLogin = Callable[[BrokerSettings], "ClientLogin | None"]


class Makers(NamedTuple):
    """How logins are made of settings. Both raise LoginSettingsError."""

    rules: MakeRules
    login: MakeLogin


class SecurityChangeError(Exception):
    """Why settings cannot be used: one line."""


class SecurityChanges:
    """One for a broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        makers: Makers,
        logins: Logins,
        peer_login: PeerLogin | None,
        tls: BrokerTls | None,
        workers: Executor,
    ) -> None:
        self._texts = security_texts(settings)
        self._makers = makers
        self._logins = logins
        self._peer_login = peer_login
        self._tls = tls
        self._workers = workers
        self._waiting: BrokerSettings | None = None
        self._task: asyncio.Task[None] | None = None

    async def check(self, settings: BrokerSettings) -> None:
        """Try such settings (rule 1). Raises SecurityChangeError."""
        if security_texts(settings) != self._texts:
            await asyncio.get_running_loop().run_in_executor(self._workers, self._try, settings)

    def _try(self, settings: BrokerSettings) -> None:
        self._make(settings)
        if self._tls is not None:
            from ottla.security.tls import TlsError  # noqa: PLC0415 (a broker without TLS does without it)

            try:
                self._tls.check(settings)
            except TlsError as problem:
                raise SecurityChangeError(str(problem)) from None

    def follow(self, settings: BrokerSettings) -> None:
        """Settings have changed."""
        texts = security_texts(settings)
        if texts != self._texts:
            self._texts = texts
            self._waiting = settings
            if self._task is None:
                self._task = tasks.start(self._run(), "changes of certificates and logins")

    async def settled(self) -> None:
        """All changes so far are in force."""
        while self._task is not None:
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        try:
            while self._waiting is not None:
                settings, self._waiting = self._waiting, None
                await self._apply(settings)
        finally:
            self._task = None

    async def _apply(self, settings: BrokerSettings) -> None:
        try:
            rules, login = await asyncio.get_running_loop().run_in_executor(self._workers, self._make, settings)
        except SecurityChangeError as problem:
            logger.warning("changed settings of logins are not used: %s; the old ones stay in force", problem)
        else:
            self._logins.use(rules)
            if self._peer_login is not None and login is not None:
                self._peer_login.login = login
        if self._tls is not None:
            self._tls.follow(settings)
            await self._tls.look()

    def _make(self, settings: BrokerSettings) -> tuple[dict[str, ListenerRules], ClientLogin | None]:
        from ottla.security.jaas import JaasError  # noqa: PLC0415 (a broker without logins does without it)

        try:
            login = self._makers.login(settings) if self._peer_login is not None else None
            return self._makers.rules(settings), login
        except (JaasError, BadValueError) as problem:
            raise SecurityChangeError(str(problem)) from None

    def __repr__(self) -> str:
        return f"<SecurityChanges{' under way' if self._task is not None else ''}>"


def security_texts(settings: BrokerSettings) -> Mapping[str, str]:
    """All that was set about TLS and SASL."""
    return {name: text for name, text in settings.texts.items() if is_security_key(name)}


def is_security_key(name: str) -> bool:
    of_listener = split_listener_key(name)
    base = name if of_listener is None else without_mechanism(of_listener.base)
    return base.startswith(FAMILIES)
