"""Channel to the controller: finds it, sends requests, and retries when it has moved (Kafka's
NodeToControllerChannelManager).

A request is repeated until its deadline while there is no controller, while the known one does not respond, and when it
is no longer the controller. A request may therefore reach controllers twice, as in Kafka. One that must not is
repeated only while no controller can have received it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.base import tasks
from ottla.base.errors import Error, KafkaError
from ottla.network.peer import BrokerConnection, PeerError

if TYPE_CHECKING:
    from ottla.broker.cluster.peers import Peers
    from ottla.controller.cluster.membership import ClusterMembership

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.02
RETRY_SECONDS_MAX: Final = 0.05
CHECK_SECONDS: Final = 0.25  # a paused controller never answers: check for a new one
IDLE_CONNECTIONS_MAX: Final = 4  # unused connections that are kept
EXTRA_WAIT_SECONDS: Final = 2.0  # longer than the controller itself may take, so that its own timeout applies first

R = TypeVar("R")


class ControllerChannel:
    """Connections to the controller, one per request in flight: a connection handles its requests in order."""

    def __init__(self, node_id: int, peers: Peers, location: ClusterMembership) -> None:
        self._node_id = node_id
        self._peers = peers
        self._provider = location
        self._idle: list[BrokerConnection] = []
        self._idle_controller_id = -1  # the broker that they are connected to
        self._loop = asyncio.get_running_loop()

    async def send(
        self,
        request: Any,
        response: type[R],
        *,
        timeout_ms: int,
        is_not_controller: Callable[[R], bool],
        is_repeatable: bool = True,
    ) -> R | None:
        """Send a request; None if this broker has become the controller and must handle it itself.

        `is_not_controller` reports whether a response means NOT_CONTROLLER. Raises KafkaError: NOT_CONTROLLER if no
        controller was found in time, REQUEST_TIMED_OUT if it did not respond.
        """
        deadline = self._loop.time() + timeout_ms / 1000
        wait = RETRY_SECONDS
        failure = KafkaError(Error.NOT_CONTROLLER)
        while True:
            if self._provider.is_controller:
                return None
            controller = self._provider.controller_id
            if controller >= 0 and controller != self._node_id:
                try:
                    answer = await self._send_once(controller, request, response, deadline)
                    if not is_not_controller(answer):
                        return answer
                    failure = KafkaError(Error.NOT_CONTROLLER)
                except PeerError as problem:
                    logger.debug("the controller, broker %d, did not answer: %s", controller, problem)
                    if problem.is_sent:
                        failure = KafkaError(Error.REQUEST_TIMED_OUT)
                        if not is_repeatable:
                            raise failure from None
            if self._loop.time() + wait >= deadline:
                if failure.error is Error.NOT_CONTROLLER and self._provider.controller_id < 0:
                    raise KafkaError(Error.NOT_CONTROLLER, self._provider.no_controller_message())
                raise failure
            await asyncio.sleep(wait)
            wait = min(2 * wait, RETRY_SECONDS_MAX)

    async def _send_once(self, controller: int, request: Any, response: type[R], deadline: float) -> R:
        peer = self._acquire(controller)
        seconds = max(0.0, deadline - self._loop.time()) + EXTRA_WAIT_SECONDS
        call = tasks.spawn_awaited(
            peer.call(request, response, timeout_ms=int(seconds * 1000)), "a request to the controller"
        )
        try:
            while not call.done():
                await asyncio.wait((call,), timeout=CHECK_SECONDS)
                if not call.done() and self._provider.controller_id != controller:
                    raise PeerError(f"broker {controller} is no longer the controller", is_sent=True)
            answer = call.result()
        except BaseException:  # including cancellation of the caller: the next request would get this response
            call.cancel()
            peer.close()
            raise
        self._release(controller, peer)
        return answer

    def _acquire(self, controller: int) -> BrokerConnection:
        if controller != self._idle_controller_id:
            self.close()
            self._idle_controller_id = controller
        while self._idle:
            peer = self._idle.pop()
            if peer.is_connected:
                return peer
            peer.close()
        return self._peers.open(controller, "to-controller")

    def _release(self, controller: int, peer: BrokerConnection) -> None:
        if controller == self._idle_controller_id and len(self._idle) < IDLE_CONNECTIONS_MAX:
            self._idle.append(peer)
        else:
            peer.close()

    def close(self) -> None:
        for peer in self._idle:
            peer.close()
        self._idle.clear()

    def __repr__(self) -> str:
        return f"<ControllerChannel to broker {self._provider.controller_id}, {len(self._idle)} idle>"
