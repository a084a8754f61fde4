"""Throttled clients from two readings of a broker's metrics, and limits that would not have throttled."""

import pytest

from ottla.cli.commands.quotas import suggestion_entry, top_rows, top_screen
from ottla.client.quotas import Quota
from ottla.operations.metric_readings import Reading, parse_metrics
from ottla.operations.quotas import (
    QuotaUse,
    Suggestion,
    is_observing,
    quota_command,
    quota_rows,
    quota_uses,
    quota_words,
    quotas_for,
    rounded_up,
    suggest_quotas,
)

ALICE = 'key="producer_byte_rate",user="alice",client_id="",rule="user=alice"'
TOPIC = 'key="consumer_byte_rate",user="",client_id="",rule="topic=orders"'
UNLIMITED = 'key="producer_message_rate",user="bob",client_id="app",rule="user=bob,client-id=app"'
PAGE = """\
ottla_info{{version="1",node_id="3",cluster_id="c"}} 1
ottla_quota_is_observing {observing}
ottla_quota_limit{{{alice}}} 1000000
ottla_quota_rate{{{alice}}} 1000000
ottla_quota_peak_rate{{{alice}}} 1050000
ottla_quota_held_seconds{{{alice}}} {held}
ottla_quota_held_total{{{alice}}} {count}
ottla_quota_held_seconds_total{{{alice}}} {total}
ottla_quota_limit{{{topic}}} 500
ottla_quota_rate{{{topic}}} 20
ottla_quota_peak_rate{{{topic}}} 20
ottla_quota_held_seconds_total{{{topic}}} 0
ottla_quota_rate{{{unlimited}}} 3.2
ottla_quota_peak_rate{{{unlimited}}} 7
"""


def reading(at_s: float, held: float, count: int, total: float, observing: int = 0) -> Reading:
    labels = {"alice": ALICE, "topic": TOPIC, "unlimited": UNLIMITED}
    return parse_metrics(PAGE.format(held=held, count=count, total=total, observing=observing, **labels), at_s)


def test_the_most_throttled_come_first_with_their_demand() -> None:
    shares = quota_uses(reading(0, 0.25, 10, 4.0), reading(2, 0.75, 12, 6.0))
    assert [share.key for share in shares] == ["producer_byte_rate", "consumer_byte_rate", "producer_message_rate"]
    alice = shares[0]
    assert (alice.is_throttled, alice.throttled_requests, alice.throttled_share, alice.estimated_demand) == (
        True,
        2,
        0.75,
        4_000_000,
    )
    assert top_rows(shares)[0] == (
        *("3", "producer_byte_rate", "alice", "-", "user=alice"),
        *("1M", "1M", "75%", "0.8 s", "4M"),
    )
    assert top_rows(shares)[2][4:6] == ("-", "-")  # without a rule there is no limit
    assert [share.is_throttled for share in shares[1:]] == [False, False]


def test_a_throttle_time_counts_as_long_as_it_lasts() -> None:
    began = quota_uses(reading(0, 0.0, 0, 0.0), reading(2, 14.0, 1, 15.0))[0]
    goes_on = quota_uses(reading(2, 14.0, 1, 15.0), reading(4, 12.0, 1, 15.0))[0]
    ends = quota_uses(reading(14, 2.0, 1, 15.0), reading(18, 0.0, 1, 15.0))[0]
    assert [each.throttled_share for each in (began, goes_on, ends)] == [0.5, 1.0, 0.5]


def test_in_a_rehearsal_what_is_used_is_what_is_needed() -> None:
    now = reading(2, 0.0, 12, 5.5, observing=1)
    (alice, *_) = quota_uses(reading(0, 0.0, 10, 4.0, observing=1), now)
    assert (is_observing(now), alice.estimated_demand) == (True, 1_100_000)
    assert top_screen([alice], True, False).startswith("observe mode")


def test_a_broker_that_was_restarted_counts_from_zero() -> None:
    (alice, *_) = quota_uses(reading(0, 0.0, 1000, 400.0), reading(2, 0.0, 1, 0.5))
    assert (alice.throttled_requests, alice.throttled_share) == (0, 0)


def test_an_empty_screen_has_a_hint() -> None:
    assert top_screen([], False, False) == "No client is throttled. To show all measured clients: --all"


@pytest.mark.parametrize(
    ("number", "rounded"),
    [(0, 0), (1_234_567, 1_300_000), (1_200_000, 1_200_000), (99.2, 100), (3.14, 3.2), (0.0131, 0.014), (7, 7)],
)
def test_estimates_have_two_digits(number: float, rounded: float) -> None:
    assert rounded_up(number) == rounded


def share(broker: str, user: str, client: str, peak: float, key: str = "producer_message_rate") -> QuotaUse:
    return QuotaUse(broker, key, user, client, "", None, 0.0, peak, 0.0, 0.0, 0.0, True)


def test_limits_are_suggested_for_pairs_users_or_clients() -> None:
    shares = [
        share("1", "alice", "a", 100),
        share("2", "alice", "a", 300),
        share("1", "alice", "b", 250),
        share("1", "bob", "a", 7.1),
        share("1", "", "", 5),  # of a topic: without an entity
        share("1", "eve", "a", 0),
        share("1", "bob", "a", 1.21, "request_percentage"),
    ]
    assert suggest_quotas(shares, 1.5) == [
        ("alice", "a", {"producer_message_rate": 450}),
        ("alice", "b", {"producer_message_rate": 380}),
        ("bob", "a", {"producer_message_rate": 11, "request_percentage": 2.0}),
    ]
    assert suggest_quotas(shares, 1, "user") == [
        ("alice", "", {"producer_message_rate": 350}),
        ("bob", "", {"producer_message_rate": 8, "request_percentage": 1.3}),
    ]
    assert [each.client_id for each in suggest_quotas(shares, 1, "client")] == ["a", "b"]


def test_a_suggestion_is_a_command_and_an_entry_of_a_file() -> None:
    suggestion = Suggestion("my user", "app", {"producer_byte_rate": 1e6, "request_percentage": 1.5})
    line = "ottla quotas set --user 'my user' --client app producer_byte_rate=1000000 request_percentage=1.5"
    assert quota_command(suggestion) == line
    words = {"user": "my user", "client": "app", "producer_byte_rate": 1000000, "request_percentage": 1.5}
    assert suggestion_entry(suggestion) == words


def quota(rate: float, **entity: str | None) -> Quota:
    return Quota({kind.replace("_", "-"): name for kind, name in entity.items()}, {"producer_byte_rate": rate})


def test_limits_stand_in_the_order_in_which_kafka_looks_for_them() -> None:
    quotas = [
        Quota({"ip": None}, {"connection_creation_rate": 2.0}),
        quota(8, client_id=None),
        quota(7, client_id="app"),
        quota(6, user=None),
        quota(5, user=None, client_id=None),
        quota(4, user=None, client_id="app"),
        quota(3, user="alice"),
        quota(2, user="alice", client_id=None),
        quota(1, user="alice", client_id="app"),
    ]
    assert ["\t".join(row) for row in quota_rows(quotas)] == [
        "alice\tapp\t-\tproducer_byte_rate\t1",
        "alice\t<default>\t-\tproducer_byte_rate\t2",
        "alice\t-\t-\tproducer_byte_rate\t3",
        "<default>\tapp\t-\tproducer_byte_rate\t4",
        "<default>\t<default>\t-\tproducer_byte_rate\t5",
        "<default>\t-\t-\tproducer_byte_rate\t6",
        "-\tapp\t-\tproducer_byte_rate\t7",
        "-\t<default>\t-\tproducer_byte_rate\t8",
        "-\t-\t<default>\tconnection_creation_rate\t2",
    ]
    assert quota_words(quotas)[1] == {"user": "alice", "client-defaults": True, "producer_byte_rate": 2}


# ---- which limits count

BYTES, MESSAGES, CONNECTIONS = "producer_byte_rate", "producer_message_rate", "connection_creation_rate"


def test_the_closest_limit_of_each_kind_counts() -> None:
    quotas = [
        Quota({"user": "alice", "client-id": None}, {BYTES: 1.0}),
        Quota({"user": "alice"}, {BYTES: 2.0, MESSAGES: 3.0}),
        Quota({"user": None, "client-id": "app"}, {BYTES: 4.0}),
        Quota({"client-id": None}, {MESSAGES: 5.0}),
        Quota({"user": "bob"}, {BYTES: 6.0}),
    ]
    found = quotas_for(quotas, "alice", "app")
    assert [(each.key, each.limit, each.is_effective) for each in found] == [
        (BYTES, 1.0, True),
        (BYTES, 2.0, False),
        (BYTES, 4.0, False),
        (MESSAGES, 3.0, True),
        (MESSAGES, 5.0, False),
    ]
    assert (found[0].user, found[0].client_id) == ("alice", "app")
    assert (found[3].user, found[3].client_id) == ("alice", ""), "all clients of alice share it"


def test_an_address_has_its_own_or_the_default() -> None:
    quotas = [Quota({"ip": None}, {CONNECTIONS: 9.0}), Quota({"ip": "::ffff:10.0.0.1"}, {CONNECTIONS: 1.0})]
    assert [(each.limit, each.is_effective) for each in quotas_for(quotas, host="10.0.0.1")] == [
        (1.0, True),
        (9.0, False),
    ]
    assert [each.limit for each in quotas_for(quotas, host="10.0.0.2")] == [9.0]
    assert quotas_for(quotas, "alice") == []
