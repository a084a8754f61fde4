"""Where a registry is and how one logs in there, out of the properties that Confluent's clients have.

Rules:
1. `http` and `https` only, no login inside of the address: it would be shown wherever the address is.
2. Addresses inside (private, loopback) only if that is allowed, and it is the checked address that is connected to, not
   what the name means a moment later.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from ottla.operations.public_addresses import first_inside, look_up
from ottla.operations.schema_registry.errors import SchemaError

URL, LOGIN, TOKEN = "schema.registry.url", "basic.auth.user.info", "bearer.auth.token"
CA_FILE, CERTIFICATE_FILE, KEY_FILE = "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"
PREFIX = "schema.registry."  # of properties that are meant for the registry's connection only
OWN_PREFIXES = (PREFIX, "basic.auth.", "bearer.auth.")


class RegistryAddress(NamedTuple):
    """Where a registry is: one address, or several of its nodes with commas between."""

    url: str
    user: str | None = None
    password: str | None = None
    is_inside_allowed: bool = False
    token: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None

    def nodes(self) -> list[SplitResult]:
        """Raises SchemaError."""
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
        """Raises SchemaError."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.key_file)
        except (OSError, ssl.SSLError) as problem:
            raise SchemaError(f"the certificates for the registry cannot be read: {problem}") from None
        return context

    def __repr__(self) -> str:
        return f"<RegistryAddress {self.url}>"  # a password is never shown


def address_of(properties: Mapping[str, str], url: str | None = None, *, inside: bool = True) -> RegistryAddress | None:
    """None if neither the properties nor `url` name a registry."""
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
        is_inside_allowed=inside,
        token=given(TOKEN),
        # Only with the prefix: without it they are those of the brokers.
        ca_file=properties.get(PREFIX + CA_FILE),
        certificate_file=properties.get(PREFIX + CERTIFICATE_FILE),
        key_file=properties.get(PREFIX + KEY_FILE),
    )


def without_registry(properties: Mapping[str, str]) -> dict[str, str]:
    """Those that are not of a registry, for clients of brokers, which would complain about the others."""
    return {name: value for name, value in properties.items() if not name.startswith(OWN_PREFIXES)}


def checked_address(host: str, port: int, is_inside_allowed: bool) -> tuple[str, int]:
    """The address that a name means, if it may be talked to. Raises SchemaError, OSError."""
    found = look_up(host, port)
    if not found:
        raise SchemaError(f"{host} has no address")
    inside = None if is_inside_allowed else first_inside(found)
    if inside is not None:
        raise SchemaError(f"{host} is {inside}, an address inside: allow such registries first")
    return found[0], port


def _node(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 (it is read to be checked)
    except ValueError:
        raise SchemaError(f"{text!r} is no address of a registry: write http://host:8081") from None
    if "@" in parts.netloc:
        raise SchemaError(f"the login of a registry stands in {LOGIN}, not in its address")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SchemaError(f"{text!r} is no address of a registry: write http://host:8081")
    return parts
