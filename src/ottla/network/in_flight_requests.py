"""The requests in flight on an outgoing connection, and the frames of their responses. Compiled with mypyc where
possible.

Rules:
1. A frame may be kept, as views, for any time: it is never overwritten while a view exists.
2. A large frame is received directly into its own anonymous memory map. The kernel allocates pages as bytes arrive, so
an announced length costs nothing, and a growing frame is not copied.
3. A map is reused when no view of it exists: a follower receives a few megabytes again and again, and fresh pages cost
   nearly as much as receiving.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
from collections import deque
from collections.abc import Callable
from sys import getrefcount
from typing import Any, Final

from ottla.protocol.codec import ProtocolError, decode_response
from ottla.protocol.headers import decode_response_header

SIZE_BYTES: Final = 4
SCRATCH_BYTES: Final = 64 * 1024
FRAME_BYTES_MAX: Final = 1024 * 1024 * 1024
FRAME_BYTES_MIN: Final = 4  # the size of the correlation id
LARGE_BYTES_MIN: Final = 128 * 1024  # the smallest map
KEPT_MAX: Final = 3
KEPT_BYTES_MAX: Final = 16 * 1024 * 1024  # maximum size of a map that is kept

_size: Final = struct.Struct(">i")


class ResponseFrames:
    """The receive buffer, and the frames that are complete."""

    def __init__(self) -> None:
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._scratch_bytes = 0  # bytes in scratch
        self._large: memoryview | None = None  # a large frame that is not complete yet
        self._filled = 0
        self._kept_maps: list[mmap.mmap] = []
        self._free_references = self._count_references_of_free()
        self.large_count = 0  # number of frames with their own map

    def receive_buffer(self) -> memoryview:
        """Return the buffer for the next bytes; never past the end of a large frame."""
        if self._large is not None:
            return self._large[self._filled :]
        return self._scratch[self._scratch_bytes :]

    def add_received(self, count: int) -> list[memoryview]:
        """Add bytes received into receive_buffer(); returns the frames that are complete now, without their size."""
        large = self._large
        if large is None:
            self._scratch_bytes += count
            return self._split_frames()
        self._filled += count
        if self._filled < len(large):
            return []
        self._large = None
        return [large]

    def _split_frames(self) -> list[memoryview]:
        frames: list[memoryview] = []
        scratch, end, position = self._scratch, self._scratch_bytes, 0
        while end - position >= SIZE_BYTES:
            size: int = _size.unpack_from(scratch, position)[0]
            if not FRAME_BYTES_MIN <= size <= FRAME_BYTES_MAX:
                raise ProtocolError(f"a frame of {size} bytes")
            start = position + SIZE_BYTES
            if start + size > end:
                break
            frames.append(memoryview(bytes(scratch[start : start + size])))
            position = start + size
        self._keep(position, end)
        return frames

    def _keep(self, position: int, end: int) -> None:
        """Move the start of the next frame to where its rest will be received."""
        scratch, rest = self._scratch, end - position
        self._scratch_bytes = rest
        if rest >= SIZE_BYTES:
            size: int = _size.unpack_from(scratch, position)[0]
            if SIZE_BYTES + size > SCRATCH_BYTES:
                self._large = large = self._allocate_large(size)
                self._filled = rest - SIZE_BYTES
                large[: self._filled] = scratch[position + SIZE_BYTES : end]
                self._scratch_bytes = 0
                return
        if rest and position:
            scratch[:rest] = bytes(scratch[position:end])

    # ---- memory of large frames

    def _allocate_large(self, size: int) -> memoryview:
        self.large_count += 1
        kept = self._kept_maps
        for index in range(len(kept)):
            if len(kept[index]) >= size and self._references(index) == self._free_references:
                return memoryview(kept[index])[:size]
        made = mmap.mmap(-1, max(LARGE_BYTES_MIN, 1 << (size - 1).bit_length()))
        if len(made) <= KEPT_BYTES_MAX:
            kept.append(made)
            if len(kept) > KEPT_MAX:
                del kept[0]
        return memoryview(made)[:size]

    def release_memory(self) -> None:
        """Free the memory after a while without large frames."""
        self._kept_maps.clear()

    def _references(self, index: int) -> int:
        return getrefcount(self._kept_maps[index])

    def _count_references_of_free(self) -> int:
        """Return the reference count of a map without views; it differs in compiled code."""
        self._kept_maps.append(mmap.mmap(-1, mmap.PAGESIZE))
        references = self._references(0)
        self._kept_maps.clear()
        return references

    def __repr__(self) -> str:
        part = f"{self._filled} of {len(self._large)}" if self._large is not None else f"{self._scratch_bytes}"
        return f"<ResponseFrames {part} bytes, {len(self._kept_maps)} maps kept>"


FETCH: Final = 1
OFFLOADED_BYTES_MIN: Final = 256 * 1024  # larger responses without records are decoded by a worker
RELEASE_SECONDS: Final = 10.0


class InFlightRequest:
    """A request without a response."""

    def __init__(
        self, key: int, version: int, correlation_id: int, response: type[Any], future: asyncio.Future[Any]
    ) -> None:
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.response = response
        self.future = future
        self.received_bytes_when_sent = 0  # number of received bytes when it was sent


OnMalformedResponse = Callable[[InFlightRequest, BaseException], None]
"""Called if a response that a worker has decoded is malformed."""


class InFlightRequests:
    """Matches responses with requests."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_nonsense: OnMalformedResponse) -> None:
        self._loop = loop
        self._on_malformed_response = on_nonsense
        self._calls: deque[InFlightRequest] = deque()
        self._frames = ResponseFrames()
        self._release_timer: asyncio.TimerHandle | None = None
        self._released_at_count = 0  # number of large frames at the last check

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, call: object) -> bool:
        return call in self._calls

    def add(self, call: InFlightRequest) -> None:
        self._calls.append(call)

    def receive_buffer(self) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._frames.receive_buffer()

    def add_received(self, count: int) -> bool:
        """Add received bytes; true if a request was completed. Raises ProtocolError for an invalid response."""
        frames = self._frames.add_received(count)
        for frame in frames:
            self._on_answer(frame)
        return len(frames) > 0

    def clear_all(self) -> list[InFlightRequest]:
        """Remove and return the pending requests, because the connection is closed."""
        self._frames = ResponseFrames()
        calls, self._calls = self._calls, deque()
        return [call for call in calls if not call.future.done()]

    def close(self) -> None:
        if self._release_timer is not None:
            self._release_timer.cancel()
            self._release_timer = None

    # ---- answers

    def _on_answer(self, frame: memoryview) -> None:
        if not self._calls:
            raise ProtocolError("a response without a request")
        call = self._calls[0]
        correlation_id, position = decode_response_header(call.key, call.version, frame)
        if correlation_id != call.correlation_id:
            raise ProtocolError(f"a response to request {correlation_id} instead of {call.correlation_id}")
        is_large = len(frame) >= OFFLOADED_BYTES_MIN
        if is_large:
            self._schedule_release()
        if call.future.done():  # the request timed out or was cancelled
            self._calls.popleft()
        elif is_large and call.key != FETCH:
            self._calls.popleft()
            self._offload_decoding(call, frame, position)
        else:
            answer = decode_response(call.response, call.version, frame, position)[0]
            self._calls.popleft()  # after decoding: an invalid response must also fail this request
            call.future.set_result(answer)

    def _offload_decoding(self, call: InFlightRequest, frame: memoryview, position: int) -> None:
        """Decode a large response in a worker, without blocking the event loop."""
        decoding = self._loop.run_in_executor(None, decode_response, call.response, call.version, frame, position)

        def on_decoded(done: asyncio.Future[tuple[Any, int]]) -> None:
            if call.future.done() or done.cancelled():
                return
            problem = done.exception()
            if problem is None:
                call.future.set_result(done.result()[0])
            else:
                self._on_malformed_response(call, problem)

        decoding.add_done_callback(on_decoded)

    def _schedule_release(self) -> None:
        if self._release_timer is None:
            self._release_timer = self._loop.call_later(RELEASE_SECONDS, self._release_memory)

    def _release_memory(self) -> None:
        """Free the memory of large responses after a while without any."""
        self._release_timer = None
        if self._frames.large_count == self._released_at_count:
            self._frames.release_memory()
        else:
            self._released_at_count = self._frames.large_count
            self._schedule_release()
