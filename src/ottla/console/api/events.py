"""GET /api/events: a stream of the versions of all parts of all clusters. Pages then fetch the parts that changed.

All tabs of a browser share one stream (pages/core/live-worker.js): browsers allow six connections to a host.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.responses import StreamingResponse

from ottla.base import tasks
from ottla.console.api.call import Call
from ottla.console.auth import rights

COALESCE_SECONDS = 0.25  # changes within this time are sent together
HEARTBEAT_SECONDS = 10.0


class Ages(msgspec.Struct, frozen=True):
    """By cluster and part: version, wall time of reading in ms (0: never), why the last reading failed."""

    now_ms: int
    clusters: dict[str, dict[str, tuple[int, int, str | None]]]


async def ages(call: Call) -> Ages:
    """The current versions, for browsers that cannot share a stream."""
    return Ages(call.console.clock.now_ms(), _visible_ages(call))


async def stream(call: Call) -> StreamingResponse:
    call.console.event_streams.check()
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_counted_stream(call), media_type="text/event-stream", headers=headers)


async def _counted_stream(call: Call) -> AsyncIterator[bytes]:
    with call.console.event_streams.take():
        async for piece in _event_lines(call):
            yield piece


async def _event_lines(call: Call) -> AsyncIterator[bytes]:
    """Events until the session or the console ends."""
    console, session = call.console, call.caller.session
    last_sent: object = None
    while not console.is_stopping and (session is None or not session.has_ended(console.clock.now_ms())):
        changed = console.changed
        clusters = _visible_ages(call)
        if clusters != last_sent:
            last_sent = clusters
            yield b"data: " + msgspec.json.encode(Ages(console.clock.now_ms(), clusters)) + b"\n\n"
        else:
            yield b": still here\n\n"
        await _wait_for_any(changed, session.ended if session is not None else None)
        await asyncio.sleep(0 if console.is_stopping else COALESCE_SECONDS)


def _visible_ages(call: Call) -> dict[str, dict[str, tuple[int, int, str | None]]]:
    ages = call.console.ages()
    return {name: ages[name] for name in ages if rights.has_role(call.caller.grants, rights.Role.VIEWER, name)}


async def _wait_for_any(*events: asyncio.Event | None) -> None:
    waiting = [tasks.spawn_awaited(event.wait(), "an event stream") for event in events if event is not None]
    try:
        await asyncio.wait(waiting, timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
