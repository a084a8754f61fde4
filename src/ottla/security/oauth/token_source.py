"""Where a client gets its token: from an identity provider (client credentials, RFC 6749 4.4), from a file, or, for
developers, from itself without a signature. Blocks: a worker asks.

A token is used until four fifths of its life are over, as Java does (`sasl.login.refresh.window.factor`).
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from ottla.base.clock import Clock, SystemClock
from ottla.security.oauth.web import Connect, WebError, check_url, fetch, fetch_by, path_of
from ottla.security.sasl.mechanism import LoginError

REFRESH_SHARE: Final = 0.8
LIFETIME_SECONDS: Final = 3_600  # of a token that does not tell
UNSECURED_CLAIM: Final = "unsecuredLoginStringClaim_sub"

Ask = Callable[[], "Token"]


class Token(NamedTuple):
    """A token, and for how long it is good from when it was asked for."""

    text: str
    seconds: float

    def __repr__(self) -> str:
        return f"<Token for {self.seconds} s>"


class TokenSource:
    """The token of one client, asked for again when it is old. For several threads."""

    def __init__(self, ask: Ask, clock: Clock, share: float = REFRESH_SHARE) -> None:
        """`share` of its life is over when a token is replaced."""
        self._ask = ask
        self._clock = clock
        self._share = share
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._good_until_ms = 0

    def token(self) -> str:
        """Raises LoginError."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if self._token is None or now_ms >= self._good_until_ms:
                self._token = self._ask()
                self._good_until_ms = now_ms + int(self._token.seconds * 1000 * self._share)
            return self._token.text

    def __repr__(self) -> str:
        return f"<TokenSource {self._token!r}>"


class Endpoint(NamedTuple):
    """An identity provider's, and who asks there."""

    url: str
    client_id: str
    client_secret: str
    scope: str | None = None
    seconds_max: float = 10.0

    def __repr__(self) -> str:
        return f"<Endpoint {self.url} {self.client_id}>"


def ask_endpoint(endpoint: Endpoint, post: Callable[..., bytes] = fetch) -> Token:
    form = {"grant_type": "client_credentials"} | ({"scope": endpoint.scope} if endpoint.scope else {})
    basic = base64.b64encode(f"{endpoint.client_id}:{endpoint.client_secret}".encode()).decode()
    headers = {"Authorization": f"Basic {basic}", "Content-Type": "application/x-www-form-urlencoded"}
    try:
        answer: Any = json.loads(post(endpoint.url, urlencode(form).encode(), headers, endpoint.seconds_max))
    except WebError as problem:
        raise LoginError(f"no token: {problem}") from None
    except ValueError:
        raise LoginError(f"no token: {endpoint.url} does not answer with JSON") from None
    text = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(text, str) or not text:
        raise LoginError(f"no token: the answer of {endpoint.url} has no access_token")
    seconds = answer.get("expires_in")
    return Token(text, float(seconds) if isinstance(seconds, int | float) else lifetime_of(text))


def read_file(url: str, read: Callable[[str], bytes] = fetch) -> Token:
    try:
        return Token(read(url).decode("ascii").strip(), 0)  # read at each login: somebody else renews it
    except (WebError, UnicodeDecodeError) as problem:
        raise LoginError(f"no token: {problem if isinstance(problem, WebError) else 'the file holds none'}") from None


def make_unsecured(options: Mapping[str, str], clock: Clock) -> Token:
    """A token that proves nothing, as Kafka's login module makes one for developers."""
    now = clock.now_ms() // 1000
    lifetime = options.get("unsecuredLoginLifetimeSeconds", str(LIFETIME_SECONDS))
    seconds = int(lifetime) if lifetime.isdecimal() else LIFETIME_SECONDS
    claims: dict[str, object] = {"sub": options[UNSECURED_CLAIM], "iat": now, "exp": now + seconds}
    for name, value in options.items():
        claim = name.removeprefix("unsecuredLoginStringClaim_")
        if claim != name:
            claims[claim] = value
    return Token(f"{_part({'alg': 'none'})}.{_part(claims)}.", seconds)


def lifetime_of(token: str) -> float:
    """How long a token says that it is good, without looking at its signature."""
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
    connect: Connect | None = None,
) -> TokenSource:
    """What the options of the login module and the properties ask for. Raises ValueError that names what is missing.

    `connect` opens the connections to the identity provider; without one, anything may be talked to.
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
    endpoint = Endpoint(
        url,
        _either(options, "clientId", properties, "sasl.oauthbearer.client.credentials.client.id"),
        _either(options, "clientSecret", properties, "sasl.oauthbearer.client.credentials.client.secret"),
        options.get("scope") or properties.get("sasl.oauthbearer.scope"),
        _seconds(properties),
    )
    post = fetch_by(options, connect)
    return TokenSource(lambda: ask_endpoint(endpoint, post), clock, _share(properties))


def _either(options: Mapping[str, str], option: str, properties: Mapping[str, str], name: str) -> str:
    places = (name, name.replace(".client.credentials", ""))  # the second is librdkafka's
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


def _part(fields: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields, separators=(",", ":")).encode()).decode().rstrip("=")
