"""Users of the cluster: SCRAM credentials and delegation tokens.

The people of this console are in people.py. Rules:
1. Only admins may read or change users.
2. Passwords are hashed here; they are neither sent nor audited. The HMAC of a token is never returned.
"""

from __future__ import annotations

import msgspec

from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.client.quotas import ScramUpsertion, alter_scram, describe_scram
from ottla.client.tokens import TokenWithHmac, describe_tokens, expire_token
from ottla.console.api.call import Call
from ottla.console.api.errors import Unavailable, bad_request, not_found
from ottla.console.clusters.cluster import wait_until
from ottla.security.scram_credentials import ITERATIONS_MAX, ITERATIONS_MIN

ITERATIONS = 8_192  # as in `ottla users`
USERS_MAX = 10_000  # that are shown
TOKENS_MAX = 5_000
LENGTH_MAX = 1_000
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class CredentialRow(msgspec.Struct, frozen=True):
    mechanism: str
    iterations: int


class UserRow(msgspec.Struct, frozen=True):
    user: str
    credentials: list[CredentialRow]


class UserList(msgspec.Struct, frozen=True):
    users: list[UserRow]
    is_all: bool
    iterations: tuple[int, int, int]  # minimum, default, maximum
    unavailable: Unavailable | None = None


class ScramPassword(msgspec.Struct, forbid_unknown_fields=True):
    password: str
    iterations: int = ITERATIONS


class DelegationTokenRow(msgspec.Struct, frozen=True):
    token_id: str
    owner: str
    requester: str
    renewers: list[str]
    issue_ms: int
    expiry_ms: int
    max_ms: int


class DelegationTokenList(msgspec.Struct, frozen=True):
    """Tokens that the console may describe: its own, and those of users for which it has DESCRIBE_TOKENS."""

    tokens: list[DelegationTokenRow]
    is_all: bool
    unavailable: Unavailable | None = None


async def list_users(call: Call) -> UserList:
    limits = (ITERATIONS_MIN, ITERATIONS, ITERATIONS_MAX)
    found, unavailable = await call.query_if_available(all_users)
    return UserList(found[:USERS_MAX], len(found) <= USERS_MAX, limits, unavailable)


async def set_password(call: Call) -> UserList:
    body: ScramPassword = call.body
    user, mechanism = call.parameters["user"], _checked_mechanism(call)
    if not 0 < len(body.password) <= LENGTH_MAX:
        raise bad_request("{0} has 1 to {1} characters", "password", LENGTH_MAX)
    if len(user) > LENGTH_MAX:
        raise bad_request("{0} has 1 to {1} characters", "user", LENGTH_MAX)
    if not ITERATIONS_MIN <= body.iterations <= ITERATIONS_MAX:
        raise bad_request("iterations must be {0} to {1}", ITERATIONS_MIN, ITERATIONS_MAX)

    def put(client: Client) -> None:
        call.audit(f"user {user}", _credentials_of(client, user), {mechanism: body.iterations})
        alter_scram(client, user, [ScramUpsertion(mechanism, body.iterations, body.password.encode())], ())
        wait_until(lambda: (_credentials_of(client, user) or {}).get(mechanism) == body.iterations)

    await call.cluster.change(put)
    return await list_users(call)


async def drop_password(call: Call) -> UserList:
    user, mechanism = call.parameters["user"], _checked_mechanism(call)

    def drop(client: Client) -> None:
        known = _credentials_of(client, user) or {}
        call.audit(f"user {user}", known, {name: count for name, count in known.items() if name != mechanism})
        if mechanism not in known:
            raise not_found("{0} has no password for {1}", user, mechanism)
        alter_scram(client, user, (), [mechanism])
        wait_until(lambda: mechanism not in (_credentials_of(client, user) or {}))

    await call.cluster.change(drop)
    return await list_users(call)


async def list_tokens(call: Call) -> DelegationTokenList:
    found, unavailable = await call.query_if_available(all_tokens)
    rows = [_token_row(each) for each in found[:TOKENS_MAX]]
    return DelegationTokenList(rows, len(found) <= TOKENS_MAX, unavailable)


async def expire_delegation_token(call: Call) -> None:
    """Expire a token now: existing sessions continue, but it no longer authenticates."""
    token_id = call.parameters["token"]

    def end(client: Client) -> None:
        known = next((each for each in describe_tokens(client) if each.token.token_id == token_id), None)
        call.audit(f"delegation token {token_id}", before=_token_row(known) if known is not None else None)
        if known is None:
            raise not_found("there is no delegation token {0}", token_id)
        expire_token(client, known.hmac)
        wait_until(lambda: all(each.token.token_id != token_id for each in describe_tokens(client)))

    await call.cluster.change(end)


def all_users(client: Client) -> list[UserRow]:
    return [
        UserRow(user, [CredentialRow(*each) for each in sorted(known)])
        for user, known in sorted(describe_scram(client, ()).items())
        if not isinstance(known, BrokerError)
    ]


def all_tokens(client: Client) -> list[TokenWithHmac]:
    return sorted(describe_tokens(client), key=lambda each: each.token.token_id)


def _credentials_of(client: Client, user: str) -> dict[str, int] | None:
    found = describe_scram(client, (user,)).get(user)
    if isinstance(found, BrokerError):
        raise found
    return dict(found) if found else None


def _checked_mechanism(call: Call) -> str:
    name = call.parameters["mechanism"]
    if name not in MECHANISMS:
        raise bad_request("the mechanism must be one of {0}", ", ".join(MECHANISMS))
    return name


def _token_row(known: TokenWithHmac) -> DelegationTokenRow:
    token = known.token
    return DelegationTokenRow(
        token.token_id,
        token.owner,
        token.token_requester,
        list(token.renewers),
        token.issue_ms,
        token.expiry_ms,
        token.max_ms,
    )
