"""What the audit trail tells of a delegation token that is renewed or ended: which one, and never its password."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.broker.audit import looking
from ottla.broker.audit.event import Change, Who, line_of
from ottla.broker.audit.noting import NOTED
from ottla.broker.security.tokens import Tokens
from ottla.controller.holder import ImageHolder
from ottla.controller.image import MetadataImage
from ottla.protocol.messages import delegation_tokens
from ottla.security.delegation_tokens import DelegationToken, token_hmac, token_password
from unit.broker.test_audit_changes import found
from virtual_time import LoopClock, run

SECRET = "top-secret"
TOKEN = DelegationToken("abc", "User:alice", "User:alice", ("User:bob",), 1, 9_000, 5_000)
IMAGE = MetadataImage(delegation_tokens={"abc": TOKEN})
HMAC = token_hmac(SECRET, "abc")
RENEW, EXPIRE = 39, 40


def seen_by(key: int, request: Any, secret: str = SECRET) -> Any:
    async def scene() -> Any:
        images = ImageHolder()
        images.publish(IMAGE)
        broker = SimpleNamespace(tokens=Tokens(secret, images, LoopClock()))
        look = NOTED[key].look
        assert look is looking.token
        return await look(request, SimpleNamespace(broker=broker))  # type: ignore[arg-type]

    return run(scene())


def renewal(period_ms: int, hmac: bytes = HMAC) -> Any:
    return delegation_tokens.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)


def expiry(period_ms: int, hmac: bytes = HMAC) -> Any:
    return delegation_tokens.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)


def told(key: int, request: Any, expires_ms: int, error: int = Error.NONE, **how: str) -> Change:
    kinds = (delegation_tokens.RenewDelegationTokenResponse, delegation_tokens.ExpireDelegationTokenResponse)
    response = kinds[key == EXPIRE](error_code=error, expiry_timestamp_ms=expires_ms)
    (change,) = found(key, request, response, before=IMAGE, seen=seen_by(key, request, **how))
    line = line_of("token", Who(*[None] * 6), change, id_="1", time_ms=0, broker=1).value.decode()
    for password in (HMAC.hex(), token_password(HMAC), json.dumps(token_password(HMAC))[1:-1]):
        assert password not in line
    return change


def test_a_renewal_and_an_end_name_the_token_its_owner_and_its_times() -> None:
    before = {"owner": "User:alice", "expires_ms": 5_000}
    assert told(RENEW, renewal(-1), 8_000) == Change("token", "abc", before, {**before, "expires_ms": 8_000})
    assert told(EXPIRE, expiry(10), 4_000) == Change("token", "abc", before, {**before, "expires_ms": 4_000})
    assert told(EXPIRE, expiry(-1), 4_000) == Change("token", "abc", before, None), "it is gone"


@pytest.mark.parametrize(("key", "make"), [(RENEW, renewal), (EXPIRE, expiry)])
def test_who_may_not_is_told_with_the_token_that_he_meant_and_what_he_wanted(key: int, make: Any) -> None:
    change = told(key, make(77), 0, Error.DELEGATION_TOKEN_OWNER_MISMATCH)
    assert (change.resource, change.before) == ("abc", {"owner": "User:alice", "expires_ms": 5_000})
    assert (change.error, change.after) == (Error.DELEGATION_TOKEN_OWNER_MISMATCH, {"period_ms": 77})


@pytest.mark.parametrize("secret", [SECRET, "another", ""])
def test_a_password_of_no_token_names_none(secret: str) -> None:
    change = told(RENEW, renewal(77, b"forged"), 0, Error.DELEGATION_TOKEN_NOT_FOUND, secret=secret)
    assert change == Change("token", None, None, {"period_ms": 77}, Error.DELEGATION_TOKEN_NOT_FOUND)
