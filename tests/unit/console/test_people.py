"""Who may what, how passwords are kept, how long a session lasts, who may call the console by which name."""

import asyncio

import pytest

import virtual_time
from ottla.base import passwords
from ottla.base.passwords import Tries, hash_password, is_password
from ottla.console.hosts import Hosts, is_loopback
from ottla.console.people.rights import EVERYTHING, Grant, Role, may, may_read_messages, role_on, sees_all_names
from ottla.console.people.sessions import LIFE_MS, Sessions

OPERATOR = [Grant("operator", "test-*", "orders.*"), Grant("viewer", "test-*")]


@pytest.mark.parametrize(
    ("role", "cluster", "name", "is_allowed"),
    [
        (Role.OPERATOR, "test-1", "orders.new", True),
        (Role.OPERATOR, "test-1", "billing", False),
        (Role.VIEWER, "test-1", "billing", True),
        (Role.VIEWER, "production", "orders.new", False),
        (Role.ADMIN, "test-1", "orders.new", False),
        (Role.VIEWER, None, None, False),
    ],
)
def test_a_role_counts_where_its_patterns_do(
    role: Role, cluster: str | None, name: str | None, is_allowed: bool
) -> None:
    assert may(OPERATOR, role, cluster, name) is is_allowed


def test_reading_messages_is_a_right_of_its_own() -> None:
    assert not may_read_messages([Grant("admin")], "default", "orders")
    assert may_read_messages([Grant("viewer", names="orders*", may_read_messages=True)], "default", "orders")
    assert not may_read_messages([Grant("viewer", names="orders*", may_read_messages=True)], "default", "payments")


def test_what_lists_may_be_shared() -> None:
    assert sees_all_names(OPERATOR, "test-1")
    assert not sees_all_names([Grant("operator", names="orders.*")], "default")
    assert role_on(OPERATOR, "test-1") is Role.OPERATOR
    assert role_on(OPERATOR, "elsewhere") is None
    assert may(EVERYTHING, Role.ADMIN)


def test_a_password_is_kept_as_a_hash_with_a_salt() -> None:
    kept = hash_password("correct horse")
    assert "horse" not in kept
    assert kept != hash_password("correct horse")
    assert is_password("correct horse", kept)
    assert not is_password("wrong horse", kept)
    assert not is_password("correct horse", None), "nobody of that name"


def test_after_some_failures_the_next_must_wait() -> None:
    tries = Tries()
    keys = ("name anna", "address 10.0.0.1")
    for _ in range(passwords.TRIES_FREE - 1):
        tries.failed(keys, 0)
        assert tries.wait_ms(keys, 0) == 0
    waits = []
    for _ in range(9):
        tries.failed(keys, 0)
        waits.append(tries.wait_ms(keys, 0))
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]
    assert tries.wait_ms(("name bert", "address 10.0.0.1"), 0) == 60_000, "another name from the same address"
    assert tries.wait_ms(keys, 60_000) == 0
    tries.succeeded(keys)
    assert not tries.failures


def test_a_session_ends_after_its_life_or_when_its_person_signs_out() -> None:
    async def main() -> None:
        sessions = Sessions()
        secret = sessions.begin("anna", EVERYTHING, 0)
        session = sessions.find(secret, LIFE_MS - 1)
        assert session is not None
        assert session.person == "anna"
        assert sessions.find(secret, LIFE_MS) is None
        assert session.ended.is_set(), "streams under it end"
        first, second = (sessions.begin("bert", EVERYTHING, 0) for _ in range(2))
        sessions.end_all_of("bert")
        assert sessions.find(first, 1) is sessions.find(second, 1) is None
        await asyncio.sleep(0)

    virtual_time.run(main())


def test_on_loopback_only_its_own_names_lead_here() -> None:
    hosts = Hosts("127.0.0.1", ["console.example"])
    for name in ("127.0.0.1:8080", "localhost:8080", "[::1]:8080", "console.example", "CONSOLE.example:80"):
        assert hosts.serves(name)
    for name in ("evil.example", "10.0.0.5:8080", "", "127.0.0.1.evil.example"):
        assert not hosts.serves(name)


def test_elsewhere_addresses_in_numbers_do_too() -> None:
    hosts = Hosts("0.0.0.0")
    assert hosts.serves("10.0.0.5:8080")
    assert hosts.serves("[fe80::1]:8080")
    assert not hosts.serves("evil.example:8080")
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost", "0.0.0.0", "example")] == [
        True,
        True,
        True,
        True,
        False,
        False,
    ]
