"""Logins: the users, passwords that are changed, logins that expire, and intruders without one.

Clients of every kind log in when they connect (wire.py). Some renew a login that is about to expire on the same
connection (KIP-368), the others forget to, and lose the connection with their next request.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.simulation.brokers.wire import Client, GoneError, WireConnection

from ottla.base.errors import Error
from ottla.protocol.messages.credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.security.sasl.exchange import ClientExchange
from ottla.security.sasl.plain import PlainClient
from ottla.security.sasl.scram import ScramClient
from ottla.security.scram_credentials import ITERATIONS_MIN, SALT_BYTES, salted_password

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import Cluster

BROKER: Final = "broker"
ADMIN: Final = "admin"
ALICE: Final = "alice"
PLAIN: Final = "PLAIN"
SCRAM: Final = "SCRAM-SHA-256"
SCRAM_NUMBER: Final = 1
LIFETIME_SHARE: Final = 0.85
IN_FORCE_SECONDS_MAX: Final = 2.0
LOGIN_SECONDS_MAX: Final = 10.0  # that a broker waits for one
LINGER_SECONDS_MAX: Final = 7.0  # after all is mended
STEPS_MAX: Final = 5
MODULE: Final = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="broker-secret" user_broker="broker-secret" user_admin="admin-secret";'
)
JAAS: Final = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
WRONG: Final = {JAAS: MODULE.replace('password="broker-secret"', 'password="mistyped"', 1)}  # it lets others in
SETTINGS: Final = {
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": PLAIN,
    "sasl.enabled.mechanisms": f"{PLAIN},{SCRAM}",
    JAAS: MODULE,
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "connections.max.reauth.ms": "1700",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:broker;User:admin;User:alice",
}


class Account(NamedTuple):
    """A user who can log in."""

    mechanism: str
    name: str


ACCOUNTS: Final = (Account(PLAIN, ADMIN), Account(SCRAM, ALICE))


class Accounts:
    """What the clients of a cluster know about their passwords."""

    all = ACCOUNTS

    def __init__(self) -> None:
        self.passwords = {ADMIN: "admin-secret", ALICE: "alice-0"}
        self.old: list[str] = []  # passwords of alice that were good once
        self.is_changing = True
        self.changed_at = 0.0

    def exchange(self, account: Account) -> ClientExchange:
        password = self.passwords[account.name]
        if account.mechanism == PLAIN:
            return PlainClient(account.name, password)
        return ScramClient(account.mechanism, account.name, password)

    def is_sure(self, cluster: Cluster) -> bool:
        """Whether every broker must know by now what the clients know."""
        mended_at, now = cluster.mended_at, cluster.world.now
        is_calm = not cluster.is_in_trouble and mended_at is not None and now > mended_at + IN_FORCE_SECONDS_MAX
        return is_calm and not self.is_changing and now > self.changed_at + IN_FORCE_SECONDS_MAX


async def log_in(connection: WireConnection) -> None:
    """For the first time, or again."""
    client = connection.client
    accounts, account = client.cluster.accounts, client.account
    assert accounts is not None
    was_sure = accounts.is_sure(client.cluster)
    answer = await exchange_tokens(connection, account.mechanism, accounts.exchange(account))
    if isinstance(answer, str):
        if was_sure:
            client.world.break_(f"{client.name} has the right password, and is refused: {answer}")
        connection.abandon(answer)
        raise GoneError(answer)
    seconds = answer.session_lifetime_ms / 1000
    connection.renew_at = client.world.now + seconds * LIFETIME_SHARE if seconds else None
    connection.expires_at = client.world.now + seconds if seconds else None


async def exchange_tokens(
    connection: WireConnection, mechanism: str, exchange: ClientExchange
) -> SaslAuthenticateResponse | str:
    """The last answer, or why there is none."""
    chosen = await connection.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, 1)
    if chosen.error_code:
        return f"no login with {mechanism}: {Error(chosen.error_code).name}"
    token = exchange.first()
    for _ in range(STEPS_MAX):
        answer = await connection.ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, 2)
        if answer.error_code:
            return f"no login with {mechanism}: {answer.error_message}"
        token = exchange.step(bytes(answer.auth_bytes))
        if exchange.is_done:
            return answer
    return "the login comes to no end"


class PasswordSetter(Client):
    """Sets alice's password, again and again until a broker acknowledges it."""

    def __init__(self, cluster: Any, password: str) -> None:
        super().__init__(cluster, f"setter of {password}")
        self.account = ACCOUNTS[0]
        self._password = password

    async def run(self) -> None:
        accounts = self.cluster.accounts
        assert accounts is not None
        accounts.is_changing = True
        salt = self.world.random.randbytes(SALT_BYTES)
        salted = salted_password(SCRAM, self._password.encode(), salt, ITERATIONS_MIN)
        given = ScramCredentialUpsertion(
            name=ALICE, mechanism=SCRAM_NUMBER, iterations=ITERATIONS_MIN, salt=salt, salted_password=salted
        )
        request = AlterUserScramCredentialsRequest(upsertions=[given])
        while True:
            try:
                answer = await self.call(self.any_broker(), request, AlterUserScramCredentialsResponse, 0, 4.0)
                if answer.results[0].error_code == Error.NONE:
                    break
                self.world.tell(f"{self.name}: {Error(answer.results[0].error_code).name}")
            except GoneError as gone:
                self.world.tell(f"{self.name}: {gone}")
            await self.pause()
        self.world.tell(f"{self.name}: done")
        await asyncio.sleep(self.world.random.choice((0.0, 0.1, 1.0)))  # until the clients that use it know it
        if accounts.passwords[ALICE] != self._password:
            accounts.old.append(accounts.passwords[ALICE])
        accounts.passwords[ALICE] = self._password
        accounts.changed_at = self.world.now
        accounts.is_changing = False


class Intruder(Client):
    """Tries to learn something without a login; any answer with data breaks a promise."""

    def __init__(self, cluster: Any, name: str, broker: int | None = None, password: str | None = None) -> None:
        super().__init__(cluster, name)
        self._broker = broker or self.any_broker()
        self._password = password  # one that was right once

    async def run(self) -> None:
        connection = self.connections[self._broker] = WireConnection(self, self._broker)
        try:
            await connection.open(with_login=False)
            if self._password is None:
                tricks = (self._guess, self._send_garbage, self._linger, self._go_ahead)
                await self.world.random.choice(tricks)(connection)
            else:
                await self._log_in(connection, SCRAM, ScramClient(SCRAM, ALICE, self._password))
            answer = await connection.ask(MetadataRequest(topics=None), MetadataResponse, 12)
        except GoneError as gone:
            self.world.tell(f"{self.name}: {gone}")
            return
        self.world.break_(f"{self.name} is told {len(answer.topics)} topics by {self._broker} without a login")

    async def _log_in(self, connection: WireConnection, mechanism: str, exchange: ClientExchange) -> None:
        refusal = await exchange_tokens(connection, mechanism, exchange)
        if not isinstance(refusal, str):
            self.world.break_(f"{self.name} is let in by {self._broker} with a wrong password")

    async def _guess(self, connection: WireConnection) -> None:
        name = self.world.random.choice((ADMIN, ALICE, BROKER, "nobody"))
        if self.world.chance(0.5):
            await self._log_in(connection, PLAIN, PlainClient(name, "guess"))
        else:
            await self._log_in(connection, SCRAM, ScramClient(SCRAM, name, "guess"))

    async def _send_garbage(self, connection: WireConnection) -> None:
        if self.world.chance(0.7):
            await connection.ask(SaslHandshakeRequest(mechanism=SCRAM), SaslHandshakeResponse, 1)
        token = self.world.random.choice((b"", b"\0", b"n,,n=alice,r=", b"\0admin\0admin-secret\0", b"x" * 1000))
        await connection.ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, 2)

    async def _linger(self, connection: WireConnection) -> None:
        """Begins a login and does not go on with it."""
        await connection.ask(SaslHandshakeRequest(mechanism=PLAIN), SaslHandshakeResponse, 1)
        was_calm, until = not self.cluster.is_in_trouble, self.world.now + LOGIN_SECONDS_MAX + IN_FORCE_SECONDS_MAX
        mended_before = self.cluster.mended_at
        while not connection.is_closed and self.world.now < until:
            mended_at = self.cluster.mended_at
            if mended_at not in (None, mended_before) and self.world.now > (mended_at or 0) + LINGER_SECONDS_MAX:
                raise GoneError("all clients stop")
            await asyncio.sleep(0.25)
        if was_calm and not connection.is_closed:
            self.world.break_(f"{self.name}: {self._broker} waits for ever for a login")

    async def _go_ahead(self, connection: WireConnection) -> None:
        """As if no login were needed."""
