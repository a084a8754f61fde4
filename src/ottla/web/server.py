"""The HTTP server of an application: uvicorn with limits, on the event loop of its process."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import uvicorn

from ottla.base.tasks import spawn_awaited
from ottla.web.application import HttpApp
from ottla.web.connections import TimeoutProtocol

BACKLOG: Final = 256


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits of a server, beside those of each connection (`connections.py`)."""

    connections: int = 500
    head_bytes: int = 16 << 10
    idle_seconds: int = 30  # of a connection without a request
    stop_seconds: int = 3


class HttpServer(uvicorn.Server):
    """Serves an application; the process handles the signals."""

    def __init__(
        self,
        app: HttpApp,
        limits: ServerLimits | None = None,
        *,
        protocol: type[TimeoutProtocol] = TimeoutProtocol,
        tls: ssl.SSLContext | None = None,
        trusts_local_proxy: bool = False,  # takes the address of a client from X-Forwarded-For
    ) -> None:
        limits = limits or ServerLimits()
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=trusts_local_proxy,
            server_header=False,
            limit_concurrency=limits.connections,
            timeout_keep_alive=limits.idle_seconds,
            timeout_graceful_shutdown=limits.stop_seconds,
            h11_max_incomplete_event_size=limits.head_bytes,
        )
        config.load()
        config.ssl = tls
        logging.getLogger("uvicorn").setLevel(logging.ERROR)  # protocol errors are answered to the client
        super().__init__(config)
        self._on_ready: Callable[[], None] = lambda: None

    async def serve_until(
        self,
        listener: socket.socket,
        ends: Collection[asyncio.Future[Any]],
        on_ready: Callable[[], None],
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve until one of `ends` is done.

        `on_ready` is called once requests are answered; `on_stop` ends the responses that would last.
        """
        self._on_ready = on_ready
        serving = spawn_awaited(self.serve([listener]), "HTTP server")
        await asyncio.wait([serving, *ends], return_when=asyncio.FIRST_COMPLETED)
        self.should_exit = True
        on_stop()
        await serving

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


def stop_signal() -> asyncio.Task[object]:
    """Done after SIGTERM or SIGINT, which no longer end the process."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return spawn_awaited(stopping.wait(), "stop signal")


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError.

    The protocol is explicit because asyncio sets TCP_NODELAY only then; without it a response may wait 40 ms for its
    body.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    listener.listen(BACKLOG)
    return listener


def server_tls(certificate: str, key: str | None, password: Callable[[], str] | None = None) -> ssl.SSLContext:
    """The TLS settings for a certificate chain and its key (PEM files). Raises OSError.

    Without `password`, OpenSSL asks the terminal for the one of an encrypted key.
    """
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.minimum_version = ssl.TLSVersion.TLSv1_2
    tls.load_cert_chain(certificate, key, password)
    return tls


def listen_address(listener: socket.socket, scheme: str = "http") -> str:
    """The URL of the server at this socket."""
    host, port = listener.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
