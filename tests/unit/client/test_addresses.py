"""Bootstrap servers in all common notations."""

from __future__ import annotations

import pytest

from ottla.client.addresses import Address, parse_bootstrap
from ottla.client.errors import ClientError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9092", [Address("127.0.0.1", 9092)]),
        ("one:1, two:2,", [Address("one", 1), Address("two", 2)]),
        ("localhost", [Address("localhost", 9092)]),
        ("localhost:", [Address("localhost", 9092)]),
        ("[::1]:9093", [Address("::1", 9093)]),
        ("::1", [Address("::1", 9092)]),
        ("PLAINTEXT://broker:9094", [Address("broker", 9094)]),
    ],
)
def test_addresses_are_read_in_every_usual_form(text: str, expected: list[Address]) -> None:
    assert parse_bootstrap(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", ",", "host:abc", "host:0", "host:65536", ":9092", "host:-1", "host:٣", f"host:{'1' * 5000}"),
        *("file:///etc/passwd", "http://169.254.169.254/latest", "a:b@host:9092", "host\x00:1", "a b:1"),
    ],
)
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ClientError, match=r"127\.0\.0\.1:9092"):
        parse_bootstrap(text)


def test_an_address_prints_as_it_is_written() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"
    assert str(Address("broker", 9092)) == "broker:9092"
