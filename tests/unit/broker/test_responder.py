"""Completion of requests: once, in order, later, without a response, or by closing the connection."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.broker.nodes import node, parts
from tests.unit.network.scripted import NotingPoller, ScriptedTransport
from tests.virtual_time import run

from ottla.base import tasks
from ottla.broker.dispatch import LARGE_FRAME_BYTES, Dispatcher
from ottla.broker.responder import Responder
from ottla.broker.served_api import ServedApi
from ottla.network.buffers import BufferPool
from ottla.network.close_reason import CloseReason
from ottla.network.connection import ConnectedClient, Connection
from ottla.network.poller import Poller
from ottla.protocol.codec import encode
from ottla.protocol.headers import encode_request_header
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse

FETCH, HEARTBEAT = 1, 12
VERSIONS = {FETCH: 12, HEARTBEAT: 4}
REQUESTS = {
    FETCH: FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]),
    HEARTBEAT: HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
}


class Waiting:
    def __init__(self, name: str, heard: list[str]) -> None:
        self._name = name
        self._heard = heard

    def cancel(self) -> None:
        self._heard.append(self._name)


class Stand:
    """One connection to a dispatcher with two APIs: Fetch overlaps, Heartbeat does not."""

    def __init__(self) -> None:
        self.transport, self.poller = ScriptedTransport(), NotingPoller()
        self.contexts: list[Any] = []
        self.handle: Callable[[Any, Any], Any] = lambda request, context: HeartbeatResponse()
        rows = [
            ServedApi(FETCH, self._fetch, overlaps=True),
            ServedApi(HEARTBEAT, self._note),
        ]
        self.dispatcher = Dispatcher(parts(node()), rows, lambda: None, Poller())
        self.connection = Connection(
            self.transport,
            7,
            self.poller,
            asyncio.get_running_loop(),
            BufferPool(),
            self.dispatcher,
            lambda _: None,
            ConnectedClient("client", 1, "PLAINTEXT"),
            100 << 20,
        )
        self._correlation_id = 0

    def _note(self, request: Any, context: Any) -> Any:
        self.contexts.append(context)
        answer = self.handle(request, context)
        if asyncio.iscoroutine(answer):
            return context.responder.run(answer)
        return answer

    def _fetch(self, request: Any, context: Any) -> Any:
        self.contexts.append(context)
        return context.responder.defer()

    def send(self, key: int = HEARTBEAT, size: int = 10) -> None:
        self._correlation_id += 1
        request = REQUESTS[key]
        version = VERSIONS[key]
        body = encode_request_header(key, version, self._correlation_id, "c") + bytes(encode(request, version))
        body += bytes(max(0, size - len(body)))  # trailing bytes are ignored
        frame = len(body).to_bytes(4, "big") + body
        self.transport.pieces += [frame[at : at + 60_000] for at in range(0, len(frame), 60_000)]
        while self.transport.pieces and self.connection.is_reading and not self.connection.is_closed:
            self.connection.on_readable()
        self.poller.end_round()

    def answered(self) -> list[int]:
        """The correlation ids of the sent responses."""
        found, data = [], bytes(self.transport.sent)
        while data:
            size = int.from_bytes(data[:4], "big")
            found.append(int.from_bytes(data[4:8], "big"))
            data = data[4 + size :]
        return found


def play(scene: Callable[[Stand], Awaitable[None]]) -> None:
    async def whole() -> None:
        await scene(Stand())

    run(whole())


async def rounds(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_response_is_sent_at_once() -> None:
    async def scene(stand: Stand) -> None:
        stand.send()
        assert stand.answered() == [1]

    play(scene)


@pytest.mark.parametrize("size", [10, LARGE_FRAME_BYTES + 1], ids=["small", "decoded by a worker"])
def test_a_deferred_request_is_answered_later(size: int) -> None:
    async def scene(stand: Stand) -> None:
        stand.handle = lambda _, context: context.responder.defer()
        stand.send(size=size)
        await asyncio.sleep(1)
        assert stand.answered() == []
        assert stand.connection.pending
        stand.contexts[0].responder.answer(HeartbeatResponse())
        assert stand.answered() == [1]
        assert not stand.connection.pending

    play(scene)


@pytest.mark.parametrize("size", [10, LARGE_FRAME_BYTES + 1], ids=["small", "decoded by a worker"])
def test_a_request_may_be_answered_before_its_handler_returns(size: int) -> None:
    async def scene(stand: Stand) -> None:
        def handle(_: Any, context: Any) -> Responder:
            context.responder.answer(HeartbeatResponse())
            kept: Responder = context.responder.defer()
            return kept

        stand.handle = handle
        stand.send(size=size)
        await asyncio.sleep(1)
        assert stand.answered() == [1]

    play(scene)


@pytest.mark.parametrize("size", [10, LARGE_FRAME_BYTES + 1], ids=["small", "decoded by a worker"])
def test_a_coroutine_is_awaited_and_its_result_is_the_response(size: int) -> None:
    async def scene(stand: Stand) -> None:
        async def work() -> HeartbeatResponse:
            await asyncio.sleep(3)
            return HeartbeatResponse()

        stand.handle = lambda _, context: work()
        stand.send(size=size)
        stand.send()
        await asyncio.sleep(2)
        assert stand.answered() == []
        assert len(stand.contexts) == 1, "the second request waits for the first"
        await asyncio.sleep(2)
        assert stand.answered() == [1]
        await asyncio.sleep(4)
        assert stand.answered() == [1, 2]

    play(scene)


def test_responses_are_sent_in_the_order_of_the_requests() -> None:
    async def scene(stand: Stand) -> None:
        stand.send(FETCH)
        stand.send(FETCH)
        stand.send(HEARTBEAT)
        first, second = (context.responder for context in stand.contexts)
        second.answer(FetchResponse())
        assert stand.answered() == []
        first.answer(FetchResponse())
        assert stand.answered() == [1, 2]
        await rounds()
        stand.poller.end_round()
        assert stand.answered() == [1, 2, 3], "Heartbeat starts when all earlier requests are answered"

    play(scene)


def test_an_exclusive_request_blocks_all_others() -> None:
    async def scene(stand: Stand) -> None:
        stand.send(FETCH)
        first = stand.contexts[0].responder
        first.defer_exclusive()
        stand.send(FETCH)
        await rounds()
        assert len(stand.contexts) == 1
        first.allow_overlap()
        await rounds()
        assert len(stand.contexts) == 2
        stand.contexts[1].responder.answer(FetchResponse())
        first.answer(FetchResponse())
        assert stand.answered() == [1, 2]

    play(scene)


def test_nested_coroutines_block_other_requests_until_all_are_done() -> None:
    async def scene(stand: Stand) -> None:
        async def inner() -> FetchResponse:
            await asyncio.sleep(2)
            return FetchResponse()

        async def outer(responder: Responder) -> Responder:
            await asyncio.sleep(1)
            return responder.run(inner())

        stand.send(FETCH)
        first = stand.contexts[0].responder
        first.run(outer(first))
        stand.send(FETCH)
        await asyncio.sleep(2)
        assert len(stand.contexts) == 1
        await asyncio.sleep(2)
        assert stand.answered() == [1]
        stand.contexts[1].responder.answer(FetchResponse())
        assert stand.answered() == [1, 2]

    play(scene)


@pytest.mark.parametrize("size", [10, LARGE_FRAME_BYTES + 1], ids=["small", "decoded by a worker"])
def test_a_failing_handler_closes_its_connection(size: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(stand: Stand) -> None:
        async def work() -> None:
            await asyncio.sleep(1)
            raise ValueError("a bug")

        stand.handle = lambda _, context: work()
        stand.send(size=size)
        await asyncio.sleep(2)
        assert stand.connection.is_closed
        assert stand.connection.close_reason is CloseReason.REQUEST_FAILED

    play(scene)
    assert "Heartbeat failed" in caplog.text


def test_a_request_that_is_never_answered_closes_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(stand: Stand) -> None:
        gc.collect()
        before = tasks.counts.failed
        stand.send(FETCH)
        assert stand.connection.pending
        stand.contexts.clear()
        gc.collect()
        assert stand.connection.is_closed
        assert tasks.counts.failed == before + 1

    play(scene)
    assert "a Fetch request was never answered" in caplog.text


def test_a_response_that_cannot_be_encoded_affects_its_client_only(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(stand: Stand) -> None:
        stand.send(FETCH)
        stand.contexts[0].responder.answer(HeartbeatResponse(error_code="no number"))  # type: ignore[arg-type]
        assert stand.connection.is_closed

    play(scene)
    assert "cannot be encoded" in caplog.text


def test_a_request_is_answered_once() -> None:
    async def scene(stand: Stand) -> None:
        stand.send(FETCH)
        responder = stand.contexts[0].responder
        responder.answer(FetchResponse())
        with pytest.raises(AssertionError, match="answered exactly once"):
            responder.answer(FetchResponse())

    play(scene)


def test_waiting_requests_are_cancelled_when_the_client_disconnects() -> None:
    async def scene(stand: Stand) -> None:
        heard: list[str] = []
        stand.send(FETCH)
        responder = stand.contexts[0].responder
        responder.cancel_on_disconnect(Waiting("waiting", heard))
        responder.on_disconnect("a name", lambda: heard.append("first"))
        responder.on_disconnect("a name", lambda: heard.append("watching"))
        stand.connection.abandon(CloseReason.CLIENT)
        assert heard == ["waiting", "watching"]
        assert responder.is_disconnected
        responder.cancel_on_disconnect(Waiting("late", heard))
        assert heard[2:] == ["late"]
        responder.answer(FetchResponse())
        assert stand.answered() == []

    play(scene)


def test_a_throttled_client_is_answered_and_then_muted() -> None:
    async def scene(stand: Stand) -> None:
        def handle(_: Any, context: Any) -> HeartbeatResponse:
            context.responder.throttle_ms = 2_000 if len(stand.contexts) == 1 else 0
            return HeartbeatResponse()

        stand.handle = handle
        stand.send()
        assert stand.answered() == [1]
        assert int.from_bytes(stand.transport.sent[9:13], "big") == 2_000
        assert not stand.poller.readable
        await asyncio.sleep(1.9)
        assert not stand.poller.readable
        await asyncio.sleep(0.2)
        assert stand.poller.readable
        stand.send()
        assert stand.answered() == [1, 2]

    play(scene)


def test_before_a_login_only_login_requests_are_answered() -> None:
    async def scene(stand: Stand) -> None:
        stand.connection.client.is_authenticated = False
        stand.send()
        assert stand.connection.is_closed
        assert stand.connection.close_reason is CloseReason.NO_LOGIN

    play(scene)
