"""Who may read the metrics: TLS and a password (HTTP Basic), as the settings `ottla.metrics.*` say.

The certificate is read when the broker starts, and again when its file has changed: connections that are made then get
the new one. Whether an endpoint may do without is decided in base/broker_checks.py.
"""

from __future__ import annotations

import ssl
from base64 import b64encode
from hmac import compare_digest

from ottla.base.broker_settings import BrokerSettings
from ottla.broker.monitoring.start import MetricsAccessError


class BasicLogin:
    """One name with its password."""

    def __init__(self, name: str, password: str) -> None:
        self._expected = b64encode(f"{name}:{password}".encode())

    def admits(self, header: str) -> bool:
        """Whether this is what a client that knows the password sends in `Authorization`."""
        scheme, _, token = header.partition(" ")
        given = token.strip().encode("latin-1", "replace")
        return compare_digest(given, self._expected) and scheme.lower() == "basic"

    def __repr__(self) -> str:
        return "<BasicLogin>"


class MetricsTls:
    """The endpoint's certificate."""

    def __init__(self, settings: BrokerSettings) -> None:
        """Raises MetricsAccessError."""
        from ottla.base.broker_keys.tls import TlsKeys  # noqa: PLC0415 (most endpoints do without TLS)
        from ottla.security.live_context import LiveContext  # noqa: PLC0415
        from ottla.security.tls import TlsError, server_context  # noqa: PLC0415

        texts = {
            "ssl.keystore.location": settings.ottla_metrics_ssl_keystore_location,
            "ssl.keystore.password": settings.ottla_metrics_ssl_keystore_password,
            "ssl.key.password": settings.ottla_metrics_ssl_key_password,
        }
        self._keys = TlsKeys({name: text for name, text in texts.items() if text is not None})
        try:
            self._live = LiveContext("the metrics endpoint", self._keys, server_context)
        except TlsError as problem:
            raise MetricsAccessError(f"the metrics endpoint cannot use its certificate: {problem}") from None

    def context(self) -> ssl.SSLContext:
        return self._live.context()

    def refresh(self) -> None:
        """Read the file again if it has changed; a worker runs this."""
        self._live.refresh(self._keys)

    def __repr__(self) -> str:
        return f"<MetricsTls {self._live!r}>"


def metrics_login(settings: BrokerSettings) -> BasicLogin | None:
    name, password = settings.ottla_metrics_username, settings.ottla_metrics_password
    return BasicLogin(name, password) if name is not None and password is not None else None


def metrics_tls(settings: BrokerSettings) -> MetricsTls | None:
    return MetricsTls(settings) if settings.ottla_metrics_ssl_keystore_location else None
