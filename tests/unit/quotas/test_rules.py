"""Whom rules are for, what they may say, and which one counts: Kafka's eight levels one by one."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ottla.base.errors import Error, KafkaError
from ottla.quotas.entities import (
    ANY,
    DEFAULT,
    EXACT,
    Component,
    Entity,
    Filter,
    check_value,
    of_address,
    of_client,
    of_user,
    of_user_and_client,
    read_entity,
    value_text,
)
from ottla.quotas.rules import Rules, levels

ALICE = of_user("alice")
BYTES = "producer_byte_rate"
COMBINATION = (
    "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter "
    "component."
)


def test_the_first_of_eight_levels_counts() -> None:
    rules = Rules()
    found = []
    for place, entity in reversed(list(enumerate(levels("alice", "app"), 1))):
        assert rules.change(entity, {BYTES: str(place)})
        found.append(rules.of_client("alice", "app")[BYTES].bound)
    assert found == [8, 7, 6, 5, 4, 3, 2, 1]
    for entity, below in pairwise(levels("alice", "app")):
        rules.change(entity, {})
        assert rules.of_client("alice", "app")[BYTES].entity == below


def test_each_kind_of_quota_is_looked_for_on_its_own() -> None:
    rules = Rules()
    rules.change(of_user_and_client("alice", "app"), {"consumer_byte_rate": "5"})
    rules.change(ALICE, {BYTES: "7", "consumer_byte_rate": "8"})
    found = rules.of_client("alice", "app")
    assert (found["consumer_byte_rate"].bound, found[BYTES].bound) == (5, 7)
    assert (found[BYTES].user, found[BYTES].client_id) == ("alice", "")
    assert (found["consumer_byte_rate"].user, found["consumer_byte_rate"].client_id) == ("alice", "app")


@pytest.mark.parametrize(
    ("entity", "sharing"),
    [
        (of_user_and_client("alice", "app"), ("alice", "app")),
        (of_user_and_client("alice", None), ("alice", "app")),
        (ALICE, ("alice", "")),
        (of_user_and_client(None, "app"), ("alice", "app")),
        (of_user_and_client(None, None), ("alice", "app")),
        (of_user(None), ("alice", "")),
        (of_client("app"), ("", "app")),
        (of_client(None), ("", "app")),
    ],
)
def test_who_shares_what_a_rule_gives(entity: Entity, sharing: tuple[str, str]) -> None:
    rules = Rules()
    rules.change(entity, {BYTES: "1"})
    rule = rules.of_client("alice", "app")[BYTES]
    assert (rule.user, rule.client_id) == sharing


def test_what_is_no_quota_or_damaged_is_none() -> None:
    rules = Rules()
    assert not rules.change(ALICE, {"SCRAM-SHA-256": "x", BYTES: "much", "consumer_byte_rate": "nan"})
    assert (len(rules), rules.generation) == (0, 0)
    assert rules.change(ALICE, {"SCRAM-SHA-256": "x", BYTES: "1"})
    assert not rules.change(ALICE, {BYTES: "1"})
    assert rules.change(ALICE, {"SCRAM-SHA-256": "x"})
    assert len(rules) == 0


def test_addresses_have_a_rule_in_whatever_form_they_are_written() -> None:
    rules = Rules()
    rules.change(of_address(None), {"connection_creation_rate": "9"})
    rules.change(of_address("0:0:0:0:0:0:0:1"), {"connection_creation_rate": "3"})
    rules.change(of_address("::ffff:10.0.0.1"), {"connection_creation_rate": "4"})
    bounds = [rule.bound for host in ("::1", "10.0.0.1", "10.0.0.2") if (rule := rules.of_address(host)) is not None]
    assert bounds == [3, 4, 9]
    assert Rules().of_address("::1") is None


@pytest.mark.parametrize(
    ("entity", "key", "value", "message"),
    [
        (ALICE, BYTES, 0.0, "Quota producer_byte_rate must be greater than 0"),
        (ALICE, BYTES, -1.0, "Quota producer_byte_rate must be greater than 0"),
        (ALICE, BYTES, float("nan"), "Quota producer_byte_rate must be greater than 0"),
        (ALICE, BYTES, float("inf"), "Proposed value for producer_byte_rate is too large for a LONG."),
        (ALICE, BYTES, 1e19, "Proposed value for producer_byte_rate is too large for a LONG."),
        (ALICE, BYTES, 1.5, "producer_byte_rate cannot be a fractional value."),
        (ALICE, "connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        (ALICE, "", 1.0, "Invalid configuration key "),
        (of_address(None), BYTES, 1.0, "Invalid configuration key producer_byte_rate"),
        (
            of_address(None),
            "connection_creation_rate",
            3e9,
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)
def test_values_that_no_quota_has(entity: Entity, key: str, value: float, message: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        check_value(entity, key, value)
    assert (refusal.value.error, refusal.value.message) == (Error.INVALID_REQUEST, message)


def test_values_as_they_are_kept() -> None:
    for key, value in ((BYTES, 1.0000001), ("request_percentage", 0.5), ("producer_message_rate", 7.0)):
        check_value(ALICE, key, value)
    assert value_text(BYTES, 1.0000001) == "1"
    assert value_text(BYTES, 2.0**62) == str(2**62)
    assert value_text("request_percentage", 0.5) == "0.5"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "Invalid empty client quota entity"),
        ([("user", "")], "Empty user not supported"),
        ([("group", "g")], "Unhandled client quota entity type: group"),
        ([("ip", "unknown-host")], "unknown-host is not a valid IP or resolvable host."),
        (
            [("ip", None), ("user", "u")],
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
    ],
)
def test_what_is_no_entity(parts: list[tuple[str, str | None]], message: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        read_entity(parts)
    assert refusal.value.message == message


def test_an_entity_is_shown_as_it_is_named() -> None:
    assert str(read_entity([("client-id", None), ("user", "jörg")])) == "user=jörg,client-id=<default>"


ENTITIES = (ALICE, of_user(None), of_user_and_client("alice", "app"), of_client("app"), of_address("::1"))


@pytest.mark.parametrize(
    ("components", "is_strict", "places"),
    [
        ([], False, [0, 1, 2, 3, 4]),
        ([], True, []),
        ([Component("user", EXACT, "alice")], True, [0]),
        ([Component("user", EXACT, "alice")], False, [0, 2]),
        ([Component("user", DEFAULT, None)], True, [1]),
        ([Component("user", ANY, None)], True, [0, 1]),
        ([Component("client-id", ANY, None)], False, [2, 3]),
        ([Component("user", ANY, None), Component("client-id", EXACT, "app")], True, [2]),
        ([Component("ip", ANY, None)], False, [4]),
    ],
)
def test_filters(components: list[Component], is_strict: bool, places: list[int]) -> None:
    wanted = Filter(components, is_strict)
    assert [place for place, entity in enumerate(ENTITIES) if wanted.matches(entity)] == places


@pytest.mark.parametrize(
    ("components", "message"),
    [
        ([Component("user", EXACT, None)], "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([Component("user", ANY, "x")], "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        ([Component("user", DEFAULT, "x")], "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([Component("user", 3, None)], "Unknown match type 3"),
        ([Component("", EXACT, "x")], "Invalid empty entity type."),
        ([Component("foo", EXACT, "x")], "Unsupported entity type foo"),
        ([Component("user", ANY, None)] * 2, "Entity type user cannot appear more than once in the filter."),
        (
            [Component("user", ANY, None), Component("ip", ANY, None)],
            COMBINATION,
        ),
    ],
)
def test_filters_that_make_no_sense(components: list[Component], message: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        Filter(components, is_strict=False)
    assert refusal.value.message == message
