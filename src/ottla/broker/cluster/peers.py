"""The other brokers of the cluster, and how to reach them.

Where a broker is stands in the image, under the listener that brokers use among themselves. One connection to each is
shared by short questions; whoever asks what takes long (fetchers, polls) opens one of his own, because a broker
answers the requests of a connection one after the other.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Any, Final, TypeVar

from ottla.base.broker_settings import BrokerSettings
from ottla.broker.connection_limits import link_options
from ottla.controller.holder import ImageHolder
from ottla.controller.image import BrokerImage, Endpoint, MetadataImage
from ottla.network.connecting import connect
from ottla.network.peer import Locate, LogIn, Peer
from ottla.network.peer_error import PeerError, Rounds
from ottla.network.tls_handshake import OutgoingTls

logger = logging.getLogger(__name__)

CALL_MS_MAX: Final = 5_000  # for an answer of another broker: whoever is paused has a successor soon
PROBE_SECONDS_MAX: Final = 2.0

R = TypeVar("R")


class Peers:
    """All outgoing connections of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        images: ImageHolder,
        poller: Rounds,
        tls: OutgoingTls | None = None,
        log_in: LogIn | None = None,
    ) -> None:
        """`tls` and `log_in` if the listener that brokers use among themselves asks for them."""
        self._settings = settings
        self._tls = tls
        self._images = images
        self._poller = poller
        self._log_in = log_in
        self._shared: dict[int, Peer] = {}
        self._own: set[Peer] = set()
        images.on_image(self._on_image)

    def address(self, broker_id: int) -> tuple[str, int]:
        """Host and port for other brokers; PeerError if the broker is not alive, as far as we know."""
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
        """Ask over the connection that all share."""
        peer = self._shared.get(broker_id)
        if peer is None:
            peer = self._shared[broker_id] = self._make(broker_id, "shared")
        if timeout_ms is None:
            timeout_ms = self._settings.request_timeout_ms
        return await peer.call(request, response, version, timeout_ms)

    def open(self, broker_id: int, purpose: str) -> Peer:
        """A connection of one's own; whoever asked for it closes it. It follows the broker to a new address."""
        self._own = {peer for peer in self._own if not peer.is_closed}
        peer = self._make(broker_id, purpose)
        self._own.add(peer)
        return peer

    def _make(self, broker_id: int, purpose: str) -> Peer:
        host, port = self.address(broker_id)
        return self._peer(host, port, purpose, lambda: self.address(broker_id))

    def _peer(self, host: str, port: int, purpose: str, locate: Locate | None) -> Peer:
        settings = self._settings
        return Peer(
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

    async def probe(self, broker_id: int) -> bool:
        """Whether anybody listens where a broker should be. False only if its machine says that nobody does."""
        try:
            host, port = self.address(broker_id)
        except PeerError:
            return True  # nobody could say where to ask
        return await probe(host, port)

    def _on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """A shared connection to a broker that is gone, or has begun a new life, is of no use any more."""
        if old.brokers is new.brokers:
            return
        for broker_id in list(self._shared):
            now, before = new.brokers.get(broker_id), old.brokers.get(broker_id)
            if now is None or (before is not None and now.epoch != before.epoch):
                self._shared.pop(broker_id).close()

    def close(self) -> None:
        for peer in (*self._shared.values(), *self._own):
            peer.close()
        self._shared.clear()
        self._own.clear()

    def __repr__(self) -> str:
        return f"<Peers {len(self._shared)} shared, {sum(not peer.is_closed for peer in self._own)} own>"


class PurposeCalls:
    """Calls over connections of their own, one for each broker and purpose: none waits behind others'."""

    def __init__(self, peers: Peers | None) -> None:
        self._peers = peers  # None: there are no others
        self._open: dict[tuple[int, str], Peer] = {}

    async def call(self, broker: int, purpose: str, request: Any, response: type[Any]) -> Any:
        """Raises PeerError."""
        if self._peers is None:
            raise PeerError(f"broker {broker} is not known")
        peer = self._open.get((broker, purpose))
        if peer is None or peer.is_closed:
            peer = self._open[broker, purpose] = self._peers.open(broker, purpose)
        return await peer.call(request, response, None, CALL_MS_MAX)

    def close(self) -> None:
        for peer in self._open.values():
            peer.close()


async def probe(host: str, port: int) -> bool:
    """Whether anybody may listen at an address. A time-out or a cut network is no proof that nobody does."""
    try:
        async with asyncio.timeout(PROBE_SECONDS_MAX):
            sock = await connect(host, port)
    except TimeoutError:
        return True
    except OSError as problem:
        return problem.errno != errno.ECONNREFUSED
    sock.close()
    return True


def inter_broker_endpoint(broker: BrokerImage, settings: BrokerSettings) -> Endpoint | None:
    """The listener that the settings name; without a name, the first of the protocol that brokers use."""
    name = settings.inter_broker_listener_name
    if name is not None:
        return broker.endpoints.get(name.upper())
    protocol = settings.security_inter_broker_protocol
    found = broker.endpoints.get(protocol)
    if found is not None:
        return found
    return next((end for end in broker.endpoints.values() if end.protocol == protocol), None)
