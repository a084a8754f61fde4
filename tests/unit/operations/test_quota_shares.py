"""Who is held up, from two readings of a broker's metrics, and which limits would have held nobody up."""

import pytest

from ottla.cli.quotas.report import suggested_words, top_rows, top_screen
from ottla.operations.metric_readings import Reading, parse_metrics
from ottla.operations.quota_shares import Share, Suggestion, command, is_observing, rounded_up, shares_of, suggestions

ALICE = 'key="producer_byte_rate",user="alice",client_id="",rule="user=alice"'
TOPIC = 'key="consumer_byte_rate",user="",client_id="",rule="topic=orders"'
NOBODY = 'key="producer_message_rate",user="bob",client_id="app",rule="user=bob,client-id=app"'
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
ottla_quota_rate{{{nobody}}} 3.2
ottla_quota_peak_rate{{{nobody}}} 7
"""


def reading(at_s: float, held: float, count: int, total: float, observing: int = 0) -> Reading:
    labels = {"alice": ALICE, "topic": TOPIC, "nobody": NOBODY}
    return parse_metrics(PAGE.format(held=held, count=count, total=total, observing=observing, **labels), at_s)


def test_who_is_held_up_comes_first_with_what_he_would_need() -> None:
    shares = shares_of(reading(0, 0.25, 10, 4.0), reading(2, 0.75, 12, 6.0))
    assert [share.key for share in shares] == ["producer_byte_rate", "consumer_byte_rate", "producer_message_rate"]
    alice = shares[0]
    assert (alice.is_held, alice.held_count, alice.held_share, alice.needed) == (True, 2, 0.75, 4_000_000)
    assert top_rows(shares)[0] == (
        *("3", "producer_byte_rate", "alice", "-", "user=alice"),
        *("1M", "1M", "75%", "0.8 s", "4M"),
    )
    assert top_rows(shares)[2][4:6] == ("-", "-")  # without a rule there is no limit
    assert [share.is_held for share in shares[1:]] == [False, False]


def test_a_wait_counts_for_as_long_as_it_lasts() -> None:
    began = shares_of(reading(0, 0.0, 0, 0.0), reading(2, 14.0, 1, 15.0))[0]
    goes_on = shares_of(reading(2, 14.0, 1, 15.0), reading(4, 12.0, 1, 15.0))[0]
    ends = shares_of(reading(14, 2.0, 1, 15.0), reading(18, 0.0, 1, 15.0))[0]
    assert [each.held_share for each in (began, goes_on, ends)] == [0.5, 1.0, 0.5]


def test_in_a_rehearsal_what_is_used_is_what_is_needed() -> None:
    now = reading(2, 0.0, 12, 5.5, observing=1)
    (alice, *_) = shares_of(reading(0, 0.0, 10, 4.0, observing=1), now)
    assert (is_observing(now), alice.needed) == (True, 1_100_000)
    assert top_screen([alice], True, False).startswith("rehearsal")


def test_a_broker_that_was_restarted_counts_from_zero() -> None:
    (alice, *_) = shares_of(reading(0, 0.0, 1000, 400.0), reading(2, 0.0, 1, 0.5))
    assert (alice.held_count, alice.held_share) == (0, 0)


def test_an_empty_screen_says_what_to_do() -> None:
    assert top_screen([], False, False) == "Nobody is held up. All who are measured: --all"


@pytest.mark.parametrize(
    ("number", "rounded"),
    [(0, 0), (1_234_567, 1_300_000), (1_200_000, 1_200_000), (99.2, 100), (3.14, 3.2), (0.0131, 0.014), (7, 7)],
)
def test_estimates_have_two_digits(number: float, rounded: float) -> None:
    assert rounded_up(number) == rounded


def share(broker: str, user: str, client: str, peak: float, key: str = "producer_message_rate") -> Share:
    return Share(broker, key, user, client, "", None, 0.0, peak, 0.0, 0.0, 0.0, True)


def test_limits_are_suggested_for_pairs_users_or_clients() -> None:
    shares = [
        share("1", "alice", "a", 100),
        share("2", "alice", "a", 300),
        share("1", "alice", "b", 250),
        share("1", "bob", "a", 7.1),
        share("1", "", "", 5),  # of a topic: no entity's
        share("1", "eve", "a", 0),
        share("1", "bob", "a", 1.21, "request_percentage"),
    ]
    assert suggestions(shares, 1.5) == [
        ("alice", "a", {"producer_message_rate": 450}),
        ("alice", "b", {"producer_message_rate": 380}),
        ("bob", "a", {"producer_message_rate": 11, "request_percentage": 2.0}),
    ]
    assert suggestions(shares, 1, "user") == [
        ("alice", "", {"producer_message_rate": 350}),
        ("bob", "", {"producer_message_rate": 8, "request_percentage": 1.3}),
    ]
    assert [each.client_id for each in suggestions(shares, 1, "client")] == ["a", "b"]


def test_a_suggestion_is_a_command_and_an_entry_of_a_file() -> None:
    suggestion = Suggestion("my user", "app", {"producer_byte_rate": 1e6, "request_percentage": 1.5})
    line = "ottla quotas set --user 'my user' --client app producer_byte_rate=1000000 request_percentage=1.5"
    assert command(suggestion) == line
    words = {"user": "my user", "client": "app", "producer_byte_rate": 1000000, "request_percentage": 1.5}
    assert suggested_words(suggestion) == words
