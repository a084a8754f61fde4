"""A thread that receives large frames while the event loop checks and stores others.

Copying a frame out of the kernel is a fifth of the cost of a large Produce request, and needs no state of the loop. If
several clients send large frames at once, this thread therefore receives them and passes them to the loop. It reads the
available bytes and never waits for a client. With a single client the loop receives the frames itself: two threads that
wait for each other are not faster.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import queue
import struct
import termios
import threading
from collections import deque
from typing import Final, Protocol

from ottla.base import tasks
from ottla.network.close_reason import CloseReason
from ottla.network.transport import Transport

logger = logging.getLogger(__name__)

OFFLOADED_BYTES_MIN: Final = 256 * 1024  # copying fewer bytes is as fast as passing them between threads
NOTHING_RECEIVED: Final = -1

_count: Final = struct.Struct("i")


class RoundClock(Protocol):
    """The part of the poller that this module uses; the start time identifies a round."""

    round_start_ns: int


class Recipient(Protocol):
    """A connection that receives."""

    transport: Transport
    descriptor: int

    def on_received(self, received: int, error: OSError | None) -> None: ...

    def abandon(self, reason: CloseReason, detail: str = "") -> None: ...


class OffloadedReceiver(Protocol):
    """The interface for receiving large frames outside of the event loop."""

    def try_receive(self, recipient: Recipient, view: memoryview) -> bool: ...


class _ReceiveJob:
    """One receive operation and its result."""

    __slots__ = ("error", "received", "recipient", "view")

    def __init__(self, recipient: Recipient, view: memoryview) -> None:
        self.recipient = recipient
        self.view = view
        self.received = NOTHING_RECEIVED
        self.error: OSError | None = None

    def receive(self) -> None:
        try:
            self.received = self.recipient.transport.receive_into(self.view)
        except BlockingIOError:
            pass
        except OSError as error:
            self.error = error
        except Exception as error:  # a bug in one connection must not end the thread, which serves all
            tasks.counts.failed += 1
            logger.exception("a connection could not be received from")
            self.error = OSError(str(error))


class ReceiverThread:
    """The receiver thread, started at first use."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rounds: RoundClock) -> None:
        self._loop = loop
        self._rounds = rounds
        self._round_ns = 0  # the last round in which the loop itself received a large frame
        self._in_flight = 0
        self._jobs: queue.SimpleQueue[_ReceiveJob | None] = queue.SimpleQueue()
        self._received: deque[_ReceiveJob] = deque()
        self._thread: threading.Thread | None = None

    def try_receive(self, recipient: Recipient, view: memoryview) -> bool:
        """Return whether the thread fills the view; if so, the loop calls on_received() of the recipient later."""
        round_ns = self._rounds.round_start_ns
        if self._in_flight == 0 and self._round_ns != round_ns:
            self._round_ns = round_ns
            return False
        if len(view) < OFFLOADED_BYTES_MIN or _readable_bytes(recipient.descriptor) < OFFLOADED_BYTES_MIN:
            return False
        self.receive(recipient, view)
        return True

    def receive(self, recipient: Recipient, view: memoryview) -> None:
        """Fill the view in the thread. The recipient must not use it or its transport before on_received()."""
        if self._thread is None:
            self._thread = tasks.start_thread(self._run, "receiver")
        self._in_flight += 1
        self._jobs.put(_ReceiveJob(recipient, view))

    def _run(self) -> None:
        while (piece := self._jobs.get()) is not None:
            piece.receive()
            self._received.append(piece)
            self._loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        piece = self._received.popleft()
        self._in_flight -= 1
        try:
            piece.recipient.on_received(piece.received, piece.error)
        except Exception:  # a bug in one connection must not stop the others
            logger.exception("closing a connection after an unexpected error")
            piece.recipient.abandon(CloseReason.UNEXPECTED_ERROR, "an unexpected error")

    def close(self) -> None:
        """End the thread; no further requests are allowed."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def __repr__(self) -> str:
        return f"<ReceiverThread {self._in_flight} in flight>"


def _readable_bytes(descriptor: int) -> int:
    """Return the number of bytes that the kernel has received."""
    answer: tuple[int] = _count.unpack(fcntl.ioctl(descriptor, termios.FIONREAD, b"\0\0\0\0"))
    return answer[0]
