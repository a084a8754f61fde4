"""Settings of groups and of subscriptions to client metrics; every sentence was said by Apache Kafka 4.3.1."""

import pytest

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error, KafkaError
from ottla.base.resource_keys import check_client_metrics, check_group, matches, parse_matcher

NO_LEVEL = "Invalid value x for configuration share.isolation.level:"


def refusal(check, *arguments: object) -> tuple[Error, str | None]:
    with pytest.raises(KafkaError) as refused:
        check(*arguments)
    return refused.value.error, refused.value.message


@pytest.mark.parametrize(
    ("key", "value", "error", "message"),
    [
        ("bogus", "1", Error.INVALID_REQUEST, "Unknown client metrics configuration: bogus"),
        (
            "interval.ms",
            "99",
            Error.INVALID_REQUEST,
            "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            "interval.ms",
            "x",
            Error.INVALID_CONFIG,
            "Invalid value x for configuration interval.ms: Not a number of type INT",
        ),
        ("match", "bogus=1", Error.INVALID_CONFIG, "Illegal client matching pattern: bogus=1"),
        ("match", "client_id=[", Error.INVALID_CONFIG, "Illegal client matching pattern: client_id=["),
        ("match", "client_id", Error.INVALID_CONFIG, "Illegal client matching pattern: client_id"),
    ],
)
def test_a_subscription_with_a_wrong_setting(key: str, value: str, error: Error, message: str) -> None:
    assert refusal(check_client_metrics, "one", {key: value}) == (error, message)


def test_a_subscription_needs_a_name() -> None:
    assert refusal(check_client_metrics, "", {})[1] == "Subscription name can't be empty"


def test_a_good_subscription_passes() -> None:
    check_client_metrics("one", {"interval.ms": "100", "match": " client_id = a.* , client_id=b", "metrics": "*"})


def test_all_patterns_must_match_the_whole_text() -> None:
    matcher = parse_matcher(["client_id=a.*", "client_source_address=127.0.0.[12]"])
    assert matches(matcher, {"client_id": "abc", "client_source_address": "127.0.0.1"})
    assert not matches(matcher, {"client_id": "abc", "client_source_address": "127.0.0.11"})
    assert not matches(matcher, {"client_source_address": "127.0.0.1"})
    assert matches({}, {})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("bogus", "1", "Unknown group config name: bogus"),
        (
            "consumer.session.timeout.ms",
            "5",
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            "share.delivery.count.limit",
            "100",
            "share.delivery.count.limit must be less than or equal to group.share.max.delivery.count.limit",
        ),
        (
            "streams.num.standby.replicas",
            "100",
            "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
        ),
        ("share.isolation.level", "x", f"{NO_LEVEL} String must be one of: read_committed, read_uncommitted"),
    ],
)
def test_a_group_with_a_wrong_setting(key: str, value: str, message: str) -> None:
    assert refusal(check_group, "g", {key: value}, BrokerSettings({})) == (Error.INVALID_CONFIG, message)


def test_a_session_must_be_longer_than_a_heartbeat() -> None:
    settings = BrokerSettings(
        {"group.consumer.min.session.timeout.ms": "1", "group.consumer.min.heartbeat.interval.ms": "1"}
    )
    new = {"consumer.session.timeout.ms": "6000", "consumer.heartbeat.interval.ms": "6000"}
    assert refusal(check_group, "g", new, settings)[1] == (
        "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"
    )


def test_there_is_no_default_group() -> None:
    assert refusal(check_group, "", {}, BrokerSettings({})) == (
        Error.INVALID_REQUEST,
        "Default group resources are not allowed.",
    )
