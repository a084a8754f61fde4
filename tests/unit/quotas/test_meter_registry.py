"""Whose requests are measured together; who is forgotten; that a thousand names cost no more than some."""

from __future__ import annotations

from ottla.quotas import meter_registry as module
from ottla.quotas.connection_rate import ConnectionRates
from ottla.quotas.entities import of_address, of_client, of_user, of_user_and_client
from ottla.quotas.meter_registry import IDLE_MS, QuotaMeterRegistry
from ottla.quotas.rules import Rules

BYTES = "producer_byte_rate"


def book_of(*rules: tuple[object, dict[str, str]]) -> QuotaMeterRegistry:
    made = Rules()
    for entity, config in rules:
        made.change(entity, config)  # type: ignore[arg-type]
    return QuotaMeterRegistry(made)


def test_all_clients_of_a_user_share_what_the_user_has() -> None:
    book = book_of((of_user("alice"), {BYTES: "5"}), (of_user_and_client("alice", "own"), {BYTES: "6"}))
    first, second = (book.resolve("User:alice", name, 0).produce_bytes for name in ("a", "b"))
    assert first[0] is second[0]
    assert book.resolve("User:alice", "own", 0).produce_bytes[0].rule.bound == 6
    assert book.resolve("User:bob", "a", 0).produce_bytes == ()


def test_all_users_of_a_client_id_share_what_that_has() -> None:
    book = book_of((of_client(None), {BYTES: "5"}))
    ours, same, other = (
        book.resolve(user, name, 0).produce_bytes[0]
        for user, name in (("User:a", "x"), ("User:b", "x"), ("User:a", "y"))
    )
    assert ours is same
    assert ours is not other


def test_a_client_without_an_id_is_one_too() -> None:
    book = book_of((of_client(None), {BYTES: "5"}))
    assert book.resolve("User:a", None, 0).produce_bytes[0] is book.resolve("User:b", "", 0).produce_bytes[0]


def test_a_changed_rule_keeps_what_was_used() -> None:
    book = book_of((of_user("alice"), {BYTES: "100"}))
    share = book.resolve("User:alice", "a", 0).produce_bytes[0]
    share.meter.record(1_000, 0)
    assert book.is_current(share)
    book.rules.change(of_user("alice"), {BYTES: "50"})
    assert not book.is_current(share)
    assert book.resolve("User:alice", "a", 1).produce_bytes[0] is share
    assert (share.meter.bound, share.meter.total) == (50, 1_000)
    book.rules.change(of_user("alice"), {})
    assert book.resolve("User:alice", "a", 1).produce_bytes == ()
    assert not book.is_current(share)


def test_who_is_silent_for_an_hour_is_forgotten() -> None:
    book = book_of((of_client(None), {BYTES: "5"}))
    for number in range(10):
        book.resolve("User:a", f"client-{number}", 0)
    book.resolve("User:a", "client-3", 0).produce_bytes[0].meter.record(1, IDLE_MS // 2)
    before = book.generation
    book.forget_idle(IDLE_MS)
    assert [share.rule.client_id for share in book] == ["client-3"]
    assert book.generation > before


def test_a_client_that_renames_itself_pushes_out_the_idle() -> None:
    book = book_of((of_client(None), {BYTES: "5"}))
    busy = book.resolve("User:a", "busy", 0).produce_bytes[0]
    for number in range(module.METERS_MAX + 100):
        now_ms = 100_000 + number
        busy.meter.record(1, now_ms)
        book.resolve("User:a", f"client-{number}", now_ms)
    assert len(book) == module.METERS_MAX


def test_observe_mode_measures_all_clients() -> None:
    book = book_of()
    book.is_observing = True
    shares = book.resolve("User:a", "x", 0)
    assert [share.rule.bound for share in (*shares.produce_bytes, *shares.fetch_messages)] == [float("inf")] * 2
    assert shares.requests is None


def test_addresses_that_connect_too_often() -> None:
    rules = Rules()
    rules.change(of_address("10.0.0.1"), {"connection_creation_rate": "1"})
    rates = ConnectionRates(rules)
    assert [rates.wait_ms("10.0.0.1", 0) for _ in range(12)] == [0] * 12
    assert rates.wait_ms("10.0.0.1", 0) == 1_000  # at most a window, as with Kafka
    assert rates.wait_ms("10.0.0.2", 0) == 0
    assert rates.wait_ms("10.0.0.1", 12_000) == 0
    rules.change(of_address("10.0.0.1"), {})
    rates.forget_rules()
    assert rates.wait_ms("10.0.0.1", 12_000) == 0
    assert rates.rejected_count == 1
