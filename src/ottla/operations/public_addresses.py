"""Public addresses: protection against requests to internal hosts (SSRF) where a user supplies the address."""

from __future__ import annotations

import ipaddress
import socket
import unicodedata
from collections.abc import Iterable
from typing import Final

NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_FORBIDDEN_CHARACTERS: Final = frozenset(" /\\?#@")  # characters


def is_public(text: str) -> bool:
    """Whether an address from getaddrinfo is neither private nor local, including IPv4 addresses embedded in IPv6."""
    address = _embedded_ipv4(ipaddress.ip_address(text.partition("%")[0]))
    return address.is_global and not address.is_multicast


def literal_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host denotes without name resolution: numeric in every notation that getaddrinfo accepts
    (0xa9fea9fe is 169.254.169.254, also in full-width digits), or localhost.
    """
    plain = unicodedata.normalize("NFKC", host).replace("\u3002", ".")  # as IDNA does before resolution
    text = plain.strip("[]").lower().rstrip(".")
    if text == "localhost" or text.endswith(".localhost"):
        return ipaddress.IPv4Address("127.0.0.1")
    try:
        return _embedded_ipv4(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(text))
        except OSError:
            return None


def _embedded_ipv4(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The IPv4 address embedded in an IPv6 address, if any."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in NAT64:
        return ipaddress.IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour or address


def forbidden_reason(host: str, *, is_internal_allowed: bool, is_link_local_allowed: bool) -> str:
    """Why this host must never be called; "" if it may be. Names are not resolved."""
    if not _FORBIDDEN_CHARACTERS.isdisjoint(host):
        return "this is not a host name"
    address = literal_address(host)
    if address is None:
        return ""
    if address.is_multicast:
        return "a multicast address has no server"
    if address.is_link_local and not is_link_local_allowed:
        return "a link-local address"
    return "" if is_internal_allowed or is_public(str(address)) else "an internal address"


def look_up(host: str, port: int | None) -> list[str]:
    """Resolve a name. Raises OSError."""
    return [str(item[4][0]) for item in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def first_internal(addresses: Iterable[str]) -> str | None:
    """The first non-public address: one is enough, since any of them may be used to connect."""
    return next((text for text in addresses if not is_public(text)), None)


class InternalAddressError(OSError):
    """The host has an internal address."""


def check_public(host: str, port: int) -> str:
    """One address of the host, if all of them are public. Raises InsideError, OSError."""
    found = look_up(host, port)
    inside = first_internal(found)
    if inside is not None or not found:
        raise InternalAddressError(f"{host} is {inside or 'unknown'}, an internal address, which is not allowed")
    return found[0]


def connect_public(address: tuple[str, int], *arguments: object, **named: object) -> socket.socket:
    """Like socket.create_connection, to the checked address: a second resolution could return another one."""
    host, port = address
    return socket.create_connection((check_public(host, port), port), *arguments, **named)  # type: ignore[arg-type]
