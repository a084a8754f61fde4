"""TLS of one broker: a context for each listener that speaks it, and one for connections to other brokers.

Certificates are read when the broker starts (what is wrong with them stops it) and looked at every few seconds.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterator
from concurrent.futures import Executor
from functools import partial
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

    def __init__(self, live: LiveContext, mapping: PrincipalMapping | None, clock: Clock) -> None:
        """Without a mapping certificates are no principals: a login follows."""
        self.live = live
        self._mapping = mapping
        self._clock = clock

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
        self.listeners = {
            listener.name: _listener(settings, listener, clock)
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

    async def look(self) -> None:
        """Whether any file has changed, or will soon be of no use."""
        loop = asyncio.get_running_loop()
        for live, keys in self._all():
            await loop.run_in_executor(self._workers, live.refresh, keys)
        self._warn_of_expiry(loop.time())

    def _all(self) -> Iterator[tuple[LiveContext, TlsKeys]]:
        for name, listener in self.listeners.items():
            yield listener.live, keys_of_listener(self._settings, name)
        if self.outgoing is not None:
            yield self.outgoing, keys_of_listener(self._settings, self._between)

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


def _listener(settings: BrokerSettings, listener: Listener, clock: Clock) -> TlsListener:
    keys = keys_of_listener(settings, listener.name)
    has_login = listener.protocol == "SASL_SSL"
    client_auth = None
    if has_login and listener_key(listener.name, "ssl.client.auth") not in settings.texts:
        client_auth = "none"  # as with Kafka: where a login follows, certificates must be asked for by name
    try:
        mapping = None if has_login else PrincipalMapping(keys.ssl_principal_mapping_rules)
        live = LiveContext(f"listener {listener.name}", keys, partial(server_context, client_auth=client_auth))
    except (TlsError, MappingError) as problem:
        raise TlsError(f"listener {listener.name}: {problem}") from None
    return TlsListener(live, mapping, clock)


def keys_of_listener(settings: BrokerSettings, listener: str) -> TlsKeys:
    """The broker's, and above them what the listener has for itself."""
    texts = {}
    for name in TlsKeys.keys:
        text = settings.texts.get(listener_key(listener, name), settings.texts.get(name))
        if text is not None:
            texts[name] = text
    return TlsKeys(texts)
