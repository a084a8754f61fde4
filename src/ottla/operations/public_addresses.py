"""Which addresses are out in the world: whatever we call by an address that somebody typed goes there, or nowhere."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable


def is_public(text: str) -> bool:
    """Whether an address, as getaddrinfo tells it, is neither private nor of this machine, also not in disguise."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is not None:
            address = inner
    return address.is_global and not address.is_multicast


def look_up(host: str, port: int | None) -> list[str]:
    """The addresses that a name means. Raises OSError."""
    return [str(item[4][0]) for item in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def first_inside(addresses: Iterable[str]) -> str | None:
    """One bad address is enough: which of them is called is not ours to say."""
    return next((text for text in addresses if not is_public(text)), None)


class InsideError(OSError):
    """An address inside was to be called."""


def check_public(host: str, port: int) -> str:
    """One of the addresses that a name means, if all of them are public. Raises InsideError, OSError."""
    found = look_up(host, port)
    inside = first_inside(found)
    if inside is not None or not found:
        raise InsideError(f"{host} is {inside or 'nowhere'}, an address inside, which is not allowed")
    return found[0]


def connect_public(address: tuple[str, int], *arguments: object, **named: object) -> socket.socket:
    """As socket.create_connection, to what was checked: the name is not looked up a second time."""
    host, port = address
    return socket.create_connection((check_public(host, port), port), *arguments, **named)  # type: ignore[arg-type]
