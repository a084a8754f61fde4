"""Tokens of identity providers: which are good, where their keys come from, how a client gets its own."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from ottla.security.jaas import AppConfigurationEntry, JaasError
from ottla.security.oauth.http_fetch import FetchError, check_url
from ottla.security.oauth.signing_keys import UNKNOWN_KEY_REFRESH_MS, JwksCache, parse_keys
from ottla.security.oauth.token_source import Token, TokenEndpoint, TokenSource, make_source, request_token
from ottla.security.sasl.client_authenticator import make_login
from ottla.security.sasl.exchange import LoginError
from ottla.security.sasl.oauthbearer import (
    Claims,
    OAuthClient,
    OAuthServer,
    TokenError,
    TokenRequirements,
    parse_first,
    validate_signed,
    validate_unsecured,
)
from ottla.security.sasl.server_mechanisms import ServerMechanismConfig, make_oauthbearer

CALLBACKS = "org.apache.kafka.common.security.oauthbearer"
UNSECURED = f"{CALLBACKS}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
NOW = 1_900_000_000  # far enough ahead for PyJWT, which asks the machine's own clock


@cache
def key_of(name: str) -> Any:
    return ec.generate_private_key(ec.SECP256R1())


def public(name: str) -> dict[str, Any]:
    algorithm = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256)
    found: dict[str, Any] = json.loads(algorithm.to_jwk(key_of(name).public_key()))
    return {**found, "kid": name, "use": "sig", "alg": "ES256"}


def key_set(*names: str) -> bytes:
    return json.dumps({"keys": [public(name) for name in names]}).encode()


def token(key: str = "one", algorithm: str = "ES256", **claims: Any) -> str:
    whole = {"sub": "alice", "iat": 1_600_000_000, "exp": NOW, **claims}
    wanted = {name: value for name, value in whole.items() if value is not None}
    return jwt.encode(wanted, key_of(key), algorithm=algorithm, headers={"kid": key})


class Keys:
    def find(self, key_id: str | None) -> Any:
        return parse_keys(key_set("one", "two")).get(key_id)


class Time:
    def __init__(self) -> None:
        self.ms = 0

    def monotonic_ms(self) -> int:
        return self.ms

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.ms


def test_a_signed_token_names_its_owner_and_its_end() -> None:
    assert validate_signed(token(scope="read write"), Keys(), TokenRequirements()) == Claims("alice", NOW * 1000)
    assert validate_signed(token("two"), Keys(), TokenRequirements()).subject == "alice"


@pytest.mark.parametrize(
    ("claims", "wanted"),
    [
        ({"iss": "us"}, TokenRequirements(issuer="us")),
        ({"aud": "kafka"}, TokenRequirements(audiences=["kafka", "other"])),
        ({"aud": ["x", "other"]}, TokenRequirements(audiences=["kafka", "other"])),
        ({"sub": None, "email": "alice"}, TokenRequirements(subject_claim="email")),
        ({"scp": ["read", "write"]}, TokenRequirements(scope_claim="scp", scopes=frozenset({"write"}))),
    ],
)
def test_what_a_broker_may_expect(claims: Mapping[str, Any], wanted: TokenRequirements) -> None:
    assert validate_signed(token(**claims), Keys(), wanted).subject == "alice"


@pytest.mark.parametrize(
    ("claims", "wanted"),
    [
        ({"iss": "them"}, TokenRequirements(issuer="us")),
        ({}, TokenRequirements(issuer="us")),
        ({"aud": "x"}, TokenRequirements(audiences=["kafka"])),
        ({}, TokenRequirements(audiences=["kafka"])),
        ({"sub": None}, TokenRequirements()),
        ({"sub": " "}, TokenRequirements()),
        ({"sub": 7}, TokenRequirements()),
        ({"exp": None}, TokenRequirements()),
        ({"exp": 1_600_000_100}, TokenRequirements()),
        ({"exp": "later"}, TokenRequirements()),
        ({"iat": None}, TokenRequirements()),
        ({"nbf": NOW}, TokenRequirements()),
        ({"scope": "read"}, TokenRequirements(scopes=frozenset({"write"}))),
        ({"scope": {"read": 1}}, TokenRequirements()),
    ],
)
def test_tokens_that_are_not_as_expected(claims: Mapping[str, Any], wanted: TokenRequirements) -> None:
    with pytest.raises(TokenError) as caught:
        validate_signed(token(**claims), Keys(), wanted)
    assert token(**claims) not in str(caught.value)


def unsigned(**claims: Any) -> str:
    return jwt.encode({"sub": "admin", "iat": 1_600_000_000, "exp": NOW, **claims}, None, algorithm="none")


def forged() -> str:
    """Signed with the public key as if it were a shared secret."""
    secret = public("one")["x"].encode()
    return jwt.encode({"sub": "admin", "iat": 1, "exp": NOW}, secret, algorithm="HS256", headers={"kid": "one"})


@pytest.mark.parametrize(
    "make",
    [
        unsigned,
        forged,
        lambda: token("unknown"),
        lambda: token()[:-4] + "AAAA",
        lambda: ".".join([unsigned().split(".")[0], *token().split(".")[1:]]),
        lambda: "x",
        lambda: "a.b.c",
        lambda: "",
        lambda: "a" * 70_000,
    ],
)
def test_what_is_not_signed_by_the_provider_does_not_count(make: Callable[[], str]) -> None:
    with pytest.raises(TokenError):
        validate_signed(make(), Keys(), TokenRequirements())


def test_a_swapped_key_id_does_not_count() -> None:
    text = jwt.encode({"sub": "a", "iat": 1, "exp": NOW}, key_of("one"), algorithm="ES256", headers={"kid": "two"})
    with pytest.raises(TokenError):
        validate_signed(text, Keys(), TokenRequirements())


def test_unsecured_tokens_are_for_developers() -> None:
    now_ms = Time().now_ms
    assert validate_unsecured(unsigned(), now_ms, TokenRequirements()).subject == "admin"
    for bad in (token(), unsigned(exp=1), "x"):
        with pytest.raises(TokenError):
            validate_unsecured(bad, now_ms, TokenRequirements())


# ---- keys


class Provider:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked = 0

    def read(self, _url: str) -> bytes:
        self.asked += 1
        if not self.data:
            raise FetchError("it is away")
        return self.data


def test_keys_are_read_once_and_again_when_they_are_old() -> None:
    provider, time = Provider(key_set("one")), Time()
    keys = JwksCache("https://x/jwks", time, refresh_ms=60_000, read=provider.read)
    assert keys.find("one") is not None
    assert keys.find("one") is not None
    assert provider.asked == 1
    time.ms = 60_000
    keys.find("one")
    assert provider.asked == 2


def test_an_unknown_key_is_looked_for_but_not_all_the_time() -> None:
    provider, time = Provider(key_set("one")), Time()
    keys = JwksCache("https://x/jwks", time, read=provider.read)
    for _ in range(100):
        assert keys.find("two") is None
    assert provider.asked == 1
    provider.data = key_set("one", "two")
    time.ms = UNKNOWN_KEY_REFRESH_MS
    assert keys.find("two") is not None
    assert provider.asked == 2


def test_old_keys_stay_good_while_the_provider_is_away() -> None:
    provider, time = Provider(key_set("one")), Time()
    keys = JwksCache("https://x/jwks", time, refresh_ms=1000, backoff_ms=100, backoff_ms_max=300, read=provider.read)
    keys.find("one")
    provider.data = b""
    asked = []
    for time.ms in range(1000, 2000, 50):
        assert keys.find("one") is not None
        asked.append(provider.asked)
    assert asked[-1] <= 6  # after 0, 100, 300, 600 and 900 ms
    provider.data = key_set("two")
    time.ms = 3000
    assert keys.find("two") is not None
    assert keys.find("one") is None


def test_keys_in_a_file_are_read_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    keys = JwksCache(f"file://{path}", Time(), backoff_ms=0)
    assert keys.find("one") is None
    path.write_bytes(key_set("one"))
    assert keys.find("one") is not None
    other = tmp_path / "new"
    other.write_bytes(key_set("one", "two"))
    other.replace(path)
    assert keys.find("two") is not None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"[]",
        b"{}",
        b'{"keys":1}',
        b'{"keys":[]}',
        b'{"keys":[{"kty":"oct","k":"AAAA"}]}',
        b'{"keys":[1,{}]}',
    ],
)
def test_key_sets_that_are_none(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_keys(data)


def test_a_token_without_a_key_id_needs_a_set_of_one_key() -> None:
    one = JwksCache("https://x", Time(), read=Provider(key_set("one")).read)
    two = JwksCache("https://x", Time(), read=Provider(key_set("one", "two")).read)
    assert one.find(None) is not None
    assert two.find(None) is None


# ---- the exchange


def server() -> OAuthServer:
    return OAuthServer(lambda text: validate_signed(text, Keys(), TokenRequirements()))


def test_a_login_with_a_token() -> None:
    client, broker = OAuthClient(token, {"traceId": "7"}), server()
    assert client.step(broker.step(client.first())) == b""
    assert client.is_done
    assert broker.identity is not None
    assert (broker.identity.principal, broker.identity.expires_ms) == ("User:alice", NOW * 1000)


def test_a_bad_token_is_refused_in_two_steps() -> None:
    client, broker = OAuthClient(lambda: token("unknown"), {}), server()
    answer = broker.step(client.first())
    assert json.loads(answer) == {"status": "invalid_token"}
    assert client.step(answer) == b"\x01"
    assert not client.is_done
    with pytest.raises(LoginError) as caught:
        broker.step(b"\x01")
    assert caught.value.client_message == '{"status":"invalid_token"}'
    assert broker.identity is None


def test_a_token_authenticates_only_its_subject() -> None:
    with pytest.raises(LoginError, match="another authorization id"):
        server().step(b"n,a=admin,\x01auth=Bearer " + token().encode() + b"\x01\x01")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"\xff",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,,\x01nonsense\x01auth=Bearer x\x01\x01",
    ],
)
def test_messages_that_are_none(text: bytes) -> None:
    with pytest.raises(LoginError):
        server().step(text)


def test_the_word_bearer_is_read_in_any_case() -> None:
    assert parse_first(b"n,,\x01auth=bearer abc\x01\x01") == (None, "abc")


# ---- settings of the broker


def made(**settings: Any) -> Any:
    texts = {name.replace("_", "."): value for name, value in settings.items()}
    defaults = {
        "sasl.oauthbearer.expected.audience": (),
        "sasl.oauthbearer.sub.claim.name": "sub",
        "sasl.oauthbearer.scope.claim.name": "scope",
        "sasl.oauthbearer.clock.skew.seconds": 30,
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": 1000,
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": 1,
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": 1,
    }
    missing: Any = None
    return make_oauthbearer(ServerMechanismConfig("L", "OAUTHBEARER", None, (defaults | texts).get, missing, Time()))


def test_the_settings_arrive(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(key_set("one"))
    url = f"file://{path}"
    make = made(
        sasl_oauthbearer_jwks_endpoint_url=url,
        sasl_oauthbearer_expected_issuer="us",
        sasl_oauthbearer_expected_audience=("kafka",),
        sasl_oauthbearer_sub_claim_name="email",
    )
    good = token(iss="us", aud="kafka", email="bob").encode()
    exchange = make()
    assert exchange.step(b"n,,\x01auth=Bearer " + good + b"\x01\x01") == b""
    assert exchange.identity.principal == "User:bob"
    assert make().step(b"n,,\x01auth=Bearer " + token().encode() + b"\x01\x01") != b""


def test_unsecured_tokens_count_only_where_kafka_s_class_for_them_is_named() -> None:
    text = b"n,,\x01auth=Bearer " + unsigned().encode() + b"\x01\x01"
    assert made(sasl_server_callback_handler_class=UNSECURED)().step(text) == b""
    with pytest.raises(JaasError, match=r"jwks\.endpoint\.url is not set"):
        made()


def test_the_clock_skew_is_forgiven() -> None:
    wanted = TokenRequirements(skew_seconds=1_000_000_000)
    assert validate_signed(token(exp=1_600_000_100), Keys(), wanted).subject == "alice"


# ---- a client's own token

ENDPOINT = TokenEndpoint("https://login/token", "me", "geheim", "read")


def test_a_client_requests_its_token_with_its_credentials() -> None:
    sent: list[Any] = []

    def post(*arguments: Any) -> bytes:
        sent.extend(arguments)
        return b'{"access_token":"abc","expires_in":100}'

    assert request_token(ENDPOINT, post) == Token("abc", 100)
    url, form, headers, seconds = sent
    assert (url, form, seconds) == ("https://login/token", b"grant_type=client_credentials&scope=read", 10.0)
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")) == b"me:geheim"
    assert "geheim" not in repr(ENDPOINT)
    assert "abc" not in repr(Token("abc", 1))


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b'{"access_token":7}', b'{"error":"invalid_client"}'])
def test_an_answer_without_a_token_is_a_failed_login(answer: bytes) -> None:
    with pytest.raises(LoginError, match="no token"):
        request_token(ENDPOINT, lambda *_: answer)


def test_a_token_is_used_until_it_is_nearly_over() -> None:
    time, asked = Time(), []
    source = TokenSource(lambda: asked.append(1) or Token(str(len(asked)), 100), time)  # type: ignore[func-returns-value]
    assert source.token() == "1"
    time.ms = 79_000
    assert source.token() == "1"
    time.ms = 80_000
    assert source.token() == "2"


def test_where_a_token_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("abc\n")
    assert make_source({}, {"sasl.oauthbearer.token.endpoint.url": f"file://{path}"}).token() == "abc"
    path.write_text("def\n")
    assert make_source({}, {"sasl.oauthbearer.token.endpoint.url": f"file://{path}"}).token() == "def"
    unsecured = make_source({"unsecuredLoginStringClaim_sub": "dev"}, {}, Time()).token()
    assert validate_unsecured(unsecured, Time().now_ms, TokenRequirements()).subject == "dev"
    for properties in (
        {},
        {"sasl.oauthbearer.token.endpoint.url": "https://x/"},
        {"sasl.oauthbearer.token.endpoint.url": "x"},
    ):
        with pytest.raises(ValueError):
            make_source({}, properties)
    with pytest.raises(JaasError, match="clientSecret"):
        make_login(
            "OAUTHBEARER",
            {"sasl.oauthbearer.token.endpoint.url": "https://x/"},
            AppConfigurationEntry("m", "required", {"clientId": "x"}),
        )


@pytest.mark.parametrize(("factor", "second"), [("0.5", "2"), ("1.0", "1"), ("nonsense", "1")])
def test_the_refresh_window_is_a_share_of_a_token_s_life(
    factor: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(
        "ottla.security.oauth.token_source.request_token", lambda *_: asked.append(1) or Token(str(len(asked)), 100)
    )
    time = Time()
    properties = {
        "sasl.oauthbearer.token.endpoint.url": "https://x/",
        "sasl.oauthbearer.client.credentials.client.id": "a",
        "sasl.oauthbearer.client.credentials.client.secret": "b",
        "sasl.login.refresh.window.factor": factor,
    }
    source = make_source({}, properties, time)
    source.token()
    time.ms = 60_000
    assert source.token() == second


def test_the_time_for_the_login_server_is_the_longer_of_the_two(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[TokenEndpoint] = []
    monkeypatch.setattr(
        "ottla.security.oauth.token_source.request_token", lambda endpoint, _: seen.append(endpoint) or Token("t", 1)
    )
    url = {"sasl.oauthbearer.token.endpoint.url": "https://x/", "sasl.oauthbearer.scope": "s"}
    limits = {"sasl.login.connect.timeout.ms": "2000", "sasl.login.read.timeout.ms": "3000"}
    make_source({"clientId": "a", "clientSecret": "b"}, {**url, **limits}).token()
    assert seen == [TokenEndpoint("https://x/", "a", "b", "s", 3.0)]


@pytest.mark.parametrize("url", ["x", "ftp://a/b", "https://", "file://", ""])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match="key must be an address"):
        check_url(url, "key")
