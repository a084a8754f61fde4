"""What a ZooKeeper server is told about logins and TLS, looked at before Java is: it would tell in tracebacks."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final

from ottla.base.broker_keys.tls import TlsKeys
from ottla.cli.terminal import UsageError
from ottla.security.jaas import JaasError, read_sections
from ottla.security.tls import TlsError, client_context

SECTION: Final = "Server"


def check_users(path: str) -> None:
    """Raises UsageError unless the file says who may log in."""
    try:
        sections = read_sections(path)
    except JaasError as problem:
        raise UsageError(f"--jaas: {problem}") from None
    if SECTION not in sections:
        raise UsageError(
            f"--jaas: {path} has no section {SECTION}: Server {{ org.apache.zookeeper.server.auth.DigestLoginModule "
            'required user_kafka="PASSWORD"; };'
        )


def probe_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """For a look at our own server over TLS, with its own certificate. Raises UsageError for a key that is no use."""
    path = properties.get("ssl.keyStore.location")
    if not path:
        raise UsageError("a port for TLS needs a key: set ssl.keyStore.location in the file (--config FILE)")
    password = properties.get("ssl.keyStore.password", "")
    texts = {"ssl.keystore.location": path, "ssl.endpoint.identification.algorithm": ""}
    if password:
        texts |= {"ssl.keystore.password": password, "ssl.key.password": password}
    try:
        context = client_context(TlsKeys(texts)).context
    except TlsError as problem:
        raise UsageError(f"ssl.keyStore.location: {problem}") from None
    context.verify_mode = ssl.CERT_NONE  # nothing is told to it, and it is asked only whether it serves
    return context
