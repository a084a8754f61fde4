"""DIGEST-MD5 against the example of RFC 2831, and against servers that are not what they should be."""

import pytest

from ottla.security.sasl.digest_md5 import DigestMd5Client, parse_directives
from ottla.security.sasl.mechanism import LoginError

# RFC 2831, section 4: the exchange of IMAP.
CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
RESPONSE = b"d388dad90d4bbd760a152321f2143af7"
PROOF = b"rspauth=ea40f60335c427b5527b84dbabcdfffd"


def client(name: str = "chris", password: str = "secret") -> DigestMd5Client:
    return DigestMd5Client(name, password, "imap", "elwood.innosoft.com", lambda: "OA6MHXh6VqTrRk")


def test_the_example_of_the_rfc() -> None:
    exchange = client()
    assert exchange.first() == b"", "the server speaks first"
    answer = parse_directives(exchange.step(CHALLENGE))
    assert answer["response"] == RESPONSE
    assert (answer["username"], answer["digest-uri"], answer["nc"]) == (
        b"chris",
        b"imap/elwood.innosoft.com",
        b"00000001",
    )
    assert not exchange.is_done, "the server has not proved anything yet"
    assert exchange.step(PROOF) == b""
    assert exchange.is_done


def test_who_does_not_know_the_password_is_no_server_of_ours() -> None:
    exchange = client()
    exchange.step(CHALLENGE)
    with pytest.raises(LoginError, match="does not prove that it knows the password"):
        exchange.step(b"rspauth=00000000000000000000000000000000")
    assert not exchange.is_done


@pytest.mark.parametrize(
    ("challenge", "problem"),
    [
        (b"", "asks for no login by DIGEST-MD5"),
        (b"\x00\x01\xff", "asks for no login by DIGEST-MD5"),
        (b'nonce="",qop="auth"', "asks for no login by DIGEST-MD5"),
        (b'nonce="n",qop="auth-conf"', "not safe: use TLS"),
    ],
)
def test_a_challenge_that_is_none(challenge: bytes, problem: str) -> None:
    with pytest.raises(LoginError, match=problem):
        client().step(challenge)


def test_names_and_passwords_of_any_letters() -> None:
    answer = client('a"b\\ö', "日本").step(CHALLENGE)
    assert parse_directives(answer)["username"] == 'a"b\\ö'.encode()
    assert b"charset=utf-8" in answer
    latin = CHALLENGE.replace(b",charset=utf-8", b"")
    assert parse_directives(client("ö", "é").step(latin))["username"] == b"\xf6"
    with pytest.raises(LoginError, match="such letters"):
        client("ö", "日本").step(latin)


def test_values_with_commas_and_quotes_are_read_whole() -> None:
    assert parse_directives(rb'realm="a,b\"c\\", qop = auth ,x=') == {
        "realm": rb'a,b"c' + b"\\",
        "qop": b"auth",
        "x": b"",
    }
