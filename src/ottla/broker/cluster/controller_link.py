"""The way from any broker to the controller: find it, ask it, ask again when it has moved.

A question is repeated while there is no controller, while the one we know does not answer, and when it says that it is
not the controller any more, until a deadline. So a question may reach the controller twice; Kafka's brokers do the
same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ottla.base import tasks
from ottla.base.errors import Error, KafkaError
from ottla.network.peer import Peer, PeerError

if TYPE_CHECKING:
    from ottla.broker.cluster.peers import Peers

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.02
RETRY_SECONDS_MAX: Final = 0.05
LOOK_SECONDS: Final = 0.25  # a controller that was paused never answers: see whether there is another one
IDLE_MAX: Final = 4  # connections that are kept when nobody uses them
PATIENCE_SECONDS: Final = 2.0  # longer than the controller itself may take, so that it is the one who says no

R = TypeVar("R")


class Location(Protocol):
    """Who the controller is, as far as this broker knows."""

    @property
    def is_controller(self) -> bool: ...

    @property
    def controller_id(self) -> int: ...

    def why_no_controller(self) -> str: ...


class ControllerLink:
    """Connections to the controller, one for each question under way: those of one connection would wait in a line."""

    def __init__(self, node_id: int, peers: Peers, location: Location) -> None:
        self._node_id = node_id
        self._peers = peers
        self._location = location
        self._idle: list[Peer] = []
        self._idle_of = -1  # whom they lead to
        self._loop = asyncio.get_running_loop()

    async def ask(
        self,
        request: Any,
        response: type[R],
        *,
        timeout_ms: int,
        is_elsewhere: Callable[[R], bool],
    ) -> R | None:
        """The controller's answer; None if this broker is the controller now and has to do it itself.

        `is_elsewhere` tells whether an answer says that the controller is another broker. Raises KafkaError:
        NOT_CONTROLLER if no controller was found in time, REQUEST_TIMED_OUT if it did not answer.
        """
        deadline = self._loop.time() + timeout_ms / 1000
        wait = RETRY_SECONDS
        failure = KafkaError(Error.NOT_CONTROLLER)
        while True:
            if self._location.is_controller:
                return None
            controller = self._location.controller_id
            if controller >= 0 and controller != self._node_id:
                try:
                    answer = await self._ask_once(controller, request, response, deadline)
                    if not is_elsewhere(answer):
                        return answer
                    failure = KafkaError(Error.NOT_CONTROLLER)
                except PeerError as problem:
                    logger.debug("the controller, broker %d, did not answer: %s", controller, problem)
                    if problem.is_sent:
                        failure = KafkaError(Error.REQUEST_TIMED_OUT)
            if self._loop.time() + wait >= deadline:
                if failure.error is Error.NOT_CONTROLLER and self._location.controller_id < 0:
                    raise KafkaError(Error.NOT_CONTROLLER, self._location.why_no_controller())
                raise failure
            await asyncio.sleep(wait)
            wait = min(2 * wait, RETRY_SECONDS_MAX)

    async def _ask_once(self, controller: int, request: Any, response: type[R], deadline: float) -> R:
        peer = self._take(controller)
        seconds = max(0.0, deadline - self._loop.time()) + PATIENCE_SECONDS
        call = tasks.ask(peer.call(request, response, timeout_ms=int(seconds * 1000)), "a request to the controller")
        try:
            while not call.done():
                await asyncio.wait((call,), timeout=LOOK_SECONDS)
                if not call.done() and self._location.controller_id != controller:
                    raise PeerError(f"broker {controller} is not the controller any more", is_sent=True)
            answer = call.result()
        except BaseException:  # whoever waits may also be cancelled: its answer would be the next one's
            call.cancel()
            peer.close()
            raise
        self._give(controller, peer)
        return answer

    def _take(self, controller: int) -> Peer:
        if controller != self._idle_of:
            self.close()
            self._idle_of = controller
        while self._idle:
            peer = self._idle.pop()
            if peer.is_connected:
                return peer
            peer.close()
        return self._peers.open(controller, "to-controller")

    def _give(self, controller: int, peer: Peer) -> None:
        if controller == self._idle_of and len(self._idle) < IDLE_MAX:
            self._idle.append(peer)
        else:
            peer.close()

    def close(self) -> None:
        for peer in self._idle:
            peer.close()
        self._idle.clear()

    def __repr__(self) -> str:
        return f"<ControllerLink to broker {self._location.controller_id}, {len(self._idle)} idle>"
