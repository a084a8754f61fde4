"""Which events are wanted, and what becomes of them when there are too many."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import virtual_time
from ottla.base.broker_settings import BrokerSettings
from ottla.base.security import Operation, ResourceType
from ottla.base.setting_types import BadValueError
from ottla.broker.audit import trail as trails
from ottla.broker.audit.event import Change
from ottla.broker.audit.trail import REFUSALS_PER_SECOND_MAX, REPEAT_SECONDS, REPEATS_AT_ONCE, AuditTrail
from ottla.broker.context import Context
from ottla.broker.dispatch import Dispatcher
from ottla.broker.responder import Answering, Responder
from ottla.metrics.audit import AuditCounters
from ottla.network.buffers import Buffers
from ottla.network.client_facts import ClientFacts
from ottla.network.connection import Connection
from ottla.network.poller import Poller
from ottla.security.authorizer import Authorizer
from unit.broker.nodes import node, parts
from unit.network.scripted import NotingPoller, ScriptedTransport

ON = {"ottla.audit.enable": "true"}
CREATE_TOPICS = 19


class Stand:
    """A trail that nobody writes, and somebody who asks."""

    def __init__(self, **more: str) -> None:
        self.counters = AuditCounters()
        self.node = node({**ON, **{key.replace("_", "."): value for key, value in more.items()}})
        self.trail = AuditTrail(self.node, self.counters)
        self.broker = parts(self.node)
        self.broker.audit = self.trail
        self.broker.authorizer = Authorizer({})
        self._buffers, self._dispatcher = Buffers(), Dispatcher(self.broker, [], lambda: None, Poller())

    def context(self, principal: str = "User:alice", client_id: str = "c") -> Context:
        client = ClientFacts("10.0.0.1", 1, "OUTSIDE")
        client.principal, client.software_name, client.software_version = principal, "librdkafka", "2.5"
        return Context(self.broker, self._responder(client), client, CREATE_TOPICS, 7, 1, client_id)

    def _responder(self, client: ClientFacts) -> Responder:
        """Nobody answers; but compiled code takes nothing else."""
        loop, counters = asyncio.get_running_loop(), self.broker.counters
        connection = Connection(
            ScriptedTransport(), 7, NotingPoller(), loop, self._buffers, self._dispatcher, lambda _: None, client, 1000
        )
        meter = counters.meter(CREATE_TOPICS, "CreateTopics", 7)
        return Responder(connection, Answering(CREATE_TOPICS, "CreateTopics", False, meter, counters), 7, 1, 0)

    def events(self) -> list[Any]:
        return [json.loads(line.value) for line in self.trail.first(10**6, 10**9)]

    def names(self) -> list[str]:
        return [event["event"] for event in self.events()]


def play(scene: Callable[[], Awaitable[None]]) -> None:
    virtual_time.run(scene())  # type: ignore[arg-type]


def test_it_is_off_unless_it_is_switched_on_also_while_the_broker_runs() -> None:
    async def scene() -> None:
        stand = Stand(ottla_audit_enable="false")
        stand.trail.note_login(stand.context(), "PLAIN", False)
        assert stand.events() == []
        settings = stand.node.settings.with_dynamic({"ottla.audit.enable": "true"}, {})
        stand.trail._follow(settings)
        stand.trail.note_login(stand.context(), "PLAIN", False)
        assert stand.names() == ["login"]

    play(scene)


def test_only_the_events_that_are_named_are_noted() -> None:
    async def scene() -> None:
        stand = Stand(ottla_audit_events="login,topic.*")
        stand.trail.note_login(stand.context(), "PLAIN", False)
        stand.trail.note_failed_login(stand.context(), "PLAIN", 58, "wrong password")
        assert not stand.context().may(Operation.CREATE, ResourceType.TOPIC, "t")
        assert stand.names() == ["login"]
        wanted = [event for event in ("topic.create", "topic.delete", "acl.create") if stand.trail.wants(event, None)]
        assert wanted == ["topic.create", "topic.delete"]

    play(scene)


def test_an_event_that_nobody_knows_is_refused() -> None:
    with pytest.raises(BadValueError, match=r"There is no event topics\.create"):
        BrokerSettings.keys["ottla.audit.events"].value("login,topics.create")


def test_principals_may_be_left_out() -> None:
    async def scene() -> None:
        stand = Stand(ottla_audit_exclude_principals="User:monitor; User:CN=broker,OU=x")
        for principal in ("User:monitor", "User:CN=broker,OU=x", "User:alice"):
            stand.trail.note_login(stand.context(principal), "SSL", False)
            stand.context(principal).may(Operation.CREATE, ResourceType.TOPIC, "t")
        assert [event["principal"] for event in stand.events()] == ["User:alice", "User:alice"]

    play(scene)


def test_a_login_and_its_failure() -> None:
    async def scene() -> None:
        stand = Stand()
        stand.trail.note_login(stand.context(), "SCRAM-SHA-256", True)
        stand.trail.note_failed_login(stand.context(), "PLAIN", 58, "wrong password, or nobody is called 'eve'")
        facts = ClientFacts("10.0.0.2", 1, "SSL")
        facts.principal = "User:CN=alice"
        stand.trail.note_certificate(facts)
        stand.trail.note_failed_handshake(facts, "certificate has expired")
        good, bad, certificate, handshake = stand.events()
        assert good["after"] == {"mechanism": "SCRAM-SHA-256", "is_repeated": True}
        assert (good["software"], good["listener"], good["client_id"]) == ("librdkafka 2.5", "OUTSIDE", "c")
        assert (bad["principal"], bad["error"]) == (None, "SASL_AUTHENTICATION_FAILED")
        assert "eve" in bad["message"]
        assert (certificate["principal"], certificate["host"]) == ("User:CN=alice", "10.0.0.2")
        assert (handshake["outcome"], handshake["error"], handshake["message"]) == (
            "failure",
            None,
            "certificate has expired",
        )

    play(scene)


def test_the_same_denial_is_told_once_and_after_a_while_how_often_it_came() -> None:
    async def scene() -> None:
        stand = Stand()
        for _ in range(50):
            assert not stand.context().may(Operation.WRITE, ResourceType.TOPIC, "orders")
        assert not stand.context().may(Operation.READ, ResourceType.TOPIC, "orders")
        assert [event["count"] for event in stand.events()] == [1, 1]
        first = stand.events()[0]
        assert (first["outcome"], first["message"]) == ("denied", "DefaultDeny")
        assert (first["resource_type"], first["resource"]) == ("topic", "orders")
        assert first["requested"] == {"operation": "Write"}
        await asyncio.sleep(REPEAT_SECONDS + 1)
        assert [event["count"] for event in stand.events()] == [1, 1, 49]
        stand.context().may(Operation.WRITE, ResourceType.TOPIC, "orders")
        assert len(stand.events()) == 4

    play(scene)


def test_whoever_guesses_passwords_is_told_once_a_minute_with_how_often() -> None:
    async def scene() -> None:
        stand = Stand()
        for _ in range(1000):
            stand.trail.note_failed_login(stand.context(), "PLAIN", 58, "wrong password")
        stand.trail.tell_repeats()
        assert [(event["event"], event["count"]) for event in stand.events()] == [
            ("login.failed", 1),
            ("login.failed", 999),
        ]

    play(scene)


def test_many_that_come_again_are_told_some_at_a_time() -> None:
    async def scene() -> None:
        stand = Stand()
        for number in range(2 * REFUSALS_PER_SECOND_MAX):
            if number == REFUSALS_PER_SECOND_MAX:
                await asyncio.sleep(1)
            for _ in range(3):
                stand.context().may(Operation.WRITE, ResourceType.TOPIC, f"t{number}")
        stand.trail.tell_repeats()
        assert len(stand.events()) == 2 * REFUSALS_PER_SECOND_MAX + REPEATS_AT_ONCE
        await asyncio.sleep(1)
        told = [event["count"] for event in stand.events()]
        assert told == [1] * 2 * REFUSALS_PER_SECOND_MAX + [2] * 2 * REFUSALS_PER_SECOND_MAX

    play(scene)


def test_a_rehearsal_says_what_would_be_denied() -> None:
    async def scene() -> None:
        stand = Stand()
        stand.broker.authorizer = Authorizer({}, is_permissive=True)
        assert stand.context().may(Operation.WRITE, ResourceType.TOPIC, "orders")
        assert [event["outcome"] for event in stand.events()] == ["permitted"]

    play(scene)


def test_a_flood_of_denials_is_counted_and_told_as_lost() -> None:
    async def scene() -> None:
        stand = Stand()
        for number in range(REFUSALS_PER_SECOND_MAX + 300):
            stand.context().may(Operation.WRITE, ResourceType.TOPIC, f"t{number}")
        assert len(stand.events()) == REFUSALS_PER_SECOND_MAX
        assert stand.counters.lost == 300
        await asyncio.sleep(1)
        stand.context().may(Operation.WRITE, ResourceType.TOPIC, "later")
        assert len(stand.events()) == REFUSALS_PER_SECOND_MAX + 1

    play(scene)


def test_a_full_queue_keeps_what_came_first_and_says_what_it_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trails, "EVENTS_MAX", 3)

    async def scene() -> None:
        stand = Stand()
        for number in range(10):
            stand.trail.note_change("topic.create", stand.context(), Change("topic", f"t{number}"))
        assert [event["resource"] for event in stand.events()] == ["t0", "t1", "t2"]
        assert (stand.counters.lost, stand.counters.waiting) == (7, 3)
        stand.trail.written(2)
        assert stand.names() == ["topic.create", "audit.lost"]
        lost = stand.events()[-1]
        assert (lost["count"], lost["outcome"]) == (7, "failure")
        stand.trail.written(2)
        assert stand.names() == []
        assert stand.counters.written == 4

    with caplog.at_level(logging.ERROR, "ottla.broker.audit"):
        play(scene)
    assert len(caplog.messages) == 1, "not a line for each"
    assert "are lost" in caplog.messages[0]


def test_the_bytes_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trails, "BYTES_MAX", 2_000)

    async def scene() -> None:
        stand = Stand()
        for _ in range(10):
            stand.trail.note_change("topic.create", stand.context(), Change("topic", "t" * 500))
        assert 0 < len(stand.events()) < 4
        stand.trail.written(len(stand.events()))
        assert stand.names() == ["audit.lost"]

    play(scene)
