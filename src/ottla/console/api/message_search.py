"""A search in a topic as a stream of JSON lines for pages, or as a file. Closing the connection stops the search.

    {"hit": {…}}  {"progress": {…}}  {"end": {…}}  {"error": "sentence"}
If a file is incomplete, the connection is aborted, so that the download fails.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
from starlette.responses import StreamingResponse

from ottla.client.errors import ClientError
from ottla.console.api.call import Call
from ottla.console.api.errors import ApiError, bad_request
from ottla.console.api.messages import SHOWN_BYTES, checked_topic_name, masks_of, partitions_of, unread_row
from ottla.operations.messages.export import csv_header, csv_line, json_line
from ottla.operations.messages.expressions.parser import ExpressionError, parse
from ottla.operations.messages.message import Message
from ottla.operations.messages.message_decoder import Decoder
from ottla.operations.messages.offset_ranges import OffsetBound, OffsetWindow
from ottla.operations.messages.record_reader import OFFSET_MAX
from ottla.operations.messages.search import Progress, Search, SearchLimits, Summary

HITS_DEFAULT, HITS_MAX = 500, 10_000  # of a search in a page
FILE_HITS_DEFAULT, FILE_HITS_MAX = 100_000, 10_000_000
SECONDS_MAX = 3600
BATCH_SECONDS = 0.1  # between two batches for a page
BATCH_EVENTS_MAX = 200
FETCH_BYTES = 1 << 20  # small, to keep other threads responsive
UNREAD_SHOWN_MAX = 100  # listed individually

Event = Message | Progress | Summary
Encode = Callable[[list[Event]], bytes]


async def search(call: Call) -> StreamingResponse:
    running = await _search(
        call, call.int_query("limit", HITS_DEFAULT, HITS_MAX), call.query("order", "newest") == "newest"
    )
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_lines(call, running, _encode), media_type="application/x-ndjson", headers=headers)


async def download(call: Call) -> StreamingResponse:
    topic, form = checked_topic_name(call), call.query("format", "json")
    if form not in ("json", "csv"):
        raise bad_request("format must be json or csv")
    running = await _search(
        call, call.int_query("limit", FILE_HITS_DEFAULT, FILE_HITS_MAX), call.query("order") == "newest"
    )
    name = f"{topic}.{'csv' if form == 'csv' else 'jsonl'}"  # topic names need no quoting
    kind = "text/csv; charset=utf-8" if form == "csv" else "application/x-ndjson"
    headers = {"Cache-Control": "no-store", "Content-Disposition": f'attachment; filename="{name}"'}
    first = csv_header().encode() if form == "csv" else b""
    write = csv_line if form == "csv" else lambda message: f"{json_line(topic, message)}\n"
    return StreamingResponse(_file_chunks(call, running, first, write), media_type=kind, headers=headers)


async def _search(call: Call, hits: int, is_newest_first: bool) -> Search:
    topic = checked_topic_name(call)
    call.console.message_workers.searches.check()
    try:
        expression = parse(call.query("q"))
    except ExpressionError as problem:
        raise bad_request(str(problem)) from None
    address = call.cluster.address
    return Search(
        lambda: address.make_client(10_000),
        OffsetWindow(topic, partitions_of(call), _bound(call, "from"), _bound(call, "to")),
        expression,
        limits=SearchLimits(hits=max(1, hits), seconds=call.int_query("seconds", SECONDS_MAX, SECONDS_MAX)),
        decoder=Decoder(topic, call.console.message_workers.schemas(address)),
        masks=await masks_of(call, topic),
        is_newest_first=is_newest_first,
        with_aborted=call.query("aborted") == "1",
        fetch_bytes=FETCH_BYTES,
    )


def _bound(call: Call, name: str) -> OffsetBound:
    """`from_time`, `from_offset`, `to_time`, `to_offset`."""
    if call.query(f"{name}_time"):
        return OffsetBound(time_ms=call.int_query(f"{name}_time", 0, OFFSET_MAX))
    if call.query(f"{name}_offset"):
        return OffsetBound(offset=call.int_query(f"{name}_offset", 0, OFFSET_MAX))
    return OffsetBound()


async def _lines(call: Call, running: Search, encode: Encode) -> AsyncIterator[bytes]:
    """Ends with the session, with the search, or when the client disconnects."""
    try:
        async for batch in _batches(call, running):
            yield encode(batch)
    except (ClientError, ApiError) as problem:
        yield msgspec.json.encode({"error": str(problem)}) + b"\n"


async def _file_chunks(
    call: Call, running: Search, first: bytes, write: Callable[[Message], str]
) -> AsyncIterator[bytes]:
    if first:
        yield first
    is_whole = False
    async for batch in _batches(call, running):
        yield "".join(write(event) for event in batch if isinstance(event, Message)).encode("utf-8", "replace")
        for event in batch:
            is_whole = isinstance(event, Summary)
            if isinstance(event, Summary) and (event.has_failures or event.is_stopped):
                raise IncompleteFileError(f"some records could not be read: {event.unread[:1]}")
    if not is_whole:
        raise IncompleteFileError("the session has ended, or the console stops")


class IncompleteFileError(Exception):
    """Aborts the connection, so that browsers report a failed download."""


async def _batches(call: Call, running: Search) -> AsyncIterator[list[Event]]:
    workers = call.console.message_workers
    with workers.searches.take():
        events = running.events()
        try:
            async for batch in workers.batches(events, _next_events):
                if call.console.is_stopping or _is_session_over(call):
                    return
                yield batch
        finally:
            running.stop()
            workers.search_pool.submit(_close, events)


def _is_session_over(call: Call) -> bool:
    session = call.caller.session
    return session is not None and session.has_ended(call.console.clock.now_ms())


def _next_events(events: Iterator[Event]) -> list[Event]:
    """The next batch of events, in the thread of the search; consecutive progress events are merged."""
    found: list[Event] = []
    deadline = time.monotonic() + BATCH_SECONDS
    for event in events:
        if isinstance(event, Progress) and found and isinstance(found[-1], Progress):
            found[-1] = event
        else:
            found.append(event)
        if len(found) >= BATCH_EVENTS_MAX or time.monotonic() >= deadline:
            break
    return found


def _close(events: Iterator[Event]) -> None:
    close = getattr(events, "close", None)
    if close is not None:
        close()


def _encode(batch: list[Event]) -> bytes:
    return b"".join(msgspec.json.encode(_event_json(event)) + b"\n" for event in batch)


def _event_json(event: Event) -> dict[str, Any]:
    if isinstance(event, Message):
        return {"hit": event.to_json(SHOWN_BYTES)}
    if isinstance(event, Progress):
        return {"progress": event._asdict()}
    return {
        "end": {
            **event.progress._asdict(),
            "is_stopped": event.is_stopped,
            "limit": event.limit,
            "has_trouble": event.has_failures,
            "unread": [unread_row(item) for item in event.unread[:UNREAD_SHOWN_MAX]],
            "unread_ranges": len(event.unread),
        }
    }
