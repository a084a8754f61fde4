"""Configuration of registry clients: address, login and TLS, from the properties of Confluent's clients.

Rules:
1. Only `http` and `https`, and no login in the URL, because URLs are printed.
2. Internal addresses (private, loopback) only if allowed. The checked address is the one that is connected to, since a
   name may resolve differently a moment later.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from ottla.operations.public_addresses import first_internal, look_up
from ottla.operations.schema_registry.errors import SchemaError

URL, LOGIN, TOKEN = "schema.registry.url", "basic.auth.user.info", "bearer.auth.token"
CA_FILE, CERTIFICATE_FILE, KEY_FILE = "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"
PREFIX = "schema.registry."  # of properties that apply only to the registry connection
OWN_PREFIXES = (PREFIX, "basic.auth.", "bearer.auth.")


class RegistryAddress(NamedTuple):
    """The address of a registry: one URL, or those of several nodes separated by commas."""

    url: str
    user: str | None = None
    password: str | None = None
    is_internal_allowed: bool = False
    token: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None

    def nodes(self) -> list[SplitResult]:
        """The URLs of the nodes. Raises SchemaError."""
        found = [_node(text.strip()) for text in self.url.split(",") if text.strip()]
        if not found:
            raise SchemaError("the address of a registry is empty: write http://host:8081")
        return found

    def authorization(self) -> str | None:
        if self.token is not None:
            return f"Bearer {self.token}"
        if self.user is None:
            return None
        login = f"{self.user}:{self.password or ''}".encode()
        return f"Basic {base64.b64encode(login).decode()}"

    def tls(self) -> ssl.SSLContext:
        """The TLS settings. Raises SchemaError."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.key_file)
        except (OSError, ssl.SSLError) as problem:
            raise SchemaError(f"the certificates for the registry cannot be read: {problem}") from None
        return context

    def __repr__(self) -> str:
        return f"<RegistryAddress {self.url}>"  # without the password


def address_of(
    properties: Mapping[str, str], url: str | None = None, *, is_internal_allowed: bool = True
) -> RegistryAddress | None:
    """The address from the properties or `url`; None if neither names a registry."""
    url = url or properties.get(URL)
    if not url:
        return None

    def given(name: str) -> str | None:
        return properties.get(PREFIX + name) or properties.get(name)

    user, has_login, password = (given(LOGIN) or "").partition(":")
    return RegistryAddress(
        url,
        user=user if has_login else None,
        password=password if has_login else None,
        is_internal_allowed=is_internal_allowed,
        token=given(TOKEN),
        # Only with the prefix: without it these are the broker's settings.
        ca_file=properties.get(PREFIX + CA_FILE),
        certificate_file=properties.get(PREFIX + CERTIFICATE_FILE),
        key_file=properties.get(PREFIX + KEY_FILE),
    )


def without_registry(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties without those of the registry, which Kafka clients would reject."""
    return {name: value for name, value in properties.items() if not name.startswith(OWN_PREFIXES)}


def checked_address(host: str, port: int, is_internal_allowed: bool) -> tuple[str, int]:
    """The resolved address, if it is allowed. Raises SchemaError, OSError."""
    found = look_up(host, port)
    if not found:
        raise SchemaError(f"{host} has no address")
    inside = None if is_internal_allowed else first_internal(found)
    if inside is not None:
        raise SchemaError(f"{host} is {inside}, an internal address: allow such registries first")
    return found[0], port


def _node(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 (it is read to be checked)
    except ValueError:
        raise SchemaError(f"{text!r} is not the address of a registry: write http://host:8081") from None
    if "@" in parts.netloc:
        raise SchemaError(f"put the login of a registry into {LOGIN}, not into its address")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SchemaError(f"{text!r} is not the address of a registry: write http://host:8081")
    return parts
