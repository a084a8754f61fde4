"""TLS contexts of a broker: one per TLS listener, and one for connections to other brokers.

Certificates are read at the start (an invalid one stops the broker) and checked for changes every few seconds and after
each change of settings.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from concurrent.futures import Executor
from typing import Final

from ottla.base.broker_keys.security import TlsKeys
from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.base.listeners import Listener, listener_key
from ottla.base.logs import LogLimiter
from ottla.base.security import ANONYMOUS
from ottla.broker.security.listener_mechanisms import inter_broker_listener
from ottla.security.ssl_principal_mapper import NoMatchingRuleError, SslPrincipalMapper
from ottla.security.tls import EXPIRY_WARNING_DAYS, ReloadingTlsContext, TlsError, client_context, server_context

logger = logging.getLogger(__name__)

CHECK_INTERVAL_MS: Final = 3_000
EXPIRY_WARNING_SECONDS: Final = 86_400.0  # between two warnings about one certificate
TLS_PROTOCOLS: Final = ("SSL", "SASL_SSL")


class TlsListener:
    """TLS of one listener (implements ListenerTls)."""

    def __init__(self, settings: BrokerSettings, listener: Listener, clock: Clock) -> None:
        """Read the certificates. Raises TlsError."""
        self._listener = listener
        self._clock = clock
        keys = self.keys(settings)
        try:
            self._mapping = self._mapping_of(keys)
            self.live = ReloadingTlsContext(f"listener {listener.name}", keys, server_context)
        except TlsError as problem:
            raise TlsError(f"listener {listener.name}: {problem}") from None

    def keys(self, settings: BrokerSettings) -> TlsKeys:
        keys = keys_of_listener(settings, self._listener.name)
        own = listener_key(self._listener.name, "ssl.client.auth")
        if self._listener.protocol != "SASL_SSL" or own in settings.texts:
            return keys
        # as in Kafka: SASL_SSL listeners request client certificates only if their own setting says so
        return TlsKeys({**keys.texts, "ssl.client.auth": "none"})

    def check(self, settings: BrokerSettings) -> None:
        """Check whether these settings can be used. Raises TlsError."""
        keys = self.keys(settings)
        self._mapping_of(keys)
        self.live.check(keys)

    def refresh(self, settings: BrokerSettings) -> None:
        """Read changed files again; on errors everything stays unchanged."""
        keys = self.keys(settings)
        self.live.refresh(keys)
        with contextlib.suppress(TlsError):  # the request that changed the settings was rejected
            self._mapping = self._mapping_of(keys)

    def _mapping_of(self, keys: TlsKeys) -> SslPrincipalMapper | None:
        """Return the mapper of certificate names; None if a SASL login follows, because then certificates are not
        principals.
        """
        if self._listener.protocol == "SASL_SSL":
            return None
        try:
            return SslPrincipalMapper(keys.ssl_principal_mapping_rules)
        except NoMatchingRuleError as problem:
            raise TlsError(str(problem)) from None

    def context(self) -> ssl.SSLContext:
        return self.live.context()

    def principal(self, certificate: bytes | None) -> str:
        return self._mapping.principal(certificate) if self._mapping is not None else ANONYMOUS

    def days_left(self) -> float:
        certificate = self.live.certificate
        assert certificate is not None, "a listener has a certificate"
        return certificate.days_left(self._clock.now_ms())


class BrokerTls:
    """All TLS contexts of a broker."""

    check_interval_ms = CHECK_INTERVAL_MS

    def __init__(self, settings: BrokerSettings, clock: Clock, workers: Executor) -> None:
        """Read all certificates. Raises TlsError."""
        self._workers = workers
        self._warnings = LogLimiter(EXPIRY_WARNING_SECONDS)
        self._settings = settings
        self._check_lock = asyncio.Lock()
        self.listeners = {
            listener.name: TlsListener(settings, listener, clock)
            for listener in settings.listeners
            if listener.protocol in TLS_PROTOCOLS
        }
        between = inter_broker_listener(settings)
        self.outgoing: ReloadingTlsContext | None = None
        if between is not None and between.protocol in TLS_PROTOCOLS:
            self._inter_broker_listener = between.name
            self.outgoing = ReloadingTlsContext(
                f"connections to listener {between.name}", keys_of_listener(settings, between.name), client_context
            )

    def set_settings(self, settings: BrokerSettings) -> None:
        """Use other settings; the next check reads their files."""
        self._settings = settings

    def check(self, settings: BrokerSettings) -> None:
        """Check whether these settings can be used. Reads files, in a worker thread. Raises TlsError."""
        for listener in self.listeners.values():
            listener.check(settings)
        if self.outgoing is not None:
            self.outgoing.check(keys_of_listener(settings, self._inter_broker_listener))

    async def check_for_changes(self) -> None:
        """Check for changed files and settings, and for certificates that expire soon."""
        loop = asyncio.get_running_loop()
        async with self._check_lock:
            await loop.run_in_executor(self._workers, self._refresh, self._settings)
        self._warn_of_expiry(loop.time())

    def _refresh(self, settings: BrokerSettings) -> None:
        for listener in self.listeners.values():
            listener.refresh(settings)
        if self.outgoing is not None:
            self.outgoing.refresh(keys_of_listener(settings, self._inter_broker_listener))

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
    """Return the TLS settings of a listener, with the broker's as defaults."""
    texts = {}
    for name in TlsKeys.keys:
        text = settings.texts.get(listener_key(listener, name), settings.texts.get(name))
        if text is not None:
            texts[name] = text
    return TlsKeys(texts)
