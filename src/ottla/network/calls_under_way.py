"""Calls whose answers are to come over one outgoing connection, in the order in which they were made.

Compiled with mypyc where possible.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ottla.network.answer_frames import AnswerFrames
from ottla.protocol.codec import ProtocolError, decode_answer
from ottla.protocol.headers import decode_response_header

FETCH: Final = 1
APART_BYTES_MIN: Final = 256 * 1024  # so large an answer, unless it brings records, is decoded by a worker
TIDY_SECONDS: Final = 10.0


class Call:
    """A request whose answer is to come."""

    def __init__(
        self, key: int, version: int, correlation_id: int, response: type[Any], future: asyncio.Future[Any]
    ) -> None:
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.response = response
        self.future = future
        self.received_before = 0  # bytes that had come when it was sent


OnNonsense = Callable[[Call, BaseException], None]
"""Told of an answer that was decoded apart and makes no sense."""


class CallsUnderWay:
    """Matches what is received with what was asked."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_nonsense: OnNonsense) -> None:
        self._loop = loop
        self._on_nonsense = on_nonsense
        self._calls: deque[Call] = deque()
        self._frames = AnswerFrames()
        self._tidy_due: asyncio.TimerHandle | None = None
        self._tidied_at = 0  # how many large frames there were then

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, call: object) -> bool:
        return call in self._calls

    def add(self, call: Call) -> None:
        self._calls.append(call)

    def room(self) -> memoryview:
        """Where the next bytes go."""
        return self._frames.room()

    def took(self, count: int) -> bool:
        """So many bytes came; whether that has answered a call. ProtocolError if they are no answer."""
        frames = self._frames.took(count)
        for frame in frames:
            self._on_answer(frame)
        return len(frames) > 0

    def give_up(self) -> list[Call]:
        """The connection is gone: whoever waits must be told."""
        self._frames = AnswerFrames()
        calls, self._calls = self._calls, deque()
        return [call for call in calls if not call.future.done()]

    def close(self) -> None:
        if self._tidy_due is not None:
            self._tidy_due.cancel()
            self._tidy_due = None

    # ---- answers

    def _on_answer(self, frame: memoryview) -> None:
        if not self._calls:
            raise ProtocolError("an answer to nothing")
        call = self._calls[0]
        correlation_id, position = decode_response_header(call.key, call.version, frame)
        if correlation_id != call.correlation_id:
            raise ProtocolError(f"the answer to request {correlation_id} instead of {call.correlation_id}")
        is_large = len(frame) >= APART_BYTES_MIN
        if is_large:
            self._tidy_later()
        if call.future.done():  # its time was up, or nobody waits any more
            self._calls.popleft()
        elif is_large and call.key != FETCH:
            self._calls.popleft()
            self._decode_apart(call, frame, position)
        else:
            answer = decode_answer(call.response, call.version, frame, position)[0]
            self._calls.popleft()  # after decoding: an answer that cannot be read fails this call, too
            call.future.set_result(answer)

    def _decode_apart(self, call: Call, frame: memoryview, position: int) -> None:
        """Ten thousand partitions take a while: a worker decodes them, the loop goes on."""
        decoding = self._loop.run_in_executor(None, decode_answer, call.response, call.version, frame, position)

        def on_decoded(done: asyncio.Future[tuple[Any, int]]) -> None:
            if call.future.done() or done.cancelled():
                return
            problem = done.exception()
            if problem is None:
                call.future.set_result(done.result()[0])
            else:
                self._on_nonsense(call, problem)

        decoding.add_done_callback(on_decoded)

    def _tidy_later(self) -> None:
        if self._tidy_due is None:
            self._tidy_due = self._loop.call_later(TIDY_SECONDS, self._tidy)

    def _tidy(self) -> None:
        """Give the memory of large answers back when none came for a while."""
        self._tidy_due = None
        if self._frames.large_count == self._tidied_at:
            self._frames.forget()
        else:
            self._tidied_at = self._frames.large_count
            self._tidy_later()
