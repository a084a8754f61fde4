"""The audit trail of one broker: event filter and queue of events to write.

Rules:
1. Recording an event never waits and never raises. Its cost is the formatting of one line.
2. The queue is bounded by number and bytes of events. Rejections (denials, failed logins) are limited per second; a
   repeated rejection is reported once per minute with a count.
3. An event without space in the queue is lost; the log, a counter, and an event (`audit.lost`) as soon as there is
   space report it. The oldest events are kept: later events must not hide the first ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.base.audit_events import DENIED, LOGIN, LOGIN_FAILED, LOST, select_events
from ottla.base.broker_keys.security import parse_principals
from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error
from ottla.base.logs import LogLimiter
from ottla.base.security import Operation, ResourceType, pascal_name
from ottla.broker.audit import event as events
from ottla.broker.audit.event import (
    NO_CLIENT,
    Change,
    ClientIdentity,
    EncodedEvent,
    client_identity,
    encode_event,
    truncate_text,
)
from ottla.metrics.counters import AuditCounters
from ottla.protocol.apis import ALL_APIS

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.node import Node
    from ottla.network.connection import ConnectedClient

logger = logging.getLogger(__name__)

EVENTS_MAX: Final = 10_000
BYTES_MAX: Final = 16 << 20
REPEAT_SECONDS: Final = 60.0  # between two events of the same rejection
TRACKED_REFUSALS_MAX: Final = 5_000  # rejections that are tracked
REPEATS_PER_ITERATION: Final = 100  # reported in one iteration of the loop
REFUSALS_PER_SECOND_MAX: Final = 200
WARNING_INTERVAL_SECONDS: Final = 10.0

Refusal = tuple[str, ClientIdentity, *tuple[object, ...]]
"""A denial or a failed login: the event, the client, and what distinguishes it."""


class RepeatedRefusal:
    """A reported rejection and the number of its repetitions."""

    __slots__ = ("change", "count", "outcome")

    def __init__(self, change: Change, outcome: str) -> None:
        self.change = change
        self.outcome = outcome
        self.count = 0


class AuditTrail:
    """Queue of audit events; runs on the event loop."""

    def __init__(self, node: Node, counters: AuditCounters) -> None:
        self._node = node
        self._counters = counters
        self._start_ms = node.clock.now_ms()  # makes ids unique across restarts
        self._sequence = 0
        self._lines: deque[EncodedEvent] = deque()
        self._bytes = 0
        self._lost = 0  # since the last event that reported lost events
        self._refusals: dict[Refusal, RepeatedRefusal] = {}
        self._expired_refusals: deque[tuple[Refusal, RepeatedRefusal]] = deque()  # rejections whose minute is over
        self._second, self._refusals_reported = -1, 0
        self._repeats_timer: asyncio.TimerHandle | None = None
        self._warning_limiter = LogLimiter(WARNING_INTERVAL_SECONDS * 1000)
        self.on_line: Callable[[], None] = lambda: None  # called for each new line
        self._apply_settings(node.settings)
        node.dynamic_config.on_change(self._apply_settings)

    def _apply_settings(self, settings: BrokerSettings) -> None:
        self._wanted = select_events(settings.ottla_audit_events) if settings.ottla_audit_enable else frozenset()
        self._excluded = frozenset(parse_principals(settings.ottla_audit_exclude_principals))

    def is_enabled_for(self, event: str, principal: str | None) -> bool:
        return event in self._wanted and principal not in self._excluded

    # ---- events

    def record_change(self, event: str, context: Context, change: Change) -> None:
        """Record one change, successful or not."""
        self._enqueue(event, client_identity(context, ALL_APIS[context.api_key].name), change)

    def record_login(self, context: Context, mechanism: str, is_repeated: bool) -> None:
        if self.is_enabled_for(LOGIN, context.principal):
            api = ALL_APIS[context.api_key].name
            after = {"mechanism": mechanism, "is_repeated": is_repeated}
            self._enqueue(LOGIN, client_identity(context, api), Change(None, None, None, after))

    def record_certificate_login(self, client: ConnectedClient) -> None:
        """Record a login by certificate, which involves no request."""
        if self.is_enabled_for(LOGIN, client.principal):
            who = NO_CLIENT._replace(principal=client.principal, host=client.host, listener=client.listener_name)
            self._enqueue(LOGIN, who, Change(None, None, None, {"mechanism": "SSL", "is_repeated": False}))

    def record_failed_login(self, context: Context, mechanism: str, error: int, reason: str) -> None:
        """Record a failed login. The client has no principal; the reason contains the claimed name, if any."""
        if self.is_enabled_for(LOGIN_FAILED, None):
            who = client_identity(context, ALL_APIS[context.api_key].name)._replace(principal=None)
            self._record_failed_login(who, mechanism, error, reason)

    def record_failed_handshake(self, client: ConnectedClient, reason: str) -> None:
        """Record a failed TLS handshake or a rejected certificate."""
        if self.is_enabled_for(LOGIN_FAILED, None):
            who = NO_CLIENT._replace(host=client.host, listener=client.listener_name)
            self._record_failed_login(who, "SSL", Error.NONE, reason)  # Kafka has no error code for it

    def _record_failed_login(self, who: ClientIdentity, mechanism: str, error: int, reason: str) -> None:
        change = Change(None, None, None, {"mechanism": truncate_text(mechanism)}, error, truncate_text(reason))
        self._record_refusal((LOGIN_FAILED, who, change.message), lambda: change, events.FAILURE)

    def record_denial(
        self, context: Context, operation: Operation, resource_type: ResourceType, name: str, is_refused: bool
    ) -> None:
        if not self.is_enabled_for(DENIED, context.principal):
            return
        who = client_identity(context, ALL_APIS[context.api_key].name)

        def change() -> Change:
            authorizer = context.broker.authorizer
            assert authorizer is not None, "only an authorizer denies"
            rule = authorizer.explain(context.principal, context.client_host, operation, resource_type, name).rule
            asked = {"operation": pascal_name(operation)}
            return Change(pascal_name(resource_type).lower(), truncate_text(name), None, asked, Error.NONE, rule)

        outcome = events.DENIED if is_refused else events.PERMITTED
        self._record_refusal((DENIED, who, operation, resource_type, truncate_text(name)), change, outcome)

    # ---- rejections: clients can cause any number of them

    def _record_refusal(self, refusal: Refusal, change: Callable[[], Change], outcome: str) -> None:
        known = self._refusals.get(refusal)
        if known is not None:
            known.count += 1
            return
        if not self._may_record_refusal():
            self._count_lost("too many refusals per second")
            return
        told = RepeatedRefusal(change(), outcome)
        if len(self._refusals) < TRACKED_REFUSALS_MAX:
            self._refusals[refusal] = told
            if self._repeats_timer is None:
                self._repeats_timer = asyncio.get_running_loop().call_later(REPEAT_SECONDS, self.report_repeats)
        self._enqueue(refusal[0], refusal[1], told.change, outcome=outcome)

    def _may_record_refusal(self) -> bool:
        second = self._node.clock.monotonic_ms() // 1000
        if second != self._second:
            self._second, self._refusals_reported = second, 0
        self._refusals_reported += 1
        return self._refusals_reported <= REFUSALS_PER_SECOND_MAX

    def report_repeats(self, at_once: int = REPEATS_PER_ITERATION) -> None:
        """Report the repetitions of each rejection: some now, the others in the next iterations."""
        if self._repeats_timer is not None:
            self._repeats_timer.cancel()
            self._repeats_timer = None
        self._expired_refusals.extend(self._refusals.items())
        self._refusals = {}
        self._report_expired(at_once)

    def _report_expired(self, at_once: int) -> None:
        for _ in range(min(at_once, len(self._expired_refusals))):
            (event, who, *_), repeated = self._expired_refusals.popleft()
            if repeated.count:
                self._enqueue(event, who, repeated.change, outcome=repeated.outcome, count=repeated.count)
        if self._expired_refusals:
            asyncio.get_running_loop().call_soon(self._report_expired, at_once)

    # ---- the queue

    def _enqueue(
        self, event: str, who: ClientIdentity, change: Change, *, outcome: str | None = None, count: int = 1
    ) -> None:
        self._sequence += 1
        line = encode_event(
            event,
            who,
            change,
            id_=f"{self._node.id}-{self._start_ms}-{self._sequence}",
            time_ms=self._node.clock.now_ms(),
            broker=self._node.id,
            outcome=outcome,
            count=count,
        )
        if len(self._lines) >= EVENTS_MAX or self._bytes + len(line.value) > BYTES_MAX:
            self._count_lost("the queue is full")
            return
        self._lines.append(line)
        self._bytes += len(line.value)
        self._counters.waiting = len(self._lines)
        self.on_line()

    def _count_lost(self, reason: str, count: int = 1) -> None:
        self._lost += count
        self._counters.lost += count
        if self._warning_limiter.is_due(self._node.clock.monotonic_ms(), reason):
            logger.error("events of the audit trail are lost, %d since the last written event: %s", self._lost, reason)

    @property
    def is_empty(self) -> bool:
        return not self._lines

    def peek(self, count_max: int, bytes_max: int) -> list[EncodedEvent]:
        """Return the oldest events: at least one, if there is any."""
        found: list[EncodedEvent] = []
        size = 0
        for line in self._lines:
            size += len(line.value)
            if len(found) == count_max or (found and size > bytes_max):
                break
            found.append(line)
        return found

    def remove_written(self, count: int) -> None:
        """Remove the oldest `count` events: they are replicated."""
        self._remove_oldest(count)
        self._counters.written += count
        if self._lost:
            lost, self._lost = self._lost, 0
            self._enqueue(LOST, NO_CLIENT, Change(None, None), outcome=events.FAILURE, count=lost)

    def drop(self, count: int, reason: str) -> None:
        """Drop the oldest `count` events: they cannot be written."""
        self._remove_oldest(count)
        self._count_lost(reason, count)

    def _remove_oldest(self, count: int) -> None:
        for _ in range(count):
            self._bytes -= len(self._lines.popleft().value)
        self._counters.waiting = len(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def __repr__(self) -> str:
        return f"<AuditTrail {len(self._lines)} waiting, {self._lost} lost>"
