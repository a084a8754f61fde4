"""Connections to the other brokers of the cluster.

The image has their addresses, under the inter-broker listener. Short requests share one connection per broker. Long
requests (fetches, polls) use their own connections, because a broker handles the requests of a connection in order.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Any, Final, TypeVar

from ottla.base.broker_settings import BrokerSettings
from ottla.broker.configs.connection_options import link_options
from ottla.controller.image import BrokerImage, Endpoint, MetadataCache, MetadataImage
from ottla.network.peer import Authenticate, BrokerConnection, PeerError, PeerPoller, ResolveAddress
from ottla.network.peer_transport import connect_socket
from ottla.network.tls_handshake import OutgoingTls

logger = logging.getLogger(__name__)

CALL_TIMEOUT_MS: Final = 5_000  # limit for a response: a paused broker is soon replaced
PROBE_TIMEOUT_SECONDS: Final = 2.0

R = TypeVar("R")


class Peers:
    """All outgoing connections of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        images: MetadataCache,
        poller: PeerPoller,
        tls: OutgoingTls | None = None,
        log_in: Authenticate | None = None,
    ) -> None:
        """`tls` and `log_in` if the inter-broker listener requires them."""
        self._settings = settings
        self._tls = tls
        self._images = images
        self._poller = poller
        self._log_in = log_in
        self._shared: dict[int, BrokerConnection] = {}
        self._dedicated: set[BrokerConnection] = set()
        images.add_listener(self._on_image)

    def address(self, broker_id: int) -> tuple[str, int]:
        """Return host and port of a broker. Raises PeerError if the broker is not alive in the image."""
        broker = self._images.image.brokers.get(broker_id)
        end = inter_broker_endpoint(broker, self._settings) if broker is not None else None
        if end is None:
            raise PeerError(f"broker {broker_id} is not known")
        return end.host, end.port

    async def call(
        self,
        broker_id: int,
        request: Any,
        response: type[R],
        *,
        timeout_ms: int | None = None,
        version: int | None = None,
    ) -> R:
        """Send a request over the shared connection."""
        peer = self._shared.get(broker_id)
        if peer is None:
            peer = self._shared[broker_id] = self._make(broker_id, "shared")
        if timeout_ms is None:
            timeout_ms = self._settings.request_timeout_ms
        return await peer.call(request, response, version, timeout_ms)

    def open(self, broker_id: int, purpose: str) -> BrokerConnection:
        """Return a separate connection, which the caller closes. It follows the broker to a new address."""
        self._dedicated = {peer for peer in self._dedicated if not peer.is_closed}
        peer = self._make(broker_id, purpose)
        self._dedicated.add(peer)
        return peer

    def _make(self, broker_id: int, purpose: str) -> BrokerConnection:
        host, port = self.address(broker_id)
        return self._peer(host, port, purpose, lambda: self.address(broker_id))

    def _peer(self, host: str, port: int, purpose: str, locate: ResolveAddress | None) -> BrokerConnection:
        settings = self._settings
        return BrokerConnection(
            host,
            port,
            f"broker-{settings.node_id}-{purpose}",
            self._poller,
            locate,
            log_in=self._log_in,
            connect_ms=settings.socket_connection_setup_timeout_ms,
            connect_ms_max=settings.socket_connection_setup_timeout_max_ms,
            tls=self._tls,
            options=link_options(settings),
        )

    def _on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Close shared connections to brokers that stopped or restarted."""
        if old.brokers is new.brokers:
            return
        for broker_id in list(self._shared):
            now, before = new.brokers.get(broker_id), old.brokers.get(broker_id)
            if now is None or (before is not None and now.epoch != before.epoch):
                self._shared.pop(broker_id).close()

    def close(self) -> None:
        for peer in (*self._shared.values(), *self._dedicated):
            peer.close()
        self._shared.clear()
        self._dedicated.clear()

    def __repr__(self) -> str:
        return f"<Peers {len(self._shared)} shared, {sum(not peer.is_closed for peer in self._dedicated)} own>"


class InterBrokerCalls:
    """Calls over separate connections per broker and purpose: they never wait for other calls."""

    def __init__(self, peers: Peers | None) -> None:
        self._peers = peers  # None: there are no other brokers
        self._open: dict[tuple[int, str], BrokerConnection] = {}

    async def call(self, broker: int, purpose: str, request: Any, response: type[Any]) -> Any:
        """Send a request over the connection for its purpose. Raises PeerError."""
        if self._peers is None:
            raise PeerError(f"broker {broker} is not known")
        peer = self._open.get((broker, purpose))
        if peer is None or peer.is_closed:
            peer = self._open[broker, purpose] = self._peers.open(broker, purpose)
        return await peer.call(request, response, None, CALL_TIMEOUT_MS)

    def close(self) -> None:
        for peer in self._open.values():
            peer.close()


async def probe(host: str, port: int) -> bool:
    """Return whether an address may accept connections.

    A timeout or an unreachable network does not prove that the port is closed.
    """
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_SECONDS):
            sock = await connect_socket(host, port)
    except TimeoutError:
        return True
    except OSError as problem:
        return problem.errno != errno.ECONNREFUSED
    sock.close()
    return True


def inter_broker_endpoint(broker: BrokerImage, settings: BrokerSettings) -> Endpoint | None:
    """Return the configured inter-broker listener; without a name, the first of the inter-broker protocol."""
    name = settings.inter_broker_listener_name
    if name is not None:
        return broker.endpoints.get(name.upper())
    protocol = settings.security_inter_broker_protocol
    found = broker.endpoints.get(protocol)
    if found is not None:
        return found
    return next((end for end in broker.endpoints.values() if end.protocol == protocol), None)
