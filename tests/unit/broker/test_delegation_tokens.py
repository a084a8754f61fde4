"""Delegation tokens on a broker: permissions, HMACs, logins and expiry."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from tests.unit.broker.nodes import node
from tests.virtual_time import LoopClock, run

from ottla.base.errors import Error, KafkaError
from ottla.base.security import ANONYMOUS, Operation, ResourceType
from ottla.broker.handlers import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from ottla.broker.log_manager.scheduled_tasks import TaskScheduler
from ottla.broker.node import Node
from ottla.broker.security import delegation_tokens as broker_tokens
from ottla.broker.security.delegation_tokens import DelegationTokenManager, may_request_tokens, remove_expired
from ottla.broker.security.login_setup import ImageCredentialProvider
from ottla.controller.image import MetadataCache, MetadataImage
from ottla.network.connection import ConnectedClient
from ottla.protocol.messages.credentials import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
    TokenPrincipal,
)
from ottla.security.delegation_tokens import DelegationToken, password_of_hmac, token_hmac
from ottla.security.sasl.scram import ScramClient, ScramServer

SECRET = "top-secret"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:9093,SASL_SSL://127.0.0.1:9094",
    "delegation.token.secret.key": SECRET,
}


class FakeController:
    """Runs decisions on the image of the broker, like a standalone controller."""

    is_active = True

    def __init__(self, images: MetadataCache) -> None:
        self._images = images
        self._ids = iter(range(1, 1000))
        self.failure: KafkaError | None = None

    def new_uuid(self) -> Any:
        return UUID(int=next(self._ids))

    @property
    def image(self) -> MetadataImage:
        return self._images.image

    async def change(self, decide: Callable[[MetadataImage], Any], size: int) -> Any:
        assert size == len(self.image.delegation_tokens)  # decisions about many tokens run in a thread
        if self.failure is not None:
            raise self.failure
        decision = decide(self._images.image)
        self._images.publish(decision.image)
        return decision.reply


class FakeBroker:
    """The part of a broker that token handlers use."""

    membership = forwarding = None

    def __init__(self, me: Node) -> None:
        self.node, self.settings, self.clock = me, me.settings, me.clock
        self.delegation_tokens = DelegationTokenManager(me.settings.delegation_token_secret_key, me.images, me.clock)
        self.controller: Any = FakeController(me.images)

    @property
    def image(self) -> MetadataImage:
        return self.node.image


Rights = set[tuple[str, Operation, ResourceType, str]]


class Asker:
    """A client of a broker."""

    is_forwarded = False
    api_key = 38

    def __init__(self, broker: Any, rights: Rights, principal: str, listener: str = "SASL_SSL") -> None:
        self.broker = broker
        self.rights = rights
        self.client = ConnectedClient("host", 1, listener)
        self.client.principal = principal

    @property
    def principal(self) -> str:
        return self.client.principal

    def is_authorized(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        return (self.principal, operation, kind, name) in self.rights

    is_visible = is_authorized

    async def create(self, **fields: Any) -> CreateDelegationTokenResponse:
        request = CreateDelegationTokenRequest(**{"max_lifetime_ms": -1, **fields})
        answer: CreateDelegationTokenResponse = await create_delegation_token.handle(request, self)  # type: ignore[arg-type]
        return answer

    async def renew(self, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        answer = await renew_delegation_token.handle(request, self)  # type: ignore[arg-type]
        return answer.error_code, answer.expiry_timestamp_ms

    async def expire(self, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        answer = await expire_delegation_token.handle(request, self)  # type: ignore[arg-type]
        return answer.error_code, answer.expiry_timestamp_ms

    async def describe(self, *owners: str, no_owners: bool = False) -> DescribeDelegationTokenResponse:
        named = [TokenPrincipal(principal_type="User", principal_name=name) for name in owners]
        request = DescribeDelegationTokenRequest(owners=named if owners or no_owners else None)
        return await describe_delegation_token.handle(request, self)  # type: ignore[arg-type]


class Stand:
    """A broker with tokens and users."""

    def __init__(self, **settings: str) -> None:
        named = {f"delegation.token.{key.replace('_', '.')}": value for key, value in settings.items()}
        self.clock = LoopClock()
        self.broker = FakeBroker(node({**SETTINGS, **named}, clock=self.clock))
        self.rights: Rights = set()
        self.alice, self.bob, self.carol = (self.asker(f"User:{name}") for name in ("alice", "bob", "carol"))

    def asker(self, principal: str, listener: str = "SASL_SSL") -> Asker:
        return Asker(self.broker, self.rights, principal, listener)

    @property
    def known(self) -> dict[str, DelegationToken]:
        return dict(self.broker.image.delegation_tokens)

    def log_in(self, token_id: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Any:
        credentials = ImageCredentialProvider(self.broker.node.images, self.broker.delegation_tokens)
        server = ScramServer(mechanism, credentials, b"s" * 32)
        client = ScramClient(mechanism, token_id, password, is_token=True)
        assert not server.is_non_blocking  # a worker derives the credential
        answer = server.step(client.first())
        assert server.is_non_blocking
        client.step(server.step(client.step(answer)))
        return server.identity


def user(name: str) -> TokenPrincipal:
    return TokenPrincipal(principal_type="User", principal_name=name)


def test_authorized_users_create_renew_and_expire_tokens() -> None:
    async def scene() -> None:
        stand = Stand()
        now_ms = stand.clock.now_ms()
        made = await stand.alice.create(renewers=[user("bob")])
        assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "alice", "alice")
        times = (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms)
        assert times == (now_ms, now_ms + DAY_MS, now_ms + 7 * DAY_MS)
        assert made.hmac == token_hmac(SECRET, made.token_id)
        assert await stand.bob.renew(made.hmac, HOUR_MS) == (0, now_ms + HOUR_MS)
        for period_ms in (-1, 0, 100 * DAY_MS):
            assert await stand.alice.renew(made.hmac, period_ms) == (0, now_ms + DAY_MS)
        assert await stand.carol.renew(made.hmac) == (Error.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
        assert await stand.carol.expire(made.hmac) == (Error.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
        assert await stand.alice.renew(b"forged") == (Error.DELEGATION_TOKEN_NOT_FOUND, 0)
        assert await stand.bob.expire(made.hmac, HOUR_MS) == (0, now_ms + HOUR_MS)
        assert (await stand.alice.expire(made.hmac))[0] == 0
        assert stand.known == {}
        assert await stand.alice.expire(made.hmac) == (Error.DELEGATION_TOKEN_NOT_FOUND, 0)

    run(scene())


def test_the_settings_limit_the_lifetime_of_a_token() -> None:
    async def scene() -> None:
        stand = Stand(max_lifetime_ms="5000", expiry_time_ms="2000")
        now_ms = stand.clock.now_ms()
        made = await stand.alice.create()
        assert (made.expiry_timestamp_ms, made.max_timestamp_ms) == (now_ms + 2000, now_ms + 5000)
        assert (await stand.alice.create(max_lifetime_ms=6000)).max_timestamp_ms == now_ms + 5000
        short = await stand.alice.create(max_lifetime_ms=1000)
        assert (short.expiry_timestamp_ms, short.max_timestamp_ms) == (now_ms + 1000, now_ms + 1000)
        assert await stand.alice.renew(made.hmac) == (0, now_ms + 2000)
        ages = Stand(max_lifetime_ms=str(2**63 - 1), expiry_time_ms=str(2**63 - 1))
        endless = await ages.alice.create()
        assert (endless.expiry_timestamp_ms, endless.max_timestamp_ms) == (2**63 - 1, 2**63 - 1)
        assert await ages.alice.renew(endless.hmac, 2**63 - 1) == (0, 2**63 - 1)

    run(scene())


def test_without_a_secret_there_are_no_tokens() -> None:
    async def scene() -> None:
        stand = Stand(secret_key="")
        disabled = Error.DELEGATION_TOKEN_AUTH_DISABLED
        assert (await stand.alice.create()).error_code == disabled
        assert await stand.alice.renew(b"x") == (disabled, 0)
        assert await stand.alice.expire(b"x") == (disabled, 0)
        assert (await stand.alice.describe()).error_code == disabled
        assert stand.broker.delegation_tokens.credential("SCRAM-SHA-256", "t") is None

    run(scene())


def test_anonymous_clients_and_token_users_get_no_tokens() -> None:
    async def scene() -> None:
        stand = Stand()
        anonymous = stand.asker(ANONYMOUS, "PLAINTEXT")
        one_way = stand.asker(ANONYMOUS, "SSL")
        delegated = stand.asker("User:alice")
        delegated.client.is_delegated = True
        for asker in (anonymous, one_way, delegated):
            refused = Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            assert (await asker.create()).error_code == refused
            assert await asker.renew(b"x") == (refused, -1)
            assert await asker.expire(b"x") == (refused, -1)
            assert (await asker.describe()).error_code == refused
        assert (await stand.asker("User:CN=alice", "SSL").create()).error_code == 0
        delegated.is_forwarded = anonymous.is_forwarded = True
        asked = (delegated, anonymous)
        assert [may_request_tokens(asker) for asker in asked] == [False, True]  # type: ignore[arg-type]

    run(scene())


def test_a_token_for_another_owner_needs_a_permission() -> None:
    async def scene() -> None:
        stand = Stand()
        wanted = {"owner_principal_type": "User", "owner_principal_name": "bob"}
        refused = await stand.carol.create(**wanted)
        assert (refused.error_code, refused.token_id) == (Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "")
        assert (refused.principal_name, refused.token_requester_principal_name) == ("bob", "carol")
        stand.rights.add(("User:carol", Operation.CREATE_TOKENS, ResourceType.USER, "User:bob"))
        made = await stand.carol.create(**wanted)
        (token,) = stand.known.values()
        assert (made.error_code, token.owner, token.token_requester) == (0, "User:bob", "User:carol")
        assert await stand.carol.renew(made.hmac) == (Error.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
        assert len((await stand.carol.describe()).tokens) == 1
        assert (await stand.bob.renew(made.hmac))[0] == 0

    run(scene())


@pytest.mark.parametrize(
    "fields",
    [
        {"renewers": [TokenPrincipal(principal_type="Group", principal_name="x")]},
        {"renewers": [TokenPrincipal(principal_type="", principal_name="x")]},
    ],
)
def test_only_users_can_be_renewers(fields: dict[str, Any]) -> None:
    async def scene() -> None:
        stand = Stand()
        assert (await stand.alice.create(**fields)).error_code == Error.INVALID_PRINCIPAL_TYPE
        assert (await stand.alice.create(renewers=[user("x")] * 1001)).error_code == Error.INVALID_REQUEST
        assert stand.known == {}

    run(scene())


def test_tokens_are_visible_to_authorized_users_only() -> None:
    async def scene() -> None:
        stand = Stand()
        first = await stand.alice.create(renewers=[user("bob")])
        await stand.bob.create()

        async def seen(asker: Asker, *owners: str, no_owners: bool = False) -> list[str]:
            return [token.principal_name for token in (await asker.describe(*owners, no_owners=no_owners)).tokens]

        assert await seen(stand.alice) == ["alice"]
        assert await seen(stand.bob) == ["alice", "bob"]
        assert await seen(stand.bob, "alice") == ["alice"]
        assert await seen(stand.alice, "bob") == ["alice"]
        assert await seen(stand.bob, no_owners=True) == []
        assert await seen(stand.carol) == []
        stand.rights.add(("User:carol", Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, first.token_id))
        assert await seen(stand.carol) == ["alice"]
        stand.rights.clear()
        stand.rights.add(("User:carol", Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:bob"))
        assert await seen(stand.carol) == ["bob"]
        (token,) = (await stand.alice.describe()).tokens
        assert (token.hmac, [each.principal_name for each in token.renewers]) == (first.hmac, ["bob"])

    run(scene())


def test_a_login_by_token_ends_with_the_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def scene() -> None:
        stand = Stand()
        made = await stand.alice.create()
        password = password_of_hmac(made.hmac)
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            identity = stand.log_in(made.token_id, password, mechanism)
            assert (identity.principal, identity.is_delegated) == ("User:alice", True)
            assert identity.expires_ms == made.expiry_timestamp_ms
        await stand.alice.renew(made.hmac, HOUR_MS)
        assert stand.log_in(made.token_id, password).expires_ms == made.issue_timestamp_ms + HOUR_MS
        await stand.alice.expire(made.hmac)
        with pytest.raises(Exception, match="there is no delegation token"):
            stand.log_in(made.token_id, password)
        assert password not in caplog.text

    run(scene())


def test_an_expired_token_is_refused_before_it_is_removed() -> None:
    async def scene() -> None:
        import asyncio  # noqa: PLC0415

        stand = Stand(expiry_time_ms="1000")
        made = await stand.alice.create()
        await asyncio.sleep(2)
        assert made.token_id in stand.known
        with pytest.raises(Exception, match="or it has expired"):
            stand.log_in(made.token_id, password_of_hmac(made.hmac))
        assert await stand.alice.renew(made.hmac) == (Error.DELEGATION_TOKEN_EXPIRED, 0)

    run(scene())


def test_a_different_secret_on_one_broker_is_logged() -> None:
    async def scene() -> None:
        stand = Stand()
        made = await stand.alice.create()
        other = DelegationTokenManager("another", stand.broker.node.images, stand.clock)
        server = ScramServer("SCRAM-SHA-256", ImageCredentialProvider(stand.broker.node.images, other), b"s" * 32)
        client = ScramClient("SCRAM-SHA-256", made.token_id, password_of_hmac(made.hmac), is_token=True)
        with pytest.raises(Exception, match=r"do all brokers have the same delegation\.token\.secret\.key"):
            server.step(client.step(server.step(client.first())))

    run(scene())


def test_hmacs_follow_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        images = MetadataCache()
        tokens = DelegationTokenManager(SECRET, images, LoopClock())
        one = DelegationToken("one", "User:a", "User:a", (), 0, 2**62, 2**62)
        images.publish(MetadataImage(delegation_tokens={"one": one, "two": one._replace(token_id="two")}))
        hmac = token_hmac(SECRET, "one")
        assert await tokens.id_of(hmac) == "one"
        assert await tokens.id_of(b"forged") is None
        first = tokens.credential("SCRAM-SHA-256", "one")
        assert first == tokens.credential("SCRAM-SHA-256", "one")
        monkeypatch.setattr(broker_tokens, "CREDENTIALS_MAX", 1)
        assert tokens.credential("SCRAM-SHA-256", "two") != first
        images.publish(MetadataImage())
        assert (await tokens.id_of(hmac), tokens.credential("SCRAM-SHA-256", "one")) == (None, None)
        assert "one" not in repr(tokens)

    run(scene())


def test_expired_tokens_are_removed_in_the_configured_interval(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scene() -> None:
        import asyncio  # noqa: PLC0415

        stand = Stand(expiry_time_ms="1000", expiry_check_interval_ms="10000")
        missing: Any = None
        housekeeping = TaskScheduler(stand.broker.node, missing, missing, missing)
        look_ms = stand.broker.settings.delegation_token_expiry_check_interval_ms
        chore = remove_expired(stand.broker.controller, stand.clock)
        housekeeping.schedule("tokens", look_ms, lambda: look_ms, chore)
        made = await stand.alice.create()
        kept = await stand.alice.create()
        await asyncio.sleep(9.9)
        assert len(stand.known) == 2
        await stand.alice.create(max_lifetime_ms=DAY_MS)
        await asyncio.sleep(0.2)
        assert len(stand.known) == 1
        assert f"Delegation token expired for token: {made.token_id} for owner: User:alice" in caplog.text
        assert password_of_hmac(kept.hmac) not in caplog.text
        stand.broker.controller.failure = KafkaError(Error.NOT_CONTROLLER)
        await asyncio.sleep(10)
        assert "expired delegation tokens could not be removed" in caplog.text
        housekeeping.stop()

    run(scene())
