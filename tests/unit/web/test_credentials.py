"""Credentials of requests."""

import pytest

from ottla.web.credentials import VERIFIED_MAX, VerifiedPasswords, basic_credentials, read_authorization


def test_schemes_are_read_in_any_case() -> None:
    assert read_authorization("BASIC  YTpi ") == ("basic", "YTpi")
    assert read_authorization("") == ("", "")


@pytest.mark.parametrize("text", ["", "%%%", "YWI=", "/w==", "ä"])
def test_what_is_not_basic_authentication_is_told_apart(text: str) -> None:
    assert basic_credentials(text) is None
    assert basic_credentials("YTpiOmM=") == ("a", "b:c")


def test_right_passwords_are_kept_for_a_while() -> None:
    verified = VerifiedPasswords[int](kept_ms=1000)
    verified.add("ann", "secret", 1, now_ms=0)
    verified.add("bob", "secret", 2, now_ms=500)
    assert [verified.find(name, "secret", 999) for name in ("ann", "bob", "eve")] == [1, 2, None]
    assert verified.find("ann", "guess", 999) is None
    assert [verified.find(name, "secret", 1000) for name in ("ann", "bob")] == [None, 2]
    verified.discard("bob")
    assert verified.find("bob", "secret", 999) is None


def test_at_most_a_thousand_passwords_are_kept() -> None:
    verified = VerifiedPasswords[int]()
    for number in range(VERIFIED_MAX + 1):
        verified.add("ann", str(number), number, now_ms=0)
    assert [verified.find("ann", text, 10**9) for text in ("0", "1", str(VERIFIED_MAX))] == [None, 1, VERIFIED_MAX]
