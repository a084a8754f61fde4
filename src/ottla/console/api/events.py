"""GET /api/events: one stream that says which parts of which clusters have become newer; what they say is then fetched.

All tabs of a browser share one such stream (pages/core/live-worker.js): browsers allow six connections to a host.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.responses import StreamingResponse

from ottla.base import tasks
from ottla.console.api.call import Call
from ottla.console.api.errors import ApiError, Sentence
from ottla.console.people import rights

GAP_SECONDS = 0.25  # news that come together are told together
BEAT_SECONDS = 10.0
STREAMS_MAX = 500  # half of the connections: those who come with a question must be heard


class Ages(msgspec.Struct, frozen=True):
    """By cluster and part: version, when it was read (wall time in ms, 0: never), why the last try failed."""

    now_ms: int
    clusters: dict[str, dict[str, tuple[int, int, str | None]]]


async def ages(call: Call) -> Ages:
    """The same without a stream, for browsers that cannot share one."""
    return Ages(call.console.clock.now_ms(), _seen_by(call))


async def stream(call: Call) -> StreamingResponse:
    if call.console.event_streams >= STREAMS_MAX:
        raise ApiError(503, "TOO_MANY", Sentence("{0} streams are open already", STREAMS_MAX), {"Retry-After": "10"})
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_news(call), media_type="text/event-stream", headers=headers)


async def _news(call: Call) -> AsyncIterator[bytes]:
    call.console.event_streams += 1
    try:
        async for piece in _told(call):
            yield piece
    finally:
        call.console.event_streams -= 1


async def _told(call: Call) -> AsyncIterator[bytes]:
    """Ends with the session."""
    console, session = call.console, call.caller.session
    told: object = None
    while not console.is_stopping and (session is None or not session.is_over(console.clock.now_ms())):
        news = console.news
        clusters = _seen_by(call)
        if clusters != told:
            told = clusters
            yield b"data: " + msgspec.json.encode(Ages(console.clock.now_ms(), clusters)) + b"\n\n"
        else:
            yield b": still here\n\n"
        await _wait(news, session.ended if session is not None else None)
        await asyncio.sleep(0 if console.is_stopping else GAP_SECONDS)


def _seen_by(call: Call) -> dict[str, dict[str, tuple[int, int, str | None]]]:
    ages = call.console.ages()
    return {name: ages[name] for name in ages if rights.may(call.caller.grants, rights.Role.VIEWER, name)}


async def _wait(*events: asyncio.Event | None) -> None:
    waiting = [tasks.ask(event.wait(), "an event stream") for event in events if event is not None]
    try:
        await asyncio.wait(waiting, timeout=BEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
