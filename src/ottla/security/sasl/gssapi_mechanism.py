"""GSSAPI: logins by Kerberos (RFC 4752), on both sides of a connection.

Rules:
1. First the context of GSSAPI is made, then the broker offers layers of protection and the client takes one. Ours and
   Kafka's offer is none: whoever wants encryption has TLS.
2. Who somebody is, Kerberos says. The name that a client asks to act as is not looked at, as in Kafka: kafka-python
   sends the broker's name there, Java its own, librdkafka none.
3. Only tokens of Kerberos itself: an empty first token would ask for a negotiation of mechanisms (SPNEGO).
4. A login is good until the broker asks for another one (`connections.max.reauth.ms`), not until the ticket ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ottla.security.jaas import LoginModule
from ottla.security.kerberos import (
    KINIT,
    ClientTickets,
    KerberosError,
    Krb5Options,
    RenewalTimes,
    acceptor_credentials,
    default_realm,
    library,
    new_context,
    service_name,
    tickets_of,
    told,
)
from ottla.security.kerberos_names import KerberosNameError, ShortNamer
from ottla.security.sasl.mechanism import Identity, LoginError

MECHANISM: Final = "GSSAPI"
NO_LAYER: Final = 1
OFFER: Final = bytes([NO_LAYER, 0, 0, 0])  # without a layer there is no largest message


def gssapi_server(module: LoginModule, service: str | None, rules: Iterable[str]) -> GssapiServer:
    """The broker's side, of a JAAS section and of `sasl.kerberos.service.name` and `.principal.to.local.rules`."""
    options = Krb5Options.of(module)
    namer = ShortNamer(rules, default_realm())
    return GssapiServer(options, service_name(options, service), namer)


class GssapiServer:
    """What the GSSAPI logins of one listener have in common: its keytab and its rules for names."""

    def __init__(self, options: Krb5Options, service: str | None, namer: ShortNamer) -> None:
        """Raises KerberosError if nobody could ever log in with this."""
        acceptor_credentials(options, service)
        self.options = options
        self.service = service
        self.namer = namer

    def exchange(self) -> GssapiServerExchange:
        return GssapiServerExchange(self)

    def __repr__(self) -> str:
        return f"<GssapiServer {self.options.principal or self.service}>"


class GssapiServerExchange:
    """The broker's side of one login."""

    is_quick = False

    def __init__(self, server: GssapiServer) -> None:
        self.server = server
        self.identity: Identity | None = None
        self._context: Any = None
        self._has_offered = False

    def step(self, token: bytes) -> bytes:
        if self.identity is not None:
            raise LoginError("a token after the end of the login")
        try:
            if self._context is None or not self._context.complete:
                return self._accept(token)
            if not self._has_offered:
                if token:
                    raise LoginError("a token where the broker's offer of layers is due")
                return self._offer()
            self._finish(token)
        except KerberosError as problem:
            raise LoginError(str(problem)) from None
        return b""

    def _accept(self, token: bytes) -> bytes:
        gssapi = library()
        if not token:
            raise LoginError("an empty token where one of Kerberos is due")
        if self._context is None:
            credentials = acceptor_credentials(self.server.options, self.server.service)  # read anew at every login
            self._context = new_context(creds=credentials, usage="accept")
        try:
            answer: bytes | None = self._context.step(token)
        except gssapi.exceptions.GSSError as problem:
            raise _refusal(problem) from None
        if not self._context.complete:
            return answer or b""
        if self._context.mech != gssapi.MechType.kerberos:
            raise LoginError(f"the client logs in by {self._context.mech}, not by Kerberos")
        return answer or self._offer()

    def _offer(self) -> bytes:
        self._has_offered = True
        offer: bytes = self._context.wrap(OFFER, False).message
        return offer

    def _finish(self, token: bytes) -> None:
        gssapi = library()
        try:
            answer: bytes = self._context.unwrap(token).message
        except gssapi.exceptions.GSSError as problem:
            raise _refusal(problem) from None
        if len(answer) < len(OFFER) or answer[0] != NO_LAYER:
            raise LoginError("the client wants a layer of protection that was not offered: use TLS for that")
        principal = str(self._context.initiator_name)
        if "\\" in principal:  # a quoted / or @ would make other parts of the name than Kerberos means
            raise LoginError(f"Malformed Kerberos name: {principal}")
        try:
            self.identity = Identity(f"User:{self.server.namer.short_name(principal)}")
        except KerberosNameError as problem:
            cure = "sasl.kerberos.principal.to.local.rules makes short names of principals"
            raise LoginError(f"{problem}: {cure}") from None

    def __repr__(self) -> str:
        return f"<GssapiServerExchange {self.identity or 'under way'}>"


class GssapiClientExchange:
    """The side of whoever logs in at `host`, whose service is `service`."""

    is_quick = False

    def __init__(self, tickets: ClientTickets, service: str, host: str) -> None:
        self.tickets = tickets
        self.target = f"{service}@{host}"
        self.is_done = False
        self._has_answered = False
        self._context: Any = None

    def first(self) -> bytes:
        gssapi = library()
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
        gssapi = library()
        try:
            offer: bytes = self._context.unwrap(token).message
        except gssapi.exceptions.GSSError as problem:
            text = str(told(problem, is_acceptor=False))
            raise LoginError(text, text) from None
        if len(offer) != len(OFFER) or not offer[0] & NO_LAYER:
            raise LoginError("the broker insists on a layer of protection, which Kafka does not have")
        self._has_answered = True
        name = str(self._context.initiator_name).encode()
        answer: bytes = self._context.wrap(OFFER + name, False).message
        return answer

    def _advance(self, token: bytes | None) -> bytes:
        gssapi = library()
        try:
            return self._context.step(token) or b""
        except gssapi.exceptions.GSSError as problem:
            text = str(told(problem, is_acceptor=False))
            raise LoginError(text, text) from None

    def __repr__(self) -> str:
        return f"<GssapiClientExchange {self.target}{' done' if self.is_done else ''}>"


def gssapi_client(module: LoginModule | None, properties: Mapping[str, str]) -> Callable[[str], GssapiClientExchange]:
    """The client's side, of a JAAS section or of librdkafka's properties; without either, of the ticket cache."""
    options = Krb5Options.of(module) if module is not None else Krb5Options.of_properties(properties)
    service = service_name(options, properties.get("sasl.kerberos.service.name", "").strip())
    if service is None:
        raise KerberosError("No serviceName defined in either JAAS or Kafka config: set sasl.kerberos.service.name")
    tickets = tickets_of(options, RenewalTimes.of(properties), properties.get("sasl.kerberos.kinit.cmd", KINIT))
    return lambda host: GssapiClientExchange(tickets, service, host)


def _refusal(problem: Any) -> LoginError:
    return LoginError(str(told(problem, is_acceptor=True)))
