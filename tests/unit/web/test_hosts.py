"""Which hosts and origins of requests are accepted."""

import pytest

from ottla.web.hosts import AllowedHosts, is_foreign_origin, is_loopback


def test_loopback_addresses_are_known() -> None:
    hosts = ("127.0.0.1", "127.9.9.9", "::1", "localhost", "0.0.0.0", "example")
    assert [is_loopback(host) for host in hosts] == [True, True, True, True, False, False]


def test_a_star_allows_every_host() -> None:
    assert AllowedHosts("*").allows("any.example")
    assert not AllowedHosts().allows("any.example")


@pytest.mark.parametrize(
    ("origin", "is_foreign"),
    [
        (None, False),
        ("http://localhost:8080", False),
        ("https://LOCALHOST:8080", False),
        ("http://localhost", True),
        ("http://localhost:8080.evil.example", True),
        ("null", True),
        ("", True),
        ("http://[", True),
    ],
)
def test_pages_of_other_origins_are_foreign(origin: str | None, is_foreign: bool) -> None:
    assert is_foreign_origin(origin, "Localhost:8080") == is_foreign
