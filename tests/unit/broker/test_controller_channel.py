"""Requests to a controller whose response is lost: most are sent again, as in Kafka."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests import virtual_time

from ottla.base.errors import Error, KafkaError
from ottla.broker.cluster.controller_channel import ControllerChannel
from ottla.broker.cluster.forwarding import ForwardingManager
from ottla.network.peer import PeerError
from ottla.protocol.messages.credentials import CreateDelegationTokenRequest, RenewDelegationTokenRequest
from ottla.protocol.messages.inter_broker import EnvelopeResponse

ME, CONTROLLER = 1, 2


class Controller:
    """Its connections: each call takes the next outcome."""

    def __init__(self, *outcomes: PeerError | EnvelopeResponse) -> None:
        self.outcomes = list(outcomes)
        self.received = 0
        self.is_connected = True

    async def call(self, _request: Any, _response: type[Any], *, timeout_ms: int) -> Any:
        await asyncio.sleep(0.001 if timeout_ms else 0)
        outcome = self.outcomes.pop(0)
        self.received += not isinstance(outcome, PeerError) or outcome.is_sent
        if isinstance(outcome, PeerError):
            raise outcome
        return outcome

    def close(self) -> None: ...


def channel_to(controller: Controller) -> ControllerChannel:
    peers = SimpleNamespace(open=lambda *_: controller)
    provider = SimpleNamespace(is_controller=False, controller_id=CONTROLLER, no_controller_message=lambda: "none")
    return ControllerChannel(ME, peers, provider)  # type: ignore[arg-type]


async def send(channel: ControllerChannel, *, is_repeatable: bool) -> Error:
    try:
        answer = await channel.send(
            None,
            EnvelopeResponse,
            timeout_ms=1_000,
            is_not_controller=lambda sealed: sealed.error_code == Error.NOT_CONTROLLER,
            is_repeatable=is_repeatable,
        )
    except KafkaError as refusal:
        return refusal.error
    assert answer is not None
    return Error(answer.error_code)


LOST = PeerError("lost", is_sent=True)
UNSENT = PeerError("refused", is_refused=True)
DEPOSED = EnvelopeResponse(error_code=Error.NOT_CONTROLLER)
DONE = EnvelopeResponse(error_code=Error.NONE)


@pytest.mark.parametrize(
    ("is_repeatable", "outcomes", "error", "received"),
    [
        (True, [LOST, DONE], Error.NONE, 2),
        (False, [LOST, DONE], Error.REQUEST_TIMED_OUT, 1),
        (False, [UNSENT, DEPOSED, UNSENT, DONE], Error.NONE, 2),
        (False, [DEPOSED, LOST, DONE], Error.REQUEST_TIMED_OUT, 2),
    ],
)
def test_a_request_is_repeated_if_it_may_take_effect_twice_or_had_no_effect(
    is_repeatable: bool, outcomes: list[PeerError | EnvelopeResponse], error: Error, received: int
) -> None:
    async def play() -> None:
        controller = Controller(*outcomes)
        assert await send(channel_to(controller), is_repeatable=is_repeatable) is error
        assert controller.received == received

    virtual_time.run(play())


@pytest.mark.parametrize(
    ("request_message", "api_key", "is_repeatable"),
    [
        (CreateDelegationTokenRequest(max_lifetime_ms=-1), 38, False),
        (RenewDelegationTokenRequest(hmac=b"", renew_period_ms=-1), 39, True),
    ],
)
def test_a_forwarded_request_for_a_new_token_is_not_repeated(
    request_message: Any, api_key: int, is_repeatable: bool
) -> None:
    sent: list[bool] = []

    async def refuse(*_: Any, is_repeatable: bool, **__: Any) -> Any:
        sent.append(is_repeatable)
        raise KafkaError(Error.REQUEST_TIMED_OUT)

    async def play() -> None:
        context = SimpleNamespace(
            api_key=api_key,
            api_version=2,
            correlation_id=1,
            client_id="c",
            principal="User:u",
            is_delegated=False,
            client_host="127.0.0.1",
        )
        row = SimpleNamespace(make_error_response=lambda *_: "refused")
        manager = ForwardingManager(SimpleNamespace(send=refuse), 1_000)  # type: ignore[arg-type]
        assert await manager.forward(request_message, context, row) == "refused"  # type: ignore[arg-type]

    virtual_time.run(play())
    assert sent == [is_repeatable]
