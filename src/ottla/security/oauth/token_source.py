"""The token of a client: from an identity provider (client credentials, RFC 6749 4.4), from a file, or, for developers,
generated without a signature. Blocks: a worker thread requests it.

A token is used for four fifths of its lifetime, as in Java (`sasl.login.refresh.window.factor`).
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from ottla.base.clock import Clock, SystemClock
from ottla.security.oauth.http_fetch import CreateConnection, FetchError, check_url, fetch, make_fetch, path_of
from ottla.security.sasl.exchange import LoginError

REFRESH_SHARE: Final = 0.8
LIFETIME_SECONDS: Final = 3_600  # for a token without a lifetime
UNSECURED_CLAIM: Final = "unsecuredLoginStringClaim_sub"

RequestToken = Callable[[], "Token"]


class Token(NamedTuple):
    """A token, and its lifetime from the time of the request."""

    text: str
    lifetime_seconds: float

    def __repr__(self) -> str:
        return f"<Token for {self.lifetime_seconds} s>"


class TokenSource:
    """The token of one client, requested again when it is old. Thread-safe."""

    def __init__(self, ask: RequestToken, clock: Clock, share: float = REFRESH_SHARE) -> None:
        """`share` is the fraction of a token's lifetime after which it is replaced."""
        self._ask = ask
        self._clock = clock
        self._share = share
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._good_until_ms = 0

    def token(self) -> str:
        """Return the current token, or request a new one. Raises LoginError."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if self._token is None or now_ms >= self._good_until_ms:
                self._token = self._ask()
                self._good_until_ms = now_ms + int(self._token.lifetime_seconds * 1000 * self._share)
            return self._token.text

    def __repr__(self) -> str:
        return f"<TokenSource {self._token!r}>"


class TokenEndpoint(NamedTuple):
    """The token endpoint of an identity provider, and the client's credentials."""

    url: str
    client_id: str
    client_secret: str
    scope: str | None = None
    seconds_max: float = 10.0

    def __repr__(self) -> str:
        return f"<TokenEndpoint {self.url} {self.client_id}>"


def request_token(endpoint: TokenEndpoint, post: Callable[..., bytes] = fetch) -> Token:
    form = {"grant_type": "client_credentials"} | ({"scope": endpoint.scope} if endpoint.scope else {})
    basic = base64.b64encode(f"{endpoint.client_id}:{endpoint.client_secret}".encode()).decode()
    headers = {"Authorization": f"Basic {basic}", "Content-Type": "application/x-www-form-urlencoded"}
    try:
        answer: Any = json.loads(post(endpoint.url, urlencode(form).encode(), headers, endpoint.seconds_max))
    except FetchError as problem:
        raise LoginError(f"no token: {problem}") from None
    except ValueError:
        raise LoginError(f"no token: {endpoint.url} did not return JSON") from None
    text = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(text, str) or not text:
        raise LoginError(f"no token: the response of {endpoint.url} has no access_token")
    seconds = answer.get("expires_in")
    return Token(text, float(seconds) if isinstance(seconds, int | float) else lifetime_of(text))


def read_file(url: str, read: Callable[[str], bytes] = fetch) -> Token:
    try:
        return Token(read(url).decode("ascii").strip(), 0)  # read at each login: another process renews the file
    except (FetchError, UnicodeDecodeError) as problem:
        raise LoginError(
            f"no token: {problem if isinstance(problem, FetchError) else 'the file is not valid'}"
        ) from None


def make_unsecured(options: Mapping[str, str], clock: Clock) -> Token:
    """Return an unsigned token, as Kafka's login module generates for developers."""
    now = clock.now_ms() // 1000
    lifetime = options.get("unsecuredLoginLifetimeSeconds", str(LIFETIME_SECONDS))
    seconds = int(lifetime) if lifetime.isdecimal() else LIFETIME_SECONDS
    claims: dict[str, object] = {"sub": options[UNSECURED_CLAIM], "iat": now, "exp": now + seconds}
    for name, value in options.items():
        claim = name.removeprefix("unsecuredLoginStringClaim_")
        if claim != name:
            claims[claim] = value
    return Token(f"{_encode_part({'alg': 'none'})}.{_encode_part(claims)}.", seconds)


def lifetime_of(token: str) -> float:
    """Return the lifetime in a token's claims, without verification of its signature."""
    try:
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return float(claims["exp"]) - float(claims["iat"])
    except (IndexError, KeyError, ValueError, TypeError):
        return LIFETIME_SECONDS


def make_source(
    options: Mapping[str, str],
    properties: Mapping[str, str],
    clock: Clock | None = None,
    connect: CreateConnection | None = None,
) -> TokenSource:
    """Return the token source of these options and properties. Raises ValueError if something is missing.

    `connect` opens the connections to the identity provider; without it all addresses are allowed.
    """
    clock = clock or SystemClock()
    url = properties.get("sasl.oauthbearer.token.endpoint.url")
    if url is None:
        if UNSECURED_CLAIM not in options:
            raise ValueError("OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url")
        return TokenSource(lambda: make_unsecured(options, clock), clock)
    check_url(url, "sasl.oauthbearer.token.endpoint.url")
    if path_of(url) is not None:
        return TokenSource(lambda: read_file(url), clock)
    endpoint = TokenEndpoint(
        url,
        _required_option(options, "clientId", properties, "sasl.oauthbearer.client.credentials.client.id"),
        _required_option(options, "clientSecret", properties, "sasl.oauthbearer.client.credentials.client.secret"),
        options.get("scope") or properties.get("sasl.oauthbearer.scope"),
        _seconds(properties),
    )
    post = make_fetch(options, connect)
    return TokenSource(lambda: request_token(endpoint, post), clock, _share(properties))


def _required_option(options: Mapping[str, str], option: str, properties: Mapping[str, str], name: str) -> str:
    places = (name, name.replace(".client.credentials", ""))  # the second name is librdkafka's
    found = next((properties[key] for key in places if key in properties), options.get(option))
    if not found:
        raise ValueError(f"OAUTHBEARER needs a {option}: set it in sasl.jaas.config, or {places[0]}")
    return found


def _share(properties: Mapping[str, str]) -> float:
    try:
        return min(1.0, max(0.5, float(properties.get("sasl.login.refresh.window.factor", REFRESH_SHARE))))
    except ValueError:
        return REFRESH_SHARE


def _seconds(properties: Mapping[str, str]) -> float:
    given = [properties.get(key, "") for key in ("sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms")]
    return max((int(text) / 1000 for text in given if text.isdecimal() and int(text) > 0), default=10.0)


def _encode_part(fields: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields, separators=(",", ":")).encode()).decode().rstrip("=")
