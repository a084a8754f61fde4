"""Which addresses are out in the world: whatever we call by an address that somebody typed goes there, or nowhere."""

from __future__ import annotations

import ipaddress


def is_public(text: str) -> bool:
    """Whether an address, as getaddrinfo tells it, is neither private nor of this machine, also not in disguise."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is not None:
            address = inner
    return address.is_global and not address.is_multicast
