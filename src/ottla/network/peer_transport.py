"""Outgoing sockets to other brokers, plain or over TLS."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from typing import Any, Final, Protocol

from ottla.network.socket_options import NO_OPTIONS, SocketOptions, set_silence_timeout
from ottla.network.tls_handshake import OutgoingTls, tls_connect
from ottla.network.tls_transport import TlsPoller
from ottla.network.transport import PlainTransport, Transport

SILENCE_MS_MAX: Final = 10_000


class PeerPoller(Protocol):
    """The part of the poller that a peer uses."""

    def watch(self, descriptor: int, watched: Any) -> None: ...

    def interest(self, descriptor: int, readable: bool, writable: bool) -> None: ...

    def unwatch(self, descriptor: int) -> None: ...


async def open_transport(
    host: str, port: int, poller: PeerPoller, tls: OutgoingTls | None, options: SocketOptions = NO_OPTIONS
) -> tuple[int, Transport, PeerPoller]:
    """Open a connection; returns its descriptor, its transport and its poller. Raises OSError."""
    sock = await connect_socket(host, port, options)
    descriptor = sock.fileno()
    if tls is None:
        return descriptor, PlainTransport(sock), poller
    transport = await tls_connect(tls, sock, host, poller)
    return descriptor, transport, TlsPoller(transport, poller, asyncio.get_running_loop())


async def connect_socket(host: str, port: int, options: SocketOptions = NO_OPTIONS) -> socket.socket:
    """Return a connected socket with the options for inter-broker connections. Raises OSError."""
    loop = asyncio.get_running_loop()
    problem: OSError | None = None
    for family, address in await _addresses(loop, host, port):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            options.apply(sock)
            set_silence_timeout(sock, SILENCE_MS_MAX)
        except OSError as refusal:
            sock.close()
            problem = refusal
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise problem or OSError(errno.EADDRNOTAVAIL, "no address")


async def _addresses(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[tuple[int, Any]]:
    """Return the addresses of a host. Only names need the resolver, which needs a thread."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [(family, address) for family, _, _, _, address in found]
    return [(socket.AF_INET if version == 4 else socket.AF_INET6, (host, port))]
