"""The authorizer: super users, what holds without rules, its table of answers, rehearsals."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.security.test_acls import many_acls, names, principals

from ottla.base.security import Operation, PatternType, Permission, ResourceType
from ottla.security.acls import AccessControlEntry, Acls, ResourcePattern
from ottla.security.authorizer import INDEXED_PER_STEP, PREFIX_LENGTHS_MAX, Authorizer
from ottla.security.denial_log import DENIED, WOULD_BE_DENIED, DenialLog, read_denials

ALICE, HOST = "User:alice", "10.0.0.1"
TOPIC, READ = ResourceType.TOPIC, Operation.READ
ORDERS = ResourcePattern(TOPIC, "orders")


def rules(pattern: ResourcePattern, *permissions: Permission, who: str = ALICE) -> Acls:
    return {pattern: frozenset(AccessControlEntry(who, "*", READ, permission) for permission in permissions)}


def test_super_users_may_do_what_rules_deny() -> None:
    acls = rules(ORDERS, Permission.DENY)
    assert not Authorizer(acls).is_granted(ALICE, HOST, READ, TOPIC, "orders")
    authorizer = Authorizer(acls, [ALICE])
    assert authorizer.is_granted(ALICE, HOST, READ, TOPIC, "orders")
    assert authorizer.is_any_granted(ALICE, HOST, Operation.WRITE, TOPIC)
    assert authorizer.explain(ALICE, HOST, READ, TOPIC, "orders").rule == "SuperUser"


def test_a_resource_without_rules_may_be_open() -> None:
    acls = rules(ORDERS, Permission.ALLOW, who="User:bob")
    strict, open_to_all = Authorizer(acls), Authorizer(acls, allows_without_rules=True)
    assert not strict.is_granted(ALICE, HOST, READ, TOPIC, "other")
    assert open_to_all.is_granted(ALICE, HOST, READ, TOPIC, "other")
    assert not open_to_all.is_granted(ALICE, HOST, READ, TOPIC, "orders"), "this one has rules"
    assert open_to_all.is_any_granted(ALICE, HOST, Operation.WRITE, TOPIC)
    assert [each.explain(ALICE, HOST, READ, TOPIC, "other").rule for each in (strict, open_to_all)] == [
        "DefaultDeny",
        "DefaultAllow",
    ]


def test_new_rules_count_at_once() -> None:
    allowed, denied = rules(ORDERS, Permission.ALLOW), rules(ORDERS, Permission.ALLOW, Permission.DENY)
    authorizer = Authorizer({})
    seen = []
    for acls in (allowed, denied, {}, allowed):
        authorizer.update(acls)
        seen.append(authorizer.is_granted(ALICE, HOST, READ, TOPIC, "orders"))
        seen.append(authorizer.is_any_granted(ALICE, HOST, READ, TOPIC))
    assert seen == [True, True, False, False, False, False, True, True]


@given(many_acls, st.lists(many_acls, max_size=3), st.lists(st.tuples(principals, names) | st.none(), max_size=8))
def test_rules_that_wait_for_the_index_count_already(
    first: Acls, later: list[Acls], asked: list[tuple[str, str] | None]
) -> None:
    """None among what is asked: the index gets on meanwhile."""
    authorizer = Authorizer(first, allows_without_rules=True, put_at_once=1)
    for acls in later:
        authorizer.update(acls)
        fresh = Authorizer(acls, allows_without_rules=True)
        for question in asked:
            if question is None:
                authorizer.index_pending()
                continue
            principal, name = question
            words = (principal, HOST, READ, TOPIC, name)
            assert authorizer.is_granted(*words) == fresh.is_granted(*words)
            assert authorizer.explain(*words) == fresh.explain(*words)
    while not authorizer.is_fully_indexed:
        authorizer.index_pending()
    for principal in ("User:alice", "User:bob"):
        last = Authorizer(later[-1] if later else first, allows_without_rules=True)
        any_topic = (principal, HOST, Operation.WRITE, TOPIC)
        assert authorizer.is_any_granted(*any_topic) == last.is_any_granted(*any_topic)


@pytest.mark.parametrize("count", [PREFIX_LENGTHS_MAX, 3 * PREFIX_LENGTHS_MAX])
def test_thousands_of_rules_wait_and_a_few_do_not(count: int) -> None:
    authorizer = Authorizer({})
    rule = frozenset({AccessControlEntry(ALICE, "*", READ, Permission.ALLOW)})
    few = {ResourcePattern(TOPIC, f"t{number}"): rule for number in range(INDEXED_PER_STEP)}
    authorizer.update(few)
    assert authorizer.is_fully_indexed
    many = few | {ResourcePattern(TOPIC, f"u{number}", PatternType.PREFIXED): rule for number in range(count)}
    authorizer.update(many)
    assert f"waiting={count}>" in repr(authorizer)
    assert authorizer.is_granted(ALICE, HOST, READ, TOPIC, "u4711-x")
    assert f"waiting={count - 4}>" in repr(authorizer), "u4, u47, u471 and u4711"
    generation = authorizer.generation
    authorizer.index_pending()
    assert f"waiting={count - 304}>" in repr(authorizer)
    authorizer.update({})
    assert not authorizer.is_granted(ALICE, HOST, READ, TOPIC, "u4711-x")
    assert authorizer.generation == generation + 1
    while not authorizer.is_fully_indexed:
        authorizer.index_pending()
    assert not authorizer.is_any_granted(ALICE, HOST, READ, TOPIC)


def test_what_the_brokers_settings_say(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    for is_permissive, word in ((False, DENIED), (True, WOULD_BE_DENIED)):
        caplog.clear()
        log = DenialLog(lambda: 0, is_permissive=is_permissive)
        authorizer = Authorizer({}, is_permissive=is_permissive, denials=log)
        assert authorizer.record_denial(ALICE, HOST, READ, TOPIC, "orders", "Fetch") is not is_permissive
        (line,) = caplog.messages
        assert line == (
            f"Principal = User:alice {word} operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:orders "
            "for request = Fetch with resourceRefCount = 1 based on rule DefaultDeny"
        )
        (denial,) = read_denials([f"[2026-01-01 00:00:00,000] INFO {line} (kafka.authorizer.logger)"], word=word)
        assert denial[:6] == (ALICE, HOST, READ, TOPIC, "orders", "Fetch")


def test_denials_do_not_fill_the_disk(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    now = [0]
    authorizer = Authorizer({}, denials=DenialLog(lambda: now[0], is_permissive=False))
    for _ in range(1000):
        authorizer.record_denial(ALICE, HOST, READ, TOPIC, "orders", "Fetch")
    assert len(caplog.messages) == 1
    now[0] = 1000
    for number in range(1000):
        authorizer.record_denial(ALICE, HOST, READ, TOPIC, f"t{number}", "Fetch")
    assert len(caplog.messages) == 102
    assert caplog.messages[1].startswith("999 denials before this one were not logged")
    now[0] = 70_000
    authorizer.record_denial(ALICE, HOST, READ, TOPIC, "orders", "Fetch")
    assert caplog.messages[-2:][0].startswith("900 denials"), "and then what is tried again is told again"


def test_a_name_cannot_make_lines_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    authorizer = Authorizer({}, denials=DenialLog(lambda: 0, is_permissive=False))
    authorizer.record_denial(ALICE, HOST, READ, ResourceType.GROUP, "g\nPrincipal = User:admin", "JoinGroup")
    (line,) = caplog.messages
    assert "\n" not in line
