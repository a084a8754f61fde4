"""The selector of the event loop, which calls connections directly for their socket events. Compiled with mypyc where
possible.

asyncio polls a selector, queues a callback for each event, and then runs the queue: about three microseconds per
request, which is too much for a busy broker. Here a watched connection is called directly for its epoll event.
Everything else (timers, listeners, wake-ups of worker threads) is handled by asyncio as usual.

The poller also measures the loop: the time from one epoll result to the next poll is how long other connections have
waited.
"""

from __future__ import annotations

import logging
import select
import selectors
import time
from collections.abc import Mapping
from typing import Protocol, TypeAlias

from ottla.network.close_reason import CloseReason
from ottla.network.loop_latency import SchedulerDelay, SlowIterations

logger = logging.getLogger(__name__)

READABLE = select.EPOLLIN
HANGUP = select.EPOLLHUP | select.EPOLLERR
WRITABLE = select.EPOLLOUT
SLOW_NS = 10_000_000
MARK_NS = 1_000_000  # resolution of the data about a slow round
EVENTS_MAX = 64
SPIN_NS = 250_000
SHORT_WAIT_NS = 350_000  # a request that arrived within this time would have arrived within SPIN_NS without sleeping
EWMA_ONE = 256  # value of `_short_wait_ewma` if every wait was short
SPIN_THRESHOLD = 205  # four of five waits are short
CONTENTION_CHECK_NS = 10_000_000  # interval of the check for CPU contention
CONTENTION_DIVISOR = 4  # contention: the thread waited for a CPU for more than this fraction of the time
ROUND_NS_MAX = 4_000_000  # time after which timers and other callbacks run
FLUSH_AT = 16  # number of connections per flush; with more, clients would be idle until all of them are served


class Watched(Protocol):
    """The part of a connection that the poller uses."""

    def on_readable(self) -> None: ...

    def on_writable(self) -> None: ...

    def flush(self) -> None: ...

    def abandon(self, reason: CloseReason, detail: str = "") -> None: ...


class FileDescriptorLike(Protocol):
    """A socket or another object with a descriptor."""

    def fileno(self) -> int: ...


FileObject: TypeAlias = int | FileDescriptorLike


class Poller:
    """The selector interface of asyncio on epoll, with a fast path for connections.

    Not a subclass of selectors.BaseSelector, which cannot be compiled; asyncio does not require one.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._keys: dict[FileObject, selectors.SelectorKey] = {}
        self._watched: dict[int, Watched] = {}
        self._to_flush: list[Watched] = []
        self._deferred_events: list[
            tuple[int, int]
        ] = []  # events of the last round that were deferred for lack of time
        self._run_delay = SchedulerDelay()
        self._crowd_checked_ns = 0  # time of the last check for CPU contention
        self._is_cpu_contended = False
        self._short_wait_ewma = 0  # moving average of short waits, scaled to EWMA_ONE; predicts the next wait
        self.pending_sockets = 0  # sockets with unhandled events; a full result adds one
        self.round_start_ns = 0  # time of the last epoll result
        self.busy_ns = 0  # all time except waiting in epoll
        self.recent_ns = 0  # the longest round since a reader set this to 0
        self.longest_ns = 0
        self.slow_count = 0
        self.slow_iterations = SlowIterations(self._run_delay)
        self._mark_ns = 0  # time of the last mark

    # ---- the fast lane

    def watch(self, descriptor: int, watched: Watched) -> None:
        self._watched[descriptor] = watched
        self._epoll.register(descriptor, select.EPOLLIN)

    def interest(self, descriptor: int, readable: bool, writable: bool) -> None:
        mask = (select.EPOLLIN if readable else 0) | (select.EPOLLOUT if writable else 0)
        self._epoll.modify(descriptor, mask)

    def flush_later(self, watched: Watched) -> None:
        """Send the replies of this connection when all requests of this round are handled.

        Sending at once would wake the client for each reply, which is half of the cost of a small request.
        """
        self._to_flush.append(watched)

    def _flush(self) -> None:
        waiting, self._to_flush = self._to_flush, []
        for connection in waiting:
            try:
                connection.flush()
            except Exception:  # as in _call
                logger.exception("closing a connection after an unexpected error")
                connection.abandon(CloseReason.UNEXPECTED_ERROR, "an unexpected error")

    def unwatch(self, descriptor: int) -> None:
        if self._watched.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)
            if self._deferred_events:  # the next socket may have the same number
                self._deferred_events = [event for event in self._deferred_events if event[0] != descriptor]

    # ---- what asyncio asks for

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._to_flush:
            self._flush()
        asked_ns = self._note_iteration()
        ready: list[tuple[selectors.SelectorKey, int]] = []
        events, self._deferred_events = self._deferred_events, []
        if events:
            self._begin_round(asked_ns)
            self._dispatch_events(events, ready)
            return ready
        events = self._wait(timeout, asked_ns)
        answered_ns = time.monotonic_ns()
        self._begin_round(answered_ns)
        if self._dispatch_events(events, ready):  # writability and wake-ups of workers do not predict the next request
            self._update_short_wait_ewma(answered_ns - asked_ns < SHORT_WAIT_NS)
        return ready

    def _dispatch_events(self, events: list[tuple[int, int]], ready: list[tuple[selectors.SelectorKey, int]]) -> bool:
        """Call the connections of these events while there is time, and collect the events for asyncio.

        Returns whether there were requests.
        """
        watched = self._watched
        flush_at = FLUSH_AT
        requests = 0
        self.pending_sockets = len(events) + (len(events) == EVENTS_MAX)
        late_ns = self.round_start_ns + ROUND_NS_MAX
        is_late = False
        for descriptor, event in events:
            self.pending_sockets -= 1
            connection = watched.get(descriptor)
            if connection is None:
                key = self._keys.get(descriptor)
                if key is not None:
                    ready.append((key, _events(event) & key.events))
            elif is_late:
                self._deferred_events.append((descriptor, event))
                self.pending_sockets += 1
            else:
                requests |= event & READABLE
                self._call(connection, event)
                if len(self._to_flush) >= flush_at:
                    self._flush()
                # reading the clock costs time, too
                is_late = self.pending_sockets & 3 == 1 and time.monotonic_ns() > late_ns
        if self._to_flush:
            self._flush()
        return requests != 0

    def _call(self, connection: Watched, event: int) -> None:
        try:
            if event & WRITABLE:
                connection.on_writable()
            if event & READABLE:
                connection.on_readable()
            elif event & HANGUP:
                # Reported repeatedly until it is handled, even while this peer is not read.
                connection.abandon(CloseReason.CONNECTION_LOST)
        except Exception:  # a bug in one connection must not stop the others
            logger.exception("closing a connection after an unexpected error")
            connection.abandon(CloseReason.UNEXPECTED_ERROR, "an unexpected error")

    def _wait(self, timeout: float | None, asked_ns: int) -> list[tuple[int, int]]:
        """Poll epoll; spin if requests lately followed each other within microseconds. Sleeping and waking cost more
        than such a request, above all on virtual machines. Unsuccessful spinning wastes CPU time, however: if one
        client waits for messages of another, every second wait is long. The poller therefore spins only if four of five
        waits are short, and not while other threads wait for the CPU, such as other brokers on this machine.
        """
        try:
            if self._short_wait_ewma >= SPIN_THRESHOLD and timeout != 0 and not self._is_contended(asked_ns):
                while time.monotonic_ns() - asked_ns < SPIN_NS:
                    events = self._epoll.poll(0, EVENTS_MAX)
                    if events:
                        return events
                self._update_short_wait_ewma(False)
            return self._epoll.poll(timeout, EVENTS_MAX)
        except InterruptedError:
            return []

    def _is_contended(self, now_ns: int) -> bool:
        past_ns = now_ns - self._crowd_checked_ns
        if past_ns > CONTENTION_CHECK_NS:
            self._crowd_checked_ns = now_ns
            self._is_cpu_contended = self._run_delay.since_last() * CONTENTION_DIVISOR > past_ns
        return self._is_cpu_contended

    def _update_short_wait_ewma(self, is_short: bool) -> None:
        """Update the exponential moving average over about sixteen waits."""
        if is_short:
            self._short_wait_ewma += (EWMA_ONE - self._short_wait_ewma) >> 4
        else:
            self._short_wait_ewma -= self._short_wait_ewma >> 4

    def _begin_round(self, now_ns: int) -> None:
        self.round_start_ns = now_ns
        if now_ns - self._mark_ns > MARK_NS:
            self._mark_ns = now_ns
            self.slow_iterations.begin()

    def reset_measurements(self) -> None:
        """Restart the measurement: slow rounds until now did not delay any client."""
        self.longest_ns = self.recent_ns = self.round_start_ns = self.slow_count = 0
        self.slow_iterations.reset()

    def _note_iteration(self) -> int:
        """Record the duration of the last round; returns the current time."""
        now_ns = time.monotonic_ns()
        if self.round_start_ns:
            taken = now_ns - self.round_start_ns
            self.busy_ns += taken
            if taken > SLOW_NS:
                self.slow_count += 1
                self.slow_iterations.record(taken, is_longest=taken > self.longest_ns)
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
