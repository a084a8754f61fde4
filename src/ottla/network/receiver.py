"""A thread that receives large frames while the loop checks and stores others.

Copying a frame out of the kernel is a fifth of what a large Produce request costs, and needs nothing that the loop
owns: so where several clients send large frames at once it is done beside the loop, which gets the frame when it is
there. The thread takes what has come and never waits for a client: who sends slowly costs it nothing. A client that is
alone is received from by the loop itself, since two threads that wait for each other gain nothing.
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

from ottla.network.transport import Transport

logger = logging.getLogger(__name__)

WORTH_BYTES: Final = 256 * 1024  # copying less takes no longer than handing it from thread to thread
NOTHING_CAME: Final = -1

_count: Final = struct.Struct("i")


class Rounds(Protocol):
    """The poller: when its round began tells one round from the next."""

    answered_ns: int


class Recipient(Protocol):
    """A connection that waits for its bytes."""

    transport: Transport
    descriptor: int

    def on_received(self, received: int, error: OSError | None) -> None: ...

    def abandon(self, reason: str) -> None: ...


class Aside(Protocol):
    """Who receives large frames beside the loop, as a connection sees it."""

    def takes(self, recipient: Recipient, view: memoryview) -> bool: ...


class _Piece:
    """What one connection is to receive, and what came of it."""

    __slots__ = ("error", "received", "recipient", "view")

    def __init__(self, recipient: Recipient, view: memoryview) -> None:
        self.recipient = recipient
        self.view = view
        self.received = NOTHING_CAME
        self.error: OSError | None = None

    def receive(self) -> None:
        try:
            self.received = self.recipient.transport.receive_into(self.view)
        except BlockingIOError:
            pass
        except OSError as error:
            self.error = error


class Receiver:
    """One such thread. It is started when it is needed first, and it ends with the broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rounds: Rounds) -> None:
        self._loop = loop
        self._rounds = rounds
        self._round_ns = 0  # the last round in which the loop received a large frame itself
        self._under_way = 0
        self._pieces: queue.SimpleQueue[_Piece | None] = queue.SimpleQueue()
        self._received: deque[_Piece] = deque()
        self._thread: threading.Thread | None = None

    def takes(self, recipient: Recipient, view: memoryview) -> bool:
        """Whether the view is filled beside the loop; on_received() of the recipient follows then, in the loop."""
        round_ns = self._rounds.answered_ns
        if self._under_way == 0 and self._round_ns != round_ns:
            self._round_ns = round_ns
            return False
        if len(view) < WORTH_BYTES or _waiting_bytes(recipient.descriptor) < WORTH_BYTES:
            return False
        self.receive(recipient, view)
        return True

    def receive(self, recipient: Recipient, view: memoryview) -> None:
        """Have the view filled; the recipient leaves it and its transport alone until on_received()."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)
            self._thread.start()
        self._under_way += 1
        self._pieces.put(_Piece(recipient, view))

    def _run(self) -> None:
        while (piece := self._pieces.get()) is not None:
            piece.receive()
            self._received.append(piece)
            self._loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        piece = self._received.popleft()
        self._under_way -= 1
        try:
            piece.recipient.on_received(piece.received, piece.error)
        except Exception:  # as in the poller: a bug in one connection must not stop the others
            logger.exception("closing a connection after an unexpected error")
            piece.recipient.abandon("unexpected error")

    def close(self) -> None:
        """Ends the thread; nobody may ask for anything any more."""
        if self._thread is not None:
            self._pieces.put(None)
            self._thread.join()
            self._thread = None

    def __repr__(self) -> str:
        return f"<Receiver {self._under_way} under way>"


def _waiting_bytes(descriptor: int) -> int:
    """How much the kernel holds for us."""
    answer: tuple[int] = _count.unpack(fcntl.ioctl(descriptor, termios.FIONREAD, b"\0\0\0\0"))
    return answer[0]
