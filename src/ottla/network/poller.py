"""The selector under the event loop: it hands socket events straight to their connections.

asyncio asks a selector what is ready, queues a callback for each answer and then runs the queue: about three
microseconds a request that a busy broker does not have. Here a watched connection is called directly from epoll's
answer; everything else (timers, listeners, worker threads' wake-ups) goes the ordinary way through asyncio.

It also measures the loop: the time from epoll's answer to the next question is how long everybody else waited.
"""

from __future__ import annotations

import logging
import select
import selectors
import time
from collections.abc import Mapping
from typing import Protocol, TypeAlias

from ottla.network.run_delay import RunDelay
from ottla.network.slow_rounds import SlowRounds

logger = logging.getLogger(__name__)

READABLE = select.EPOLLIN
GONE = select.EPOLLHUP | select.EPOLLERR
WRITABLE = select.EPOLLOUT
SLOW_NS = 10_000_000
MARK_NS = 1_000_000  # so exact is what is known about a slow round
EVENTS_MAX = 64
SPIN_NS = 250_000
SLEPT_NS = 350_000  # a request that came so soon would have come within SPIN_NS if we had stayed awake for it
CERTAIN = 256  # `_hope` if every wait was a short one
WORTH_SPINNING = 205  # four of five
LOOK_NS = 10_000_000  # so often whoever would spin looks whether others want the core
CROWDED = 4  # they do if this thread could have run, and did not, for more than one part in so many of the time
TURN_NS = 4_000_000  # so long connections are served before timers and everybody else have their turn
FLUSH_AT = 16  # connections; more in one go would let the clients idle until all of them are served


class Watched(Protocol):
    """A connection, as the poller sees it."""

    def on_readable(self) -> None: ...

    def on_writable(self) -> None: ...

    def flush(self) -> None: ...

    def abandon(self, reason: str) -> None: ...


class HasDescriptor(Protocol):
    """A socket or anything else with a descriptor."""

    def fileno(self) -> int: ...


FileObject: TypeAlias = int | HasDescriptor


class Poller:
    """What asyncio needs of a selector, on epoll, with a fast lane for connections.

    Not a subclass of selectors.BaseSelector, which could not be compiled; asyncio does not ask for one.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._keys: dict[FileObject, selectors.SelectorKey] = {}
        self._watched: dict[int, Watched] = {}
        self._to_flush: list[Watched] = []
        self._put_off: list[tuple[int, int]] = []  # events of the last round that there was no time for
        self._run_delay = RunDelay()
        self._looked_ns = 0  # when we looked last whether others want the core
        self._is_crowded = False
        self._hope = 0  # how many of the last waits for a request were short, of CERTAIN; so the next one may be, too
        self.waiting = 0  # sockets that wait for their turn, in this round or, if it is a full one, in the next
        self.answered_ns = 0  # when epoll's last answer came
        self.busy_ns = 0  # all time that was not spent waiting
        self.recent_ns = 0  # the longest round since somebody set this to 0
        self.longest_ns = 0
        self.slow_count = 0
        self.slow = SlowRounds(self._run_delay)
        self._marked_ns = 0  # when it was told last that a round begins

    # ---- the fast lane

    def watch(self, descriptor: int, watched: Watched) -> None:
        self._watched[descriptor] = watched
        self._epoll.register(descriptor, select.EPOLLIN)

    def interest(self, descriptor: int, readable: bool, writable: bool) -> None:
        mask = (select.EPOLLIN if readable else 0) | (select.EPOLLOUT if writable else 0)
        self._epoll.modify(descriptor, mask)

    def flush_later(self, watched: Watched) -> None:
        """Have its answers sent when all requests of this round are dealt with.

        Sending at once would wake the client for each single answer: half of the cost of a small request.
        """
        self._to_flush.append(watched)

    def _flush(self) -> None:
        waiting, self._to_flush = self._to_flush, []
        for connection in waiting:
            try:
                connection.flush()
            except Exception:  # as in _call
                logger.exception("closing a connection after an unexpected error")
                connection.abandon("unexpected error")

    def unwatch(self, descriptor: int) -> None:
        if self._watched.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)
            if self._put_off:  # the next socket may get the same number
                self._put_off = [event for event in self._put_off if event[0] != descriptor]

    # ---- what asyncio asks for

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._to_flush:
            self._flush()
        asked_ns = self._note_iteration()
        ready: list[tuple[selectors.SelectorKey, int]] = []
        events, self._put_off = self._put_off, []
        if events:
            self._begin_round(asked_ns)
            self._serve(events, ready)
            return ready
        events = self._wait(timeout, asked_ns)
        answered_ns = time.monotonic_ns()
        self._begin_round(answered_ns)
        if self._serve(events, ready):  # room to send, or what a worker has to say, tells nothing about the next one
            self._learn(answered_ns - asked_ns < SLEPT_NS)
        return ready

    def _serve(self, events: list[tuple[int, int]], ready: list[tuple[selectors.SelectorKey, int]]) -> bool:
        """Call the connections among these, as many as there is time for, and note what asyncio itself waits for.

        The result is whether there were requests.
        """
        watched = self._watched
        flush_at = FLUSH_AT
        requests = 0
        self.waiting = len(events) + (len(events) == EVENTS_MAX)
        late_ns = self.answered_ns + TURN_NS
        is_late = False
        for descriptor, event in events:
            self.waiting -= 1
            connection = watched.get(descriptor)
            if connection is None:
                key = self._keys.get(descriptor)
                if key is not None:
                    ready.append((key, _events(event) & key.events))
            elif is_late:
                self._put_off.append((descriptor, event))
                self.waiting += 1
            else:
                requests |= event & READABLE
                self._call(connection, event)
                if len(self._to_flush) >= flush_at:
                    self._flush()
                is_late = self.waiting & 3 == 1 and time.monotonic_ns() > late_ns  # a look at the clock costs, too
        if self._to_flush:
            self._flush()
        return requests != 0

    def _call(self, connection: Watched, event: int) -> None:
        try:
            if event & WRITABLE:
                connection.on_writable()
            if event & READABLE:
                connection.on_readable()
            elif event & GONE:
                # Reported again and again until somebody acts, also while we do not read from this peer.
                connection.abandon("connection lost")
        except Exception:  # one of the loops that own a task: a bug in one connection must not stop the others
            logger.exception("closing a connection after an unexpected error")
            connection.abandon("unexpected error")

    def _wait(self, timeout: float | None, asked_ns: int) -> list[tuple[int, int]]:
        """Ask epoll. Where requests lately followed each other within microseconds it is asked again and again.

        Falling asleep and being woken costs more than such a request itself, above all on virtual machines. But who
        spins in vain burns a core: of a message that one client sends and another waits for, every second wait is a
        long one. So it is worth it only where four of five waits are short, and everybody else is waited for asleep.
        And whoever spins while others wait for the core, brokers of the same machine above all, takes it from them.
        """
        try:
            if self._hope >= WORTH_SPINNING and timeout != 0 and not self._others_wait(asked_ns):
                while time.monotonic_ns() - asked_ns < SPIN_NS:
                    events = self._epoll.poll(0, EVENTS_MAX)
                    if events:
                        return events
                self._learn(False)
            return self._epoll.poll(timeout, EVENTS_MAX)
        except InterruptedError:
            return []

    def _others_wait(self, now_ns: int) -> bool:
        past_ns = now_ns - self._looked_ns
        if past_ns > LOOK_NS:
            self._looked_ns = now_ns
            self._is_crowded = self._run_delay.since_last() * CROWDED > past_ns
        return self._is_crowded

    def _learn(self, is_short: bool) -> None:
        """A mean of the last sixteen waits or so, in which older ones count less and less."""
        if is_short:
            self._hope += (CERTAIN - self._hope) >> 4
        else:
            self._hope -= self._hope >> 4

    def _begin_round(self, now_ns: int) -> None:
        self.answered_ns = now_ns
        if now_ns - self._marked_ns > MARK_NS:
            self._marked_ns = now_ns
            self.slow.mark()

    def forget(self) -> None:
        """Measure from here on: what took long until now made nobody wait."""
        self.longest_ns = self.recent_ns = self.answered_ns = self.slow_count = 0
        self.slow.forget()

    def _note_iteration(self) -> int:
        """How long the last round took; the result is the time now."""
        now_ns = time.monotonic_ns()
        if self.answered_ns:
            taken = now_ns - self.answered_ns
            self.busy_ns += taken
            if taken > SLOW_NS:
                self.slow_count += 1
                self.slow.note(taken, is_longest=taken > self.longest_ns)
            if taken > self.recent_ns:
                self.recent_ns = taken
                self.longest_ns = max(self.longest_ns, taken)
        return now_ns

    def register(self, fileobj: FileObject, events: int, data: object = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, _descriptor(fileobj), events, data)
        if key.fd in self._keys:
            raise KeyError(f"{fileobj!r} (FD {key.fd}) is already registered")
        self._keys[key.fd] = key
        self._epoll.register(key.fd, _mask(events))
        return key

    def unregister(self, fileobj: FileObject) -> selectors.SelectorKey:
        key = self._keys.pop(_descriptor(fileobj))
        try:
            self._epoll.unregister(key.fd)
        except OSError:
            logger.debug("descriptor %d was closed before it was unregistered", key.fd)
        return key

    def modify(self, fileobj: FileObject, events: int, data: object = None) -> selectors.SelectorKey:
        descriptor = _descriptor(fileobj)
        key = self._keys[descriptor]._replace(events=events, data=data)
        self._epoll.modify(descriptor, _mask(events))
        self._keys[descriptor] = key
        return key

    def get_key(self, fileobj: FileObject) -> selectors.SelectorKey:
        return self._keys[_descriptor(fileobj)]

    def get_map(self) -> Mapping[FileObject, selectors.SelectorKey]:
        return self._keys  # asyncio looks keys up by descriptor only

    def close(self) -> None:
        self._epoll.close()
        self._run_delay.close()
        self._keys.clear()
        self._watched.clear()

    def __repr__(self) -> str:
        return f"<Poller {len(self._watched)} connections, longest iteration {self.longest_ns / 1e6:.1f} ms>"


def _descriptor(fileobj: FileObject) -> int:
    return fileobj if isinstance(fileobj, int) else fileobj.fileno()


def _mask(events: int) -> int:
    mask = select.EPOLLIN if events & selectors.EVENT_READ else 0
    return mask | (select.EPOLLOUT if events & selectors.EVENT_WRITE else 0)


def _events(mask: int) -> int:
    writable = selectors.EVENT_WRITE if mask & ~select.EPOLLIN else 0
    return writable | (selectors.EVENT_READ if mask & ~select.EPOLLOUT else 0)
