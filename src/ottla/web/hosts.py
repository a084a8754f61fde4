"""Checks of the headers Host and Origin, against DNS rebinding and against requests from foreign pages. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
ANY: Final = "*"


class AllowedHosts:
    """The allowed values of the Host header: those of this machine, and `names`; `*` allows any."""

    def __init__(self, names: Iterable[str] = (), *, allows_addresses: bool = False) -> None:
        self.names = LOOPBACK_NAMES | {name.lower() for name in names}
        self.allows_addresses = allows_addresses  # an IP address cannot be rebound

    def __repr__(self) -> str:
        return f"<AllowedHosts {sorted(self.names)}>"

    def allows(self, header: str) -> bool:
        name = host_name(header)
        return name in self.names or ANY in self.names or (self.allows_addresses and _address(name) is not None)


def host_name(header: str) -> str:
    """The name of a Host header, without its port."""
    name = header[1:].partition("]")[0] if header.startswith("[") else header.partition(":")[0]
    return name.lower()


def host_of_origin(origin: str) -> str | None:
    """The host and port of an Origin header; None if it has none."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def is_foreign_origin(origin: str | None, host: str) -> bool:
    """Whether a page of another origin than this `Host` sent the request. Programs send no Origin."""
    return origin is not None and host_of_origin(origin) != host.lower()


def is_loopback(host: str) -> bool:
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
