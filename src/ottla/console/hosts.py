"""By which names the console may be called: a page elsewhere could otherwise have its own name lead here. Pure."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class Hosts:
    """The names that count. Addresses in numbers always do where the console listens on more than loopback."""

    def __init__(self, listens_on: str, allowed: Iterable[str] = ()) -> None:
        self.is_loopback = is_loopback(listens_on)
        self.names = LOOPBACK_NAMES | {listens_on.lower(), *(name.lower() for name in allowed)}
        if not self.is_loopback:
            self.names |= {socket.gethostname().lower()}

    def __repr__(self) -> str:
        return f"<Hosts {sorted(self.names)}>"

    def serves(self, header: str) -> bool:
        name = _without_port(header).lower()
        return name in self.names or (not self.is_loopback and _is_number(name))


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _without_port(header: str) -> str:
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
