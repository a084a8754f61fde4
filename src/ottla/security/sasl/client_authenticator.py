"""The client side of SASL logins: the login of its properties, and the requests of one authentication.

The properties have Java's names (JAAS), or librdkafka's for a name and a password. Each mechanism is imported on first
use: tools without a login start as fast as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from socket import socket
from typing import Final, NamedTuple

from ottla.base.errors import Error
from ottla.protocol.messages.credentials import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ottla.security.client_protocol import TOKEN_PROPERTY, security_protocol
from ottla.security.jaas import AppConfigurationEntry, JaasError, client_module
from ottla.security.sasl.exchange import ClientExchange, LoginError

DEFAULT_MECHANISM: Final = "GSSAPI"

MakeClientExchange = Callable[[str], ClientExchange]
"""Takes the host name of the broker."""


class ClientLogin(NamedTuple):
    """A mechanism, and a factory of its client exchange for each connection."""

    mechanism: str
    make: MakeClientExchange

    def __repr__(self) -> str:
        return f"<ClientLogin {self.mechanism}>"


class ClientMechanismConfig(NamedTuple):
    """The inputs for the client side of a mechanism."""

    mechanism: str
    properties: Mapping[str, str]
    module: AppConfigurationEntry | None
    connect: Callable[..., socket] | None = None  # opens connections to identity providers; None: the default

    def option(self, name: str, *properties: str) -> str | None:
        """Return an option of the login module, otherwise the first of these properties."""
        if self.module is not None and name in self.module.options:
            return self.module.options[name]
        return next((self.properties[key] for key in properties if key in self.properties), None)

    def required(self, name: str, *properties: str) -> str:
        value = self.option(name, *properties)
        if value is None:
            raise JaasError(f"{self.mechanism} needs a {name}: set it in sasl.jaas.config, or {properties[0]}")
        return value


def client_login(properties: Mapping[str, str], connect: Callable[..., socket] | None = None) -> ClientLogin | None:
    """Return the login of these properties, None without one. Raises JaasError."""
    if not security_protocol(properties).startswith("SASL_"):
        return None
    return make_login(mechanism_of(properties), properties, connect=connect)


def mechanism_of(properties: Mapping[str, str]) -> str:
    """Return the mechanism, from Java's property or librdkafka's."""
    wanted = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or DEFAULT_MECHANISM
    return wanted.strip().upper()


def make_login(
    mechanism: str,
    properties: Mapping[str, str],
    module: AppConfigurationEntry | None = None,
    connect: Callable[..., socket] | None = None,
) -> ClientLogin:
    """Return the login for a known mechanism, and a login module if the caller has found it already."""
    make = CLIENTS.get(mechanism)
    if make is None:
        raise JaasError(f"sasl.mechanism={mechanism} is not supported; supported are {', '.join(sorted(CLIENTS))}")
    if module is None:
        module = client_module(properties, mechanism)
    return ClientLogin(mechanism, make(ClientMechanismConfig(mechanism, properties, module, connect)))


def make_plain(parts: ClientMechanismConfig) -> MakeClientExchange:
    from ottla.security.sasl.plain import PlainClient  # noqa: PLC0415

    name, password = parts.required("username", "sasl.username"), parts.required("password", "sasl.password")
    return lambda _: PlainClient(name, password)


def make_scram(parts: ClientMechanismConfig) -> MakeClientExchange:
    from ottla.security.sasl.scram import TOKEN_EXTENSION, ScramClient  # noqa: PLC0415

    name, password = parts.required("username", "sasl.username"), parts.required("password", "sasl.password")
    is_token = (parts.option(TOKEN_EXTENSION, TOKEN_PROPERTY) or "").lower() == "true"
    return lambda _: ScramClient(parts.mechanism, name, password, is_token=is_token)


def make_gssapi(parts: ClientMechanismConfig) -> MakeClientExchange:
    from ottla.security.kerberos import KerberosError  # noqa: PLC0415 (only who has Kerberos pays for it)
    from ottla.security.sasl.gssapi_mechanism import gssapi_client  # noqa: PLC0415

    try:
        return gssapi_client(parts.module, parts.properties)
    except KerberosError as problem:
        raise JaasError(str(problem)) from None


def make_oauthbearer(parts: ClientMechanismConfig) -> MakeClientExchange:
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


CLIENTS: Final[Mapping[str, Callable[[ClientMechanismConfig], MakeClientExchange]]] = {
    "GSSAPI": make_gssapi,
    "PLAIN": make_plain,
    "SCRAM-SHA-256": make_scram,
    "SCRAM-SHA-512": make_scram,
    "OAUTHBEARER": make_oauthbearer,
}


HANDSHAKE_VERSION: Final = 1  # the tokens that follow are in requests
STEPS_MAX: Final = 20


class SaslAuthenticationError(LoginError):
    """The broker's error code, its message, and its enabled mechanisms."""

    def __init__(self, error_code: int, said: str | None = None, offered: tuple[str, ...] = ()) -> None:
        super().__init__(said or f"error {error_code}")
        self.error_code = error_code
        self.error_message = said
        self.enabled_mechanisms = offered


class SaslClientAuthenticator:
    """One login on one connection: the requests to send in order, and the handling of responses.

    Pure: the caller sends the requests and passes the responses (client/login.py for tools,
    broker/security/inter_broker_login.py for brokers). SaslHandshake comes first, then SaslAuthenticate until the
    mechanism is done, with a limit on the number of steps. An error of the broker is a SaslAuthenticationError; an
    error of the mechanism is a LoginError. `begin` and `step` may block, unless `is_non_blocking`.
    """

    def __init__(self, login: ClientLogin, host: str) -> None:
        self.mechanism = login.mechanism
        self.lifetime_ms = 0  # the session lifetime after the login; 0 is unlimited
        self._client = login.make(host)
        self._steps = 0

    @property
    def is_non_blocking(self) -> bool:
        return self._client.is_non_blocking

    def handshake(self) -> SaslHandshakeRequest:
        return SaslHandshakeRequest(mechanism=self.mechanism)

    def take_handshake(self, answer: SaslHandshakeResponse) -> None:
        """Process the handshake response. Raises SaslAuthenticationError."""
        if answer.error_code != Error.NONE:
            raise SaslAuthenticationError(answer.error_code, None, tuple(sorted(answer.mechanisms)))

    def begin(self) -> SaslAuthenticateRequest:
        """Return the first token. Raises LoginError."""
        return SaslAuthenticateRequest(auth_bytes=self._client.first())

    def step(self, answer: SaslAuthenticateResponse) -> SaslAuthenticateRequest | None:
        """Return the next request, None if the login is complete. Raises LoginError."""
        if answer.error_code != Error.NONE:
            raise SaslAuthenticationError(answer.error_code, answer.error_message)
        token = self._client.step(bytes(answer.auth_bytes))
        if self._client.is_done:
            self.lifetime_ms = answer.session_lifetime_ms
            return None
        self._steps += 1
        if self._steps >= STEPS_MAX:
            raise LoginError("the login has too many steps")
        return SaslAuthenticateRequest(auth_bytes=token)

    def __repr__(self) -> str:
        return f"<SaslClientAuthenticator {self.mechanism} after {self._steps} steps>"
