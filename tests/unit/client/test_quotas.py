"""Quotas in the notation of kafka-configs.sh."""

import pytest

from ottla.client.quotas import (
    QuotaError,
    entity_text,
    entity_words,
    number_text,
    parse_entity,
    parse_quota,
)


@pytest.mark.parametrize(
    "words",
    [
        {"user": "alice"},
        {"user": "alice", "client": "app"},
        {"user": "alice", "client-defaults": True},
        {"user-defaults": True, "client-defaults": True},
        {"client-defaults": True},
        {"ip": "10.0.0.1"},
        {"ip-defaults": True},
    ],
)
def test_an_entity_is_the_same_there_and_back(words: dict[str, object]) -> None:
    assert entity_words(parse_entity(words)) == words


def test_entity_and_limits_stand_side_by_side() -> None:
    quota = parse_quota({"client-defaults": True, "user": "alice", "request_percentage": 12.5})
    assert quota == ({"user": "alice", "client-id": None}, {"request_percentage": 12.5})
    assert entity_text(quota.entity) == "user alice, each client"


@pytest.mark.parametrize(
    ("words", "cause", "word"),
    [
        ({"producer_byte_rate": 1}, "the limit has no entity", ""),
        ({"user": "u"}, "no limit is given", ""),
        ({"user": "u", "user-defaults": True, "producer_byte_rate": 1}, "exclude each other", "user-defaults"),
        ({"user-defaults": "yes", "producer_byte_rate": 1}, "user-defaults is true, or is left out", "user-defaults"),
        ({"user": 8, "producer_byte_rate": 1}, "8 is not text: put the name in quotes", "user"),
        ({"user": "", "producer_byte_rate": 1}, "the name is empty", "user"),
        ({"ip": "::1", "user": "u", "connection_creation_rate": 1}, "an ip cannot be combined", "ip"),
        ({"ip": "::1", "producer_byte_rate": 1}, "not a limit of ip ::1: there are connection_creation", "producer_"),
        ({"user": "u", "producer_byte_rat": 1}, "did you mean producer_byte_rate", "producer_byte_rat"),
        ({"user": "u", "producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value", "producer"),
        ({"ip": "::1", "connection_creation_rate": 2**31}, "is too large for", "connection"),
        *(
            ({"user": "u", "producer_byte_rate": value}, "is not a number above 0", "producer_byte_rate")
            for value in (0, -1, "x", True, None, float("nan"), float("inf"), "1e999", 10**400)
        ),
    ],
)
def test_invalid_quotas_are_reported(words: dict[str, object], cause: str, word: str) -> None:
    with pytest.raises(QuotaError, match=cause) as raised:
        parse_quota(words)
    assert raised.value.word.startswith(word)


def test_numbers_have_no_tail_of_zeros() -> None:
    values = (1048576.0, 0.5, 1e300, float("nan"), float("inf"))
    assert [number_text(value) for value in values] == ["1048576", "0.5", "1e+300", "nan", "inf"]
