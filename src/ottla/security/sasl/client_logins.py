"""How a client logs in, from its properties: Java's names (JAAS), and those of librdkafka for a name and a password.

Each mechanism is loaded when somebody uses it: tools that need no login start as fast as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from socket import socket
from typing import Final, NamedTuple

from ottla.security.client_protocol import TOKEN_PROPERTY, client_protocol
from ottla.security.jaas import JaasError, LoginModule, client_module
from ottla.security.sasl.mechanism import ClientExchange

DEFAULT_MECHANISM: Final = "GSSAPI"

MakeClientExchange = Callable[[str], ClientExchange]
"""Takes the name of the host to log in at."""


class ClientLogin(NamedTuple):
    """A mechanism, and the client's side of it for each connection."""

    mechanism: str
    make: MakeClientExchange

    def __repr__(self) -> str:
        return f"<ClientLogin {self.mechanism}>"


class ClientParts(NamedTuple):
    """What the client's side of a mechanism may be made of."""

    mechanism: str
    properties: Mapping[str, str]
    module: LoginModule | None
    connect: Callable[..., socket] | None = None  # to identity providers; None: as anybody would

    def option(self, name: str, *properties: str) -> str | None:
        """An option of the login module, else the first of these properties."""
        if self.module is not None and name in self.module.options:
            return self.module.options[name]
        return next((self.properties[key] for key in properties if key in self.properties), None)

    def needed(self, name: str, *properties: str) -> str:
        value = self.option(name, *properties)
        if value is None:
            raise JaasError(f"{self.mechanism} needs a {name}: set it in sasl.jaas.config, or {properties[0]}")
        return value


def client_login(properties: Mapping[str, str], connect: Callable[..., socket] | None = None) -> ClientLogin | None:
    """The login that these properties ask for, None if they ask for none. Raises JaasError."""
    if not client_protocol(properties).startswith("SASL_"):
        return None
    return make_login(mechanism_of(properties), properties, connect=connect)


def mechanism_of(properties: Mapping[str, str]) -> str:
    """Java's name of the property, or librdkafka's."""
    wanted = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or DEFAULT_MECHANISM
    return wanted.strip().upper()


def make_login(
    mechanism: str,
    properties: Mapping[str, str],
    module: LoginModule | None = None,
    connect: Callable[..., socket] | None = None,
) -> ClientLogin:
    """The same for a mechanism that is known, and a login module if somebody else has found it."""
    make = CLIENTS.get(mechanism)
    if make is None:
        raise JaasError(f"sasl.mechanism={mechanism} is not known here; there are {', '.join(sorted(CLIENTS))}")
    if module is None:
        module = client_module(properties, mechanism)
    return ClientLogin(mechanism, make(ClientParts(mechanism, properties, module, connect)))


def make_plain(parts: ClientParts) -> MakeClientExchange:
    from ottla.security.sasl.plain import PlainClient  # noqa: PLC0415

    name, password = parts.needed("username", "sasl.username"), parts.needed("password", "sasl.password")
    return lambda _: PlainClient(name, password)


def make_scram(parts: ClientParts) -> MakeClientExchange:
    from ottla.security.sasl.scram import TOKEN_EXTENSION, ScramClient  # noqa: PLC0415

    name, password = parts.needed("username", "sasl.username"), parts.needed("password", "sasl.password")
    is_token = (parts.option(TOKEN_EXTENSION, TOKEN_PROPERTY) or "").lower() == "true"
    return lambda _: ScramClient(parts.mechanism, name, password, is_token=is_token)


def make_gssapi(parts: ClientParts) -> MakeClientExchange:
    from ottla.security.kerberos import KerberosError  # noqa: PLC0415 (only who has Kerberos pays for it)
    from ottla.security.sasl.gssapi_mechanism import gssapi_client  # noqa: PLC0415

    try:
        return gssapi_client(parts.module, parts.properties)
    except KerberosError as problem:
        raise JaasError(str(problem)) from None


def make_oauthbearer(parts: ClientParts) -> MakeClientExchange:
    from ottla.security.oauth.token_source import make_source  # noqa: PLC0415
    from ottla.security.sasl.oauthbearer import EXTENSION_PREFIX, OAuthClient  # noqa: PLC0415

    options = parts.module.options if parts.module is not None else {}
    try:
        source = make_source(options, parts.properties, connect=parts.connect)
    except ValueError as problem:
        raise JaasError(str(problem)) from None
    extensions = {
        name.removeprefix(EXTENSION_PREFIX): value
        for name, value in options.items()
        if name.startswith(EXTENSION_PREFIX)
    }
    return lambda _: OAuthClient(source.token, extensions)


CLIENTS: Final[Mapping[str, Callable[[ClientParts], MakeClientExchange]]] = {
    "GSSAPI": make_gssapi,
    "PLAIN": make_plain,
    "SCRAM-SHA-256": make_scram,
    "SCRAM-SHA-512": make_scram,
    "OAUTHBEARER": make_oauthbearer,
}
