"""The broker's side of each mechanism against the client's, and against the RFCs' own dialogues."""

from __future__ import annotations

import pytest

from ottla.security.sasl.digest_md5 import DigestMd5Client, parse_directives
from ottla.security.sasl.exchange import ClientExchange, LoginError, ServerExchange
from ottla.security.sasl.plain import PlainClient, PlainServer, users_in
from ottla.security.sasl.scram import ScramClient, ScramServer, TokenCredential, has_tokenauth
from ottla.security.scram_credentials import HASHES, ScramCredential, make_credential, parse_credential

USERS = {"alice": b"geheim", "CN=bob,O=x": b"p\xc3\xa4ss\x01"}
SECRET = b"s" * 32


class Known:
    """Credentials in a dictionary."""

    has_tokens = False

    def __init__(self, mechanism: str, users: dict[str, bytes], iterations: int = 4096) -> None:
        self.rows = {name: make_credential(mechanism, word, iterations=iterations) for name, word in users.items()}

    def find(self, _: str, name: str) -> ScramCredential | None:
        return self.rows.get(name)

    def any_credential(self, _: str) -> ScramCredential | None:
        return next(iter(self.rows.values()), None)

    def find_token(self, _: str, token_id: str) -> TokenCredential | None:
        return TokenCredential(self.rows["token"], "User:alice", 5000) if token_id == "token" else None


def converse(client: ClientExchange, server: ServerExchange) -> str:
    """Let both talk until both are done; who has logged in."""
    token = client.first()
    for _ in range(10):
        answer = server.step(token)
        token = client.step(answer)
        if client.is_done:
            assert server.identity is not None
            return server.identity.principal
    raise AssertionError("they find no end")


# ---- PLAIN


def test_plain_accepts_the_right_password() -> None:
    for name, password in USERS.items():
        assert converse(PlainClient(name, password.decode()), PlainServer(USERS)) == f"User:{name}"


def test_plain_users_are_options_of_the_login_module() -> None:
    assert users_in({"username": "x", "password": "y", "user_a": "b", "user_": "c"}) == {"a": b"b", "": b"c"}


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (b"\0alice\0falsch", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0geheim", "Authentication failed: Invalid username or password"),
        (b"\0alice\0geheimer", "Authentication failed: Invalid username or password"),
        (b"\0alice\0geheim\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0\0geheim", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0\xff\0geheim", "Authentication failed: Invalid username or password"),
        (
            b"bob\0alice\0geheim",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_plain_refuses_everything_else(token: bytes, told: str) -> None:
    server = PlainServer(USERS)
    with pytest.raises(LoginError) as caught:
        server.step(token)
    assert caught.value.client_message == told
    assert "geheim" not in str(caught.value)
    assert server.identity is None


def test_a_user_with_an_empty_password_cannot_log_in() -> None:
    with pytest.raises(LoginError):
        PlainServer({"alice": b""}).step(b"\0alice\0\0")
    with pytest.raises(LoginError):
        PlainServer({"alice": b""}).step(b"\0alice\0")


# ---- SCRAM


@pytest.mark.parametrize("mechanism", list(HASHES))
def test_scram_accepts_the_right_password(mechanism: str) -> None:
    known = Known(mechanism, USERS)
    for name, password in USERS.items():
        client = ScramClient(mechanism, name, password.decode())
        assert converse(client, ScramServer(mechanism, known, SECRET)) == f"User:{name}"


def test_the_dialogue_of_rfc_7677() -> None:
    salt = "W22ZaJ0SNY7soEsUEjb6gQ=="
    credential = make_credential("SCRAM-SHA-256", b"pencil", bytes.fromhex("5b6d99689d12358eeca04b141236fa81"), 4096)
    known = Known("SCRAM-SHA-256", {})
    known.rows["user"] = credential
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", lambda: "rOprNGfwEbeRWgbNEkqO")
    server = ScramServer("SCRAM-SHA-256", known, SECRET, lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    first = server.step(client.first())
    assert first == f"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s={salt},i=4096".encode()
    final = client.step(first)
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    last = server.step(final)
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert client.step(last) == b""
    assert client.is_done


@pytest.mark.parametrize("name", ["alice", "unknown"])
def test_clients_cannot_find_out_which_names_exist(name: str) -> None:
    known = Known("SCRAM-SHA-256", USERS, iterations=8192)
    salts = set()
    for _ in range(2):
        server = ScramServer("SCRAM-SHA-256", known, SECRET)
        client = ScramClient("SCRAM-SHA-256", name, "falsch")
        first = server.step(client.first())
        salts.add(first.partition(b",s=")[2])
        with pytest.raises(LoginError) as caught:
            server.step(client.step(first))
        assert caught.value.client_message == "Authentication failed"
        assert "geheim" not in str(caught.value)
    assert len(salts) == 1  # the same each time
    assert salts.pop().endswith(b"i=8192")


def test_made_up_salts_look_like_real_ones() -> None:
    known = Known("SCRAM-SHA-512", USERS)
    real = ScramServer("SCRAM-SHA-512", known, SECRET).step(b"n,,n=alice,r=x").partition(b",s=")[2]
    made_up = ScramServer("SCRAM-SHA-512", known, SECRET).step(b"n,,n=unknown,r=x").partition(b",s=")[2]
    assert len(real) == len(made_up)


def test_the_password_of_an_unknown_user_cannot_be_guessed() -> None:
    """Not even by who knows how the salt is made."""
    server = ScramServer("SCRAM-SHA-256", Known("SCRAM-SHA-256", {}), b"")
    client = ScramClient("SCRAM-SHA-256", "unknown", "")
    with pytest.raises(LoginError):
        server.step(client.step(server.step(client.first())))


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\xff",
        b"n,,n=,r=x",
        b"n,,n=alice",
        b"n,,n=alice,r=",
        b"n,,n=al=ice,r=x",
        b"y,,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,,m=must,n=alice,r=x",
        b"n,,n=alice,r=x\0",
        b"x" * 100_000,
    ],
)
def test_scram_refuses_first_messages_that_are_none(token: bytes) -> None:
    with pytest.raises(LoginError) as caught:
        ScramServer("SCRAM-SHA-256", Known("SCRAM-SHA-256", USERS), SECRET).step(token)
    assert caught.value.client_message == "Authentication failed"


@pytest.mark.parametrize("mechanism", list(HASHES))
def test_a_delegation_token_logs_in_as_its_owner_until_it_expires(mechanism: str) -> None:
    known = Known(mechanism, {**USERS, "token": b"hmac"})
    server = ScramServer(mechanism, known, SECRET)
    assert converse(ScramClient(mechanism, "token", "hmac", is_token=True), server) == "User:alice"
    assert server.identity is not None
    assert (server.identity.expires_ms, server.identity.is_delegated) == (5000, True)


@pytest.mark.parametrize(
    ("name", "password", "is_token", "reason"),
    [
        ("token", "forged", True, "not the HMAC of delegation token 'token'"),
        ("alice", "geheim", True, "there is no delegation token 'alice', or it has expired"),
        ("unknown", "hmac", True, "there is no delegation token 'unknown', or it has expired"),
        ("unknown", "hmac", False, "wrong password, or unknown user 'unknown'"),
    ],
)
def test_a_token_is_no_user_and_a_user_no_token(name: str, password: str, is_token: bool, reason: str) -> None:
    known = Known("SCRAM-SHA-256", {**USERS, "token": b"hmac"})
    server = ScramServer("SCRAM-SHA-256", known, SECRET)
    with pytest.raises(LoginError, match=reason) as caught:
        converse(ScramClient("SCRAM-SHA-256", name, password, is_token=is_token), server)
    assert (caught.value.client_message, server.identity) == ("Authentication failed", None)
    assert password not in str(caught.value)


def test_only_the_extension_makes_a_token() -> None:
    assert ScramClient("SCRAM-SHA-256", "a", "b", lambda: "n", is_token=True).first() == b"n,,n=a,r=n,tokenauth=true"
    answers = [
        has_tokenauth(text) for text in ("", ",tokenauth=true", ",a=b,tokenauth=TRUE", ",tokenauth=no", ",t=true")
    ]
    assert answers == [False, True, True, False, False]


def test_scram_refuses_another_authorization_id() -> None:
    known = Known("SCRAM-SHA-256", USERS)
    with pytest.raises(LoginError, match="another authorization id"):
        ScramServer("SCRAM-SHA-256", known, SECRET).step(b"n,a=admin,n=alice,r=x")
    assert ScramServer("SCRAM-SHA-256", known, SECRET).step(b"n,a=alice,n=alice,r=x").startswith(b"r=x")


@pytest.mark.parametrize("how", ["nonce", "proof", "short proof", "no proof", "binding", "replayed"])
def test_scram_refuses_final_messages_that_are_not_right(how: str) -> None:
    known = Known("SCRAM-SHA-256", USERS)
    server = ScramServer("SCRAM-SHA-256", known, SECRET)
    client = ScramClient("SCRAM-SHA-256", "alice", "geheim")
    final = client.step(server.step(client.first())).decode()
    if how == "nonce":
        final = final.replace(",r=", ",r=0")
    elif how == "proof":
        final = final.replace(",p=", ",p=AAAA")[:-4]
    elif how == "short proof":
        final = final.partition(",p=")[0] + ",p=AAAA"
    elif how == "no proof":
        final = final.partition(",p=")[0]
    elif how == "binding":
        final = final.replace("c=biws", "c=eSws")
    else:  # an eavesdropper replays the message in another login
        server = ScramServer("SCRAM-SHA-256", known, SECRET)
        server.step(client.first())
    with pytest.raises(LoginError):
        server.step(final.encode())
    assert server.identity is None
    with pytest.raises(LoginError):
        server.step(final.encode())


@pytest.mark.parametrize("iterations", [1, 4095, 1_000_001, 999_999_999])
def test_a_client_refuses_too_few_and_too_many_iterations(iterations: int) -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "geheim", lambda: "n")
    with pytest.raises(LoginError, match="Invalid iterations"):
        client.step(f"r=nx,s=AAAA,i={iterations}".encode())


@pytest.mark.parametrize("answer", [b"r=other,s=AAAA,i=4096", b"r=n,s=AAAA,i=4096", b"", b"e=x", b"r=nx,s=!,i=4096"])
def test_a_client_refuses_a_first_answer_that_is_none(answer: bytes) -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "geheim", lambda: "n")
    with pytest.raises(LoginError):
        client.step(answer)


def test_a_client_refuses_a_server_that_does_not_know_the_password() -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "geheim", lambda: "n")
    client.step(b"r=nx,s=AAAA,i=4096")
    with pytest.raises(LoginError, match="an impostor"):
        client.step(b"v=AAAA")


def test_credentials_are_kept_as_kafka_does() -> None:
    made = make_credential("SCRAM-SHA-512", b"x", b"salt", 4096)
    assert made.to_text().startswith("salt=c2FsdA==,stored_key=")
    assert parse_credential("SCRAM-SHA-512", made.to_text()) == made
    assert "salt" not in repr(made)
    for damaged in (
        "",
        "salt=c2FsdA==",
        made.to_text().replace("4096", "x"),
        made.to_text().replace("stored_key=", "stored_key=A"),
    ):
        with pytest.raises(ValueError, match="not a credential of SCRAM-SHA-512"):
            parse_credential("SCRAM-SHA-512", damaged)


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


def test_a_server_without_the_password_is_refused() -> None:
    exchange = client()
    exchange.step(CHALLENGE)
    with pytest.raises(LoginError, match="failed to prove that it knows the password"):
        exchange.step(b"rspauth=00000000000000000000000000000000")
    assert not exchange.is_done


@pytest.mark.parametrize(
    ("challenge", "problem"),
    [
        (b"", "does not offer DIGEST-MD5"),
        (b"\x00\x01\xff", "does not offer DIGEST-MD5"),
        (b'nonce="",qop="auth"', "does not offer DIGEST-MD5"),
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
    with pytest.raises(LoginError, match="does not support these characters"):
        client("ö", "日本").step(latin)


def test_values_with_commas_and_quotes_are_read_whole() -> None:
    assert parse_directives(rb'realm="a,b\"c\\", qop = auth ,x=') == {
        "realm": rb'a,b"c' + b"\\",
        "qop": b"auth",
        "x": b"",
    }
