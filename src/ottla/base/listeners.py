"""Parsing of `listeners`, `advertised.listeners` and the protocol map, by Kafka's rules.

Pure but for own_host_name(). Errors raise BadValueError with Kafka's message.

Settings of single listeners: `listener.name.internal.max.connections=50`.

The listener's name is in lower case. SASL keys may also have a mechanism prefix, in lower case:
`listener.name.internal.plain.sasl.jaas.config`. All can be changed while the broker runs; SASL and TLS keys only per
broker.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Final, NamedTuple

from ottla.base.setting_types import BadValueError, trim

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PORT_MAX: Final = 65_535
LOOPBACK: Final = "127.0.0.1"
ALL_INTERFACES: Final = "0.0.0.0"  # noqa: S104 - the address that may not be advertised

_ENDPOINT: Final = r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)"


class Listener(NamedTuple):
    """One address of the broker; an empty host means all of the machine's interfaces."""

    name: str
    host: str
    port: int
    protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """`listener.security.protocol.map`: security protocols by listener name."""
    protocols: dict[str, str] = {}
    for item in filter(None, map(trim, text.split(","))):
        name, separator, protocol = item.rpartition(":")
        if not separator:
            raise BadValueError(
                f"Error parsing configuration property 'listener.security.protocol.map': '{item}' is not NAME:PROTOCOL"
            )
        if trim(protocol).upper() not in PROTOCOLS:
            raise BadValueError(
                f"Invalid security protocol `{trim(protocol)}` defined in listener.security.protocol.map"
            )
        protocols[trim(name).upper()] = trim(protocol).upper()
    return protocols


def parse_listeners(
    items: Collection[str],
    protocols: Mapping[str, str],
    not_opened: Collection[str] = (),
    *,
    is_advertised: bool = False,
) -> tuple[Listener, ...]:
    """Endpoints of the form NAME://host:port, without those in `not_opened` (controller listeners)."""
    found = [_parse_listener(item, protocols, not_opened, items) for item in items]
    problem = _name_problem(found, items) or (None if is_advertised else _port_problem(found, items))
    if problem is not None:
        raise BadValueError(_while_creating(items, problem))
    return tuple(listener for listener in found if listener.name not in not_opened)


def advertised_problem(advertised: Iterable[Listener], bound: Iterable[Listener]) -> str | None:
    """Kafka's message about listeners that clients could not connect to, or None."""
    names = [listener.name for listener in bound]
    for listener in advertised:
        if listener.host == ALL_INTERFACES:
            return (
                f"advertised.listeners cannot use the nonroutable meta-address {ALL_INTERFACES}. "
                f"Use a routable IP address: set advertised.listeners={listener.name}://HOST:{listener.port} "
                "with a HOST that clients can reach"
            )
        if listener.name not in names:
            return (
                f"advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. "
                f"Found {listener.name}. The valid options based on the current configuration are {','.join(names)}"
            )
    return None


@cache
def own_host_name() -> tuple[str, str | None]:
    """The host name by which clients can reach this machine, and a warning if none resolves."""
    import socket  # noqa: PLC0415 - settings must load without the network modules

    name = socket.gethostname()
    try:
        addresses = socket.getaddrinfo(name, None, flags=socket.AI_CANONNAME)
    except OSError:
        return LOOPBACK, (
            f"this machine's host name {name!r} does not resolve: clients get {LOOPBACK}; "
            "set advertised.listeners to be reached from other machines"
        )
    return addresses[0][3] or name, None


def _parse_listener(
    item: str, protocols: Mapping[str, str], not_opened: Collection[str], items: Collection[str]
) -> Listener:
    match = re.fullmatch(_ENDPOINT, trim(item))
    if match is None:
        raise BadValueError(_while_creating(items, f"Unable to parse {item} to a broker endpoint"))
    name, host, port = match[1].upper(), match[2], int(match[3][:9])
    if name not in protocols and name not in not_opened:
        raise BadValueError(_while_creating(items, f"No security protocol defined for listener {name}"))
    if not 0 <= port <= PORT_MAX:
        raise BadValueError(_while_creating(items, f"port {match[3]} is not between 0 and {PORT_MAX}"))
    return Listener(name, host, port, protocols.get(name, "PLAINTEXT"))


def _name_problem(found: list[Listener], items: Collection[str]) -> str | None:
    if len({listener.name for listener in found}) == len(found):
        return None
    return f"Each listener must have a different name, listeners: {_in_brackets(items)}"


def _port_problem(found: list[Listener], items: Collection[str]) -> str | None:
    """Ports must differ, except that IPv4 and IPv6 may share one."""
    shared = [
        port for port, count in Counter(listener.port for listener in found if listener.port).items() if count > 1
    ]
    for port in shared:
        versions = [_ip_version(listener.host) for listener in found if listener.port == port]
        where = f"listeners: {_in_brackets(items)}"
        if not any(versions):
            return f"Each listener must have a different port, {where}"
        if len(versions) != 2 or None in versions:
            return (
                "Each listener must have a different port unless exactly one listener has "
                f"an IPv4 address and the other IPv6 address, {where}, port: {port}"
            )
        if versions[0] == versions[1]:
            return (
                f"If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, {where}, "
                f"port: {port}"
            )
    return None


def _ip_version(host: str) -> int | None:
    from ipaddress import ip_address  # noqa: PLC0415 - slow to load and hardly ever needed

    try:
        return ip_address(host.partition("%")[0]).version
    except ValueError:
        return None


def _while_creating(items: Collection[str], problem: str) -> str:
    return f"Error creating broker listeners from '{_in_brackets(items)}': {problem}"


def _in_brackets(items: Collection[str]) -> str:
    return f"[{', '.join(items)}]"


PREFIX: Final = "listener.name."
CHANGEABLE: Final = frozenset({"max.connection.creation.rate", "max.connections", "num.network.threads"})

SASL_KEYS: Final = frozenset(
    {
        "connections.max.reauth.ms",
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal.to.local.rules",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.server.max.receive.size",
    }
)
TLS_KEYS: Final = frozenset(
    {
        "ssl.allow.dn.changes",
        "ssl.allow.san.changes",
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.principal.mapping.rules",
        "ssl.protocol",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
    }
)
MECHANISMS: Final = frozenset({"gssapi", "oauthbearer", "plain", "scram-sha-256", "scram-sha-512"})


class ListenerKey(NamedTuple):
    """The parts of a listener key."""

    listener: str
    base: str


def split_listener_key(name: str) -> ListenerKey | None:
    """`listener.name.internal.max.connections` as ("internal", "max.connections"); None for any other key."""
    if not name.startswith(PREFIX):
        return None
    listener, dot, base = name.removeprefix(PREFIX).partition(".")
    return ListenerKey(listener, base) if dot and base else None


def without_mechanism(base: str) -> str:
    """`plain.sasl.jaas.config` as `sasl.jaas.config`."""
    mechanism, _, rest = base.partition(".")
    return rest if mechanism in MECHANISMS else base


def is_listener_key(base: str) -> bool:
    """Whether a key has an effect for a single listener."""
    return base in CHANGEABLE or without_mechanism(base) in SASL_KEYS or base in TLS_KEYS


def listener_key(listener: str, base: str) -> str:
    return f"{PREFIX}{listener.lower()}.{base}"
