"""Dynamic changes of TLS and SASL settings. Files that change without a change of settings: tls.py.

Rules:
1. A change is validated before it is accepted: a worker thread reads certificates and builds logins. An invalid change
   is refused with its reason and has no effect.
2. An accepted change applies to the next TLS handshake and the next login, including re-authentication; no connection
   is closed.
3. Changes are applied one after the other; of several waiting ones only the last. Settings in the metadata are in
effect before a starting broker listens (`wait_until_applied`).
4. If an accepted change fails later (a file is missing), that is logged, and the old settings stay in effect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.base import tasks
from ottla.base.broker_settings import BrokerSettings
from ottla.base.listeners import split_listener_key, without_mechanism
from ottla.base.setting_types import BadValueError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from ottla.broker.security.inter_broker_login import InterBrokerLogin
    from ottla.broker.security.server_authenticator import ListenerRules, ServerAuthenticator
    from ottla.broker.security.tls import BrokerTls
    from ottla.security.sasl.client_authenticator import ClientLogin

logger = logging.getLogger(__name__)

KEY_PREFIXES: Final = ("ssl.", "sasl.", "connections.max.reauth.ms")

MakeRules = Callable[[BrokerSettings], "dict[str, ListenerRules]"]
MakeLogin = Callable[[BrokerSettings], "ClientLogin | None"]


class LoginFactories(NamedTuple):
    """Builders of logins. Both raise LoginSettingsError."""

    rules: MakeRules
    login: MakeLogin


class SecurityChangeError(Exception):
    """The reason why settings cannot be used, in one line."""


class SecurityReconfiguration:
    """Applies security settings; one per broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        makers: LoginFactories,
        logins: ServerAuthenticator,
        peer_login: InterBrokerLogin | None,
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

    async def validate(self, settings: BrokerSettings) -> None:
        """Validate these settings (rule 1). Raises SecurityChangeError."""
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

    def apply_settings(self, settings: BrokerSettings) -> None:
        """Apply changed settings in the background."""
        texts = security_texts(settings)
        if texts != self._texts:
            self._texts = texts
            self._waiting = settings
            if self._task is None:
                self._task = tasks.spawn(self._run(), "changes of certificates and logins")

    async def wait_until_applied(self) -> None:
        """Wait until all changes so far are in effect."""
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
            logger.warning("changed login settings are not used: %s; the old settings stay in force", problem)
        else:
            self._logins.set_rules(rules)
            if self._peer_login is not None and login is not None:
                self._peer_login.login = login
        if self._tls is not None:
            self._tls.set_settings(settings)
            await self._tls.check_for_changes()

    def _make(self, settings: BrokerSettings) -> tuple[dict[str, ListenerRules], ClientLogin | None]:
        from ottla.security.jaas import JaasError  # noqa: PLC0415 (a broker without logins does without it)

        try:
            login = self._makers.login(settings) if self._peer_login is not None else None
            return self._makers.rules(settings), login
        except (JaasError, BadValueError) as problem:
            raise SecurityChangeError(str(problem)) from None

    def __repr__(self) -> str:
        return f"<SecurityReconfiguration{' under way' if self._task is not None else ''}>"


def security_texts(settings: BrokerSettings) -> Mapping[str, str]:
    """Return all explicit settings of TLS and SASL."""
    return {name: text for name, text in settings.texts.items() if is_security_key(name)}


def is_security_key(name: str) -> bool:
    of_listener = split_listener_key(name)
    base = name if of_listener is None else without_mechanism(of_listener.base)
    return base.startswith(KEY_PREFIXES)
