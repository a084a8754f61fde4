"""The audit trail of one broker: which events are wanted, and those that wait to be written.

Rules:
1. Whoever notes an event never waits, and never fails because of it. What it costs him is making the line.
2. Bounded: so many events, so many bytes; refusals (denials, failed logins) are told so often a second, and the same
   one once in a while, with how many there were since.
3. What finds no room is lost, and that is said: in the log, by a counter, and by an event of its own (`audit.lost`) as
   soon as there is room again. What came first is kept: a flood does not hide what it began with.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.base.audit_events import DENIED, LOGIN, LOGIN_FAILED, LOST, chosen
from ottla.base.broker_keys.security import parse_principals
from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error
from ottla.base.log_limiter import LogLimiter
from ottla.base.security import Operation, ResourceType, word_of
from ottla.broker.audit import event as events
from ottla.broker.audit.event import NOBODY, Change, Line, Who, cut, line_of, who_is
from ottla.metrics.audit import AuditCounters
from ottla.protocol.apis import ALL_APIS

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.node import Node
    from ottla.network.client_facts import ClientFacts

logger = logging.getLogger(__name__)

EVENTS_MAX: Final = 10_000
BYTES_MAX: Final = 16 << 20
REPEAT_SECONDS: Final = 60.0  # between two events about the same refusal
REPEATED_MAX: Final = 5_000  # refusals that are remembered
REPEATS_AT_ONCE: Final = 100  # that are told in one round of the loop
REFUSALS_PER_SECOND_MAX: Final = 200
COMPLAINT_SECONDS: Final = 10.0

Refusal = tuple[str, Who, *tuple[object, ...]]
"""A denial or a failed login: the event, who, and what makes it another one."""


class Repeated:
    """A refusal that was told, and how often it came since."""

    __slots__ = ("change", "count", "outcome")

    def __init__(self, change: Change, outcome: str) -> None:
        self.change = change
        self.outcome = outcome
        self.count = 0


class AuditTrail:
    """Owned by the loop."""

    def __init__(self, node: Node, counters: AuditCounters) -> None:
        self._node = node
        self._counters = counters
        self._life = node.clock.now_ms()  # ids are not used again after a restart
        self._sequence = 0
        self._lines: deque[Line] = deque()
        self._bytes = 0
        self._lost = 0  # since the last event that told of it
        self._refusals: dict[Refusal, Repeated] = {}
        self._ended: deque[tuple[Refusal, Repeated]] = deque()  # whose minute is over
        self._second, self._refusals_told = -1, 0
        self._repeats: asyncio.TimerHandle | None = None
        self._complaints = LogLimiter(COMPLAINT_SECONDS * 1000)
        self.on_line: Callable[[], None] = lambda: None  # whoever writes
        self._follow(node.settings)
        node.live.on_change(self._follow)

    def _follow(self, settings: BrokerSettings) -> None:
        self._wanted = chosen(settings.ottla_audit_events) if settings.ottla_audit_enable else frozenset()
        self._excluded = frozenset(parse_principals(settings.ottla_audit_exclude_principals))

    def wants(self, event: str, principal: str | None) -> bool:
        return event in self._wanted and principal not in self._excluded

    # ---- events

    def note_change(self, event: str, context: Context, change: Change) -> None:
        """One thing that somebody has changed, or was not able to."""
        self._note(event, who_is(context, ALL_APIS[context.api_key].name), change)

    def note_login(self, context: Context, mechanism: str, is_repeated: bool) -> None:
        if self.wants(LOGIN, context.principal):
            api = ALL_APIS[context.api_key].name
            after = {"mechanism": mechanism, "is_repeated": is_repeated}
            self._note(LOGIN, who_is(context, api), Change(None, None, None, after))

    def note_certificate(self, client: ClientFacts) -> None:
        """A certificate has told who is there: no request does."""
        if self.wants(LOGIN, client.principal):
            who = NOBODY._replace(principal=client.principal, host=client.host, listener=client.listener_name)
            self._note(LOGIN, who, Change(None, None, None, {"mechanism": "SSL", "is_repeated": False}))

    def note_failed_login(self, context: Context, mechanism: str, error: int, reason: str) -> None:
        """Whoever it was, he has no principal: the reason names whom he wanted to be, if he said so."""
        if self.wants(LOGIN_FAILED, None):
            who = who_is(context, ALL_APIS[context.api_key].name)._replace(principal=None)
            self._note_failed_login(who, mechanism, error, reason)

    def note_failed_handshake(self, client: ClientFacts, reason: str) -> None:
        """TLS was not agreed on, or a certificate was not good enough."""
        if self.wants(LOGIN_FAILED, None):
            who = NOBODY._replace(host=client.host, listener=client.listener_name)
            self._note_failed_login(who, "SSL", Error.NONE, reason)  # Kafka has no number for it

    def _note_failed_login(self, who: Who, mechanism: str, error: int, reason: str) -> None:
        change = Change(None, None, None, {"mechanism": cut(mechanism)}, error, cut(reason))
        self._note_refusal((LOGIN_FAILED, who, change.message), lambda: change, events.FAILURE)

    def note_denial(
        self, context: Context, operation: Operation, resource_type: ResourceType, name: str, is_refused: bool
    ) -> None:
        if not self.wants(DENIED, context.principal):
            return
        who = who_is(context, ALL_APIS[context.api_key].name)

        def change() -> Change:
            authorizer = context.broker.authorizer
            assert authorizer is not None, "somebody has refused it"
            rule = authorizer.explain(context.principal, context.client_host, operation, resource_type, name).rule
            asked = {"operation": word_of(operation)}
            return Change(word_of(resource_type).lower(), cut(name), None, asked, Error.NONE, rule)

        outcome = events.DENIED if is_refused else events.PERMITTED
        self._note_refusal((DENIED, who, operation, resource_type, cut(name)), change, outcome)

    # ---- refusals: they come as often as somebody wants

    def _note_refusal(self, refusal: Refusal, change: Callable[[], Change], outcome: str) -> None:
        known = self._refusals.get(refusal)
        if known is not None:
            known.count += 1
            return
        if not self._may_tell_refusal():
            self._lose("more refusals a second than are told one by one")
            return
        told = Repeated(change(), outcome)
        if len(self._refusals) < REPEATED_MAX:
            self._refusals[refusal] = told
            if self._repeats is None:
                self._repeats = asyncio.get_running_loop().call_later(REPEAT_SECONDS, self.tell_repeats)
        self._note(refusal[0], refusal[1], told.change, outcome=outcome)

    def _may_tell_refusal(self) -> bool:
        second = self._node.clock.monotonic_ms() // 1000
        if second != self._second:
            self._second, self._refusals_told = second, 0
        self._refusals_told += 1
        return self._refusals_told <= REFUSALS_PER_SECOND_MAX

    def tell_repeats(self, at_once: int = REPEATS_AT_ONCE) -> None:
        """Of each refusal that came again, how often: so many now, the others in the next rounds. All are new again."""
        if self._repeats is not None:
            self._repeats.cancel()
            self._repeats = None
        self._ended.extend(self._refusals.items())
        self._refusals = {}
        self._tell_ended(at_once)

    def _tell_ended(self, at_once: int) -> None:
        for _ in range(min(at_once, len(self._ended))):
            (event, who, *_), repeated = self._ended.popleft()
            if repeated.count:
                self._note(event, who, repeated.change, outcome=repeated.outcome, count=repeated.count)
        if self._ended:
            asyncio.get_running_loop().call_soon(self._tell_ended, at_once)

    # ---- the queue

    def _note(self, event: str, who: Who, change: Change, *, outcome: str | None = None, count: int = 1) -> None:
        self._sequence += 1
        line = line_of(
            event,
            who,
            change,
            id_=f"{self._node.id}-{self._life}-{self._sequence}",
            time_ms=self._node.clock.now_ms(),
            broker=self._node.id,
            outcome=outcome,
            count=count,
        )
        if len(self._lines) >= EVENTS_MAX or self._bytes + len(line.value) > BYTES_MAX:
            self._lose("too many wait to be written")
            return
        self._lines.append(line)
        self._bytes += len(line.value)
        self._counters.waiting = len(self._lines)
        self.on_line()

    def _lose(self, reason: str, count: int = 1) -> None:
        self._lost += count
        self._counters.lost += count
        if self._complaints.is_due(self._node.clock.monotonic_ms(), reason):
            logger.error(
                "events of the audit trail are lost, %d since the last that was written: %s", self._lost, reason
            )

    @property
    def is_empty(self) -> bool:
        return not self._lines

    def first(self, count_max: int, bytes_max: int) -> list[Line]:
        """The oldest events: at least one, if there is any."""
        found: list[Line] = []
        size = 0
        for line in self._lines:
            size += len(line.value)
            if len(found) == count_max or (found and size > bytes_max):
                break
            found.append(line)
        return found

    def written(self, count: int) -> None:
        """So many of the oldest are safe."""
        self._forget(count)
        self._counters.written += count
        if self._lost:
            lost, self._lost = self._lost, 0
            self._note(LOST, NOBODY, Change(None, None), outcome=events.FAILURE, count=lost)

    def give_up(self, count: int, reason: str) -> None:
        """So many of the oldest will never be written."""
        self._forget(count)
        self._lose(reason, count)

    def _forget(self, count: int) -> None:
        for _ in range(count):
            self._bytes -= len(self._lines.popleft().value)
        self._counters.waiting = len(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def __repr__(self) -> str:
        return f"<AuditTrail {len(self._lines)} waiting, {self._lost} lost>"
