"""Sockets from broker to broker, plain or over TLS."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from typing import Any, Final

from ottla.network.link_options import NO_OPTIONS, LinkOptions, end_silence
from ottla.network.peer_error import Rounds
from ottla.network.tls_handshake import OutgoingTls, shake_hands
from ottla.network.tls_transport import TlsRounds
from ottla.network.transport import PlainTransport, Transport

SILENCE_MS_MAX: Final = 10_000


async def open_transport(
    host: str, port: int, poller: Rounds, tls: OutgoingTls | None, options: LinkOptions = NO_OPTIONS
) -> tuple[int, Transport, Rounds]:
    """A connection: its descriptor, how bytes cross it, and who tells when they can. OSError if there is none."""
    sock = await connect(host, port, options)
    descriptor = sock.fileno()
    if tls is None:
        return descriptor, PlainTransport(sock), poller
    transport = await shake_hands(tls, sock, host, poller)
    return descriptor, transport, TlsRounds(transport, poller, asyncio.get_running_loop())


async def connect(host: str, port: int, options: LinkOptions = NO_OPTIONS) -> socket.socket:
    """A connected socket, set up as brokers want it among themselves; OSError if there is none to be had."""
    loop = asyncio.get_running_loop()
    problem: OSError | None = None
    for family, address in await _addresses(loop, host, port):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            options.apply(sock)
            end_silence(sock, SILENCE_MS_MAX)
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
    """Numbers as they are: asking the resolver takes a thread and is only needed for names."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [(family, address) for family, _, _, _, address in found]
    return [(socket.AF_INET if version == 4 else socket.AF_INET6, (host, port))]
