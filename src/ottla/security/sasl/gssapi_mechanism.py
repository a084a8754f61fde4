"""GSSAPI: Kerberos logins (RFC 4752), on both sides of a connection.

Rules:
1. The GSSAPI context is established first. Then the broker offers security layers, and the client chooses one. As in
   Kafka the only offer is none: TLS provides encryption.
2. The principal is that of the Kerberos ticket. The authorization id of the client is ignored, as in Kafka:
   kafka-python sends the broker's name, Java its own, librdkafka none.
3. Only Kerberos tokens are accepted: an empty first token would request a negotiation of mechanisms (SPNEGO).
4. A login is valid until the broker requires another one (`connections.max.reauth.ms`), not until the ticket expires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ottla.security.jaas import AppConfigurationEntry
from ottla.security.kerberos import (
    KINIT,
    KerberosError,
    Krb5Options,
    RenewalTimes,
    TicketCache,
    acceptor_credentials,
    default_realm,
    kerberos_error,
    load_gssapi,
    new_context,
    service_name,
    tickets_of,
)
from ottla.security.kerberos_names import KerberosNameError, KerberosShortNamer
from ottla.security.sasl.exchange import Identity, LoginError

MECHANISM: Final = "GSSAPI"
NO_LAYER: Final = 1
OFFER: Final = bytes([NO_LAYER, 0, 0, 0])  # without a layer there is no maximum message size


def gssapi_server(module: AppConfigurationEntry, service: str | None, rules: Iterable[str]) -> GssapiServer:
    """Return the broker side, from a JAAS section, `sasl.kerberos.service.name` and `.principal.to.local.rules`."""
    options = Krb5Options.of(module)
    namer = KerberosShortNamer(rules, default_realm())
    return GssapiServer(options, service_name(options, service), namer)


class GssapiServer:
    """The shared state of the GSSAPI logins of one listener: its keytab and its name rules."""

    def __init__(self, options: Krb5Options, service: str | None, namer: KerberosShortNamer) -> None:
        """Check the keytab. Raises KerberosError if no login could succeed."""
        acceptor_credentials(options, service)
        self.options = options
        self.service = service
        self.namer = namer

    def exchange(self) -> GssapiServerExchange:
        return GssapiServerExchange(self)

    def __repr__(self) -> str:
        return f"<GssapiServer {self.options.principal or self.service}>"


class GssapiServerExchange:
    """The broker side of one login."""

    is_non_blocking = False
    is_refused = False

    def __init__(self, server: GssapiServer) -> None:
        self.server = server
        self.identity: Identity | None = None
        self._context: Any = None
        self._has_offered = False

    def claimed_user(self, token: bytes) -> str | None:  # noqa: ARG002 - a ticket names its user when it is opened
        return None

    def step(self, token: bytes) -> bytes:
        if self.identity is not None:
            raise LoginError("a token after the end of the login")
        try:
            if self._context is None or not self._context.complete:
                return self._accept(token)
            if not self._has_offered:
                if token:
                    raise LoginError("a token where the broker's offer of layers is due")
                return self._offer_layers()
            self._finish(token)
        except KerberosError as problem:
            raise LoginError(str(problem)) from None
        return b""

    def _accept(self, token: bytes) -> bytes:
        gssapi = load_gssapi()
        if not token:
            raise LoginError("an empty token where one of Kerberos is due")
        if self._context is None:
            credentials = acceptor_credentials(self.server.options, self.server.service)  # read again at every login
            self._context = new_context(creds=credentials, usage="accept")
        try:
            answer: bytes | None = self._context.step(token)
        except gssapi.exceptions.GSSError as problem:
            raise _login_error(problem) from None
        if not self._context.complete:
            return answer or b""
        if self._context.mech != gssapi.MechType.kerberos:
            raise LoginError(f"the client logs in by {self._context.mech}, not by Kerberos")
        return answer or self._offer_layers()

    def _offer_layers(self) -> bytes:
        self._has_offered = True
        offer: bytes = self._context.wrap(OFFER, False).message
        return offer

    def _finish(self, token: bytes) -> None:
        gssapi = load_gssapi()
        try:
            answer: bytes = self._context.unwrap(token).message
        except gssapi.exceptions.GSSError as problem:
            raise _login_error(problem) from None
        if len(answer) < len(OFFER) or answer[0] != NO_LAYER:
            raise LoginError("the client requires a security layer that was not offered: use TLS for that")
        principal = str(self._context.initiator_name)
        if "\\" in principal:  # a quoted / or @ would change the parts of the name
            raise LoginError(f"Malformed Kerberos name: {principal}")
        try:
            self.identity = Identity(f"User:{self.server.namer.short_name(principal)}")
        except KerberosNameError as problem:
            cure = "sasl.kerberos.principal.to.local.rules makes short names of principals"
            raise LoginError(f"{problem}: {cure}") from None

    def __repr__(self) -> str:
        return f"<GssapiServerExchange {self.identity or 'in progress'}>"


class GssapiClientExchange:
    """The client side of one login at the service `service` on `host`."""

    is_non_blocking = False

    def __init__(self, tickets: TicketCache, service: str, host: str) -> None:
        self.tickets = tickets
        self.target = f"{service}@{host}"
        self.is_done = False
        self._has_answered = False
        self._context: Any = None

    def first(self) -> bytes:
        gssapi = load_gssapi()
        try:
            credentials = self.tickets.credentials()
        except KerberosError as problem:
            raise LoginError(str(problem), str(problem)) from None
        flags = gssapi.RequirementFlag
        self._context = new_context(
            name=gssapi.Name(self.target, gssapi.NameType.hostbased_service),
            creds=credentials,
            mech=gssapi.MechType.kerberos,
            flags=flags.mutual_authentication | flags.integrity | flags.out_of_sequence_detection,
            usage="initiate",
        )
        return self._advance(None)

    def step(self, token: bytes) -> bytes:
        if self.is_done:
            raise LoginError("a token after the end of the login")
        if not self._context.complete:
            return self._advance(token)
        if self._has_answered:
            self.is_done = True
            if token:
                raise LoginError("the broker sends a token after the end of the login")
            return b""
        gssapi = load_gssapi()
        try:
            offer: bytes = self._context.unwrap(token).message
        except gssapi.exceptions.GSSError as problem:
            text = str(kerberos_error(problem, is_acceptor=False))
            raise LoginError(text, text) from None
        if len(offer) != len(OFFER) or not offer[0] & NO_LAYER:
            raise LoginError("the broker requires a security layer, which Kafka does not have")
        self._has_answered = True
        name = str(self._context.initiator_name).encode()
        answer: bytes = self._context.wrap(OFFER + name, False).message
        return answer

    def _advance(self, token: bytes | None) -> bytes:
        gssapi = load_gssapi()
        try:
            return self._context.step(token) or b""
        except gssapi.exceptions.GSSError as problem:
            text = str(kerberos_error(problem, is_acceptor=False))
            raise LoginError(text, text) from None

    def __repr__(self) -> str:
        return f"<GssapiClientExchange {self.target}{' done' if self.is_done else ''}>"


def gssapi_client(
    module: AppConfigurationEntry | None, properties: Mapping[str, str]
) -> Callable[[str], GssapiClientExchange]:
    """Return the client side, from a JAAS section or librdkafka's properties; without either, from the ticket cache."""
    options = Krb5Options.of(module) if module is not None else Krb5Options.of_properties(properties)
    service = service_name(options, properties.get("sasl.kerberos.service.name", "").strip())
    if service is None:
        raise KerberosError("No serviceName defined in either JAAS or Kafka config: set sasl.kerberos.service.name")
    tickets = tickets_of(options, RenewalTimes.of(properties), properties.get("sasl.kerberos.kinit.cmd", KINIT))
    return lambda host: GssapiClientExchange(tickets, service, host)


def _login_error(problem: Any) -> LoginError:
    return LoginError(str(kerberos_error(problem, is_acceptor=True)))
