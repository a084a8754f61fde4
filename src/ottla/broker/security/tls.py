"""TLS of one broker: a context for each listener that speaks it, and one for connections to other brokers.

Certificates are read when the broker starts (what is wrong with them stops it) and looked at every few seconds, and
whenever settings have changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from concurrent.futures import Executor
from typing import Final

from ottla.base.broker_keys.tls import TlsKeys
from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.base.listener_keys import listener_key
from ottla.base.listeners import Listener
from ottla.base.log_limiter import LogLimiter
from ottla.base.security import ANONYMOUS
from ottla.broker.security.listener_rules import inter_broker_listener
from ottla.security.live_context import EXPIRY_WARNING_DAYS, LiveContext
from ottla.security.principal_mapping import MappingError, PrincipalMapping
from ottla.security.tls import TlsError, client_context, server_context

logger = logging.getLogger(__name__)

LOOK_MS: Final = 3_000
EXPIRY_WARNING_SECONDS: Final = 86_400.0  # between two warnings about one certificate
OVER_TLS: Final = ("SSL", "SASL_SSL")


class TlsListener:
    """One listener, as the network room sees it (ListenerTls)."""

    def __init__(self, settings: BrokerSettings, listener: Listener, clock: Clock) -> None:
        """Raises TlsError."""
        self._listener = listener
        self._clock = clock
        keys = self.keys(settings)
        try:
            self._mapping = self._mapping_of(keys)
            self.live = LiveContext(f"listener {listener.name}", keys, server_context)
        except TlsError as problem:
            raise TlsError(f"listener {listener.name}: {problem}") from None

    def keys(self, settings: BrokerSettings) -> TlsKeys:
        keys = keys_of_listener(settings, self._listener.name)
        own = listener_key(self._listener.name, "ssl.client.auth")
        if self._listener.protocol != "SASL_SSL" or own in settings.texts:
            return keys
        # as with Kafka: where a login follows, certificates must be asked for by name
        return TlsKeys({**keys.texts, "ssl.client.auth": "none"})

    def check(self, settings: BrokerSettings) -> None:
        """Whether such settings can be used. Raises TlsError."""
        keys = self.keys(settings)
        self._mapping_of(keys)
        self.live.check(keys)

    def refresh(self, settings: BrokerSettings) -> None:
        """Read what has changed; what cannot be used leaves everything as it is."""
        keys = self.keys(settings)
        self.live.refresh(keys)
        with contextlib.suppress(TlsError):  # whoever made the change was told
            self._mapping = self._mapping_of(keys)

    def _mapping_of(self, keys: TlsKeys) -> PrincipalMapping | None:
        """None: certificates are no principals, since a login follows."""
        if self._listener.protocol == "SASL_SSL":
            return None
        try:
            return PrincipalMapping(keys.ssl_principal_mapping_rules)
        except MappingError as problem:
            raise TlsError(str(problem)) from None

    def context(self) -> ssl.SSLContext:
        return self.live.context()

    def principal(self, certificate: bytes | None) -> str:
        return self._mapping.principal(certificate) if self._mapping is not None else ANONYMOUS

    def days_left(self) -> float:
        certificate = self.live.certificate
        assert certificate is not None, "a listener shows one"
        return certificate.days_left(self._clock.now_ms())


class BrokerTls:
    """All contexts of a broker."""

    look_ms = LOOK_MS

    def __init__(self, settings: BrokerSettings, clock: Clock, workers: Executor) -> None:
        """Raises TlsError."""
        self._workers = workers
        self._warnings = LogLimiter(EXPIRY_WARNING_SECONDS)
        self._settings = settings
        self._looking = asyncio.Lock()
        self.listeners = {
            listener.name: TlsListener(settings, listener, clock)
            for listener in settings.listeners
            if listener.protocol in OVER_TLS
        }
        between = inter_broker_listener(settings)
        self.outgoing: LiveContext | None = None
        if between is not None and between.protocol in OVER_TLS:
            self._between = between.name
            self.outgoing = LiveContext(
                f"connections to listener {between.name}", keys_of_listener(settings, between.name), client_context
            )

    def follow(self, settings: BrokerSettings) -> None:
        """Other settings from now on; what they name is read by the next look."""
        self._settings = settings

    def check(self, settings: BrokerSettings) -> None:
        """Whether such settings can be used; reads files, so a worker runs it. Raises TlsError."""
        for listener in self.listeners.values():
            listener.check(settings)
        if self.outgoing is not None:
            self.outgoing.check(keys_of_listener(settings, self._between))

    async def look(self) -> None:
        """Whether any file or setting has changed, or a certificate will soon be of no use."""
        loop = asyncio.get_running_loop()
        async with self._looking:
            await loop.run_in_executor(self._workers, self._refresh, self._settings)
        self._warn_of_expiry(loop.time())

    def _refresh(self, settings: BrokerSettings) -> None:
        for listener in self.listeners.values():
            listener.refresh(settings)
        if self.outgoing is not None:
            self.outgoing.refresh(keys_of_listener(settings, self._between))

    def _warn_of_expiry(self, now: float) -> None:
        for name, listener in self.listeners.items():
            days = listener.days_left()
            if days < EXPIRY_WARNING_DAYS and self._warnings.is_due(now, name):
                when = f"expires in {days:.0f} days" if days >= 0 else f"expired {-days:.0f} days ago"
                logger.warning(
                    "the certificate of listener %s %s: renew it in its file, no restart is needed", name, when
                )

    def __repr__(self) -> str:
        return f"<BrokerTls of {', '.join(self.listeners) or 'no listener'}>"


def keys_of_listener(settings: BrokerSettings, listener: str) -> TlsKeys:
    """The broker's, and above them what the listener has for itself."""
    texts = {}
    for name in TlsKeys.keys:
        text = settings.texts.get(listener_key(listener, name), settings.texts.get(name))
        if text is not None:
            texts[name] = text
    return TlsKeys(texts)
