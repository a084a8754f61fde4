"""Delegation tokens over the wire: the answer for each user. delegation_tokens.json holds those of Apache Kafka 4.3.1.

`python -m tests.conformance.token_requests OPEN_ADDRESS LOGIN_ADDRESS delegation_tokens.json`, rewrites it.
The broker needs the users of USERS in PLAIN, `delegation.token.secret.key`, an authorizer with
`super.users=User:admin;User:ANONYMOUS`, SCRAM on the listener for logins, and one that asks for no login.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.base.errors import Error
from ottla.base.security import Operation, PatternType, Permission, ResourceType
from ottla.client.acls import create_acls, delete_acls
from ottla.client.client import Client, open_client
from ottla.client.errors import ClientError
from ottla.client.tokens import describe_tokens
from ottla.protocol.messages import credentials as wire
from ottla.security.acls import AccessControlEntry, AclBinding, AclFilter, ResourcePattern
from ottla.security.delegation_tokens import password_of_hmac

USERS = ("admin", "alice", "bob", "carol")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
DAY_MS = 86_400_000
WAIT_SECONDS = 20.0
UNITS = (("d", DAY_MS), ("h", 3_600_000), ("s", 1000))
# Where we differ on purpose: a token for Group:x would log in as User:x (docs/decisions/security.md).
DIFFERENT = {"create for a group": "INVALID_PRINCIPAL_TYPE Group:x by User:admin"}


def password_of(user: str) -> str:
    return f"{user}-secret"


def login_of(mechanism: str, module: str, name: str, password: str, more: str = "") -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} username="{name}" password="{password}"{more};',
    }


def token_login(token_id: str, hmac: bytes, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    return login_of(mechanism, SCRAM, token_id, password_of_hmac(hmac), ' tokenauth="true"')


class Scene:
    """One broker, its users, and the answers they got."""

    def __init__(self, open_address: str, login_address: str) -> None:
        self.address = login_address
        self.anonymous = open_client(open_address, {})
        self.people = {name: self.log_in(login_of("PLAIN", PLAIN, name, password_of(name))) for name in USERS}
        self.told: dict[str, str] = {}
        self.made = 0

    def log_in(self, properties: dict[str, str]) -> Client:
        return open_client(self.address, properties, timeout_ms=10_000)

    def close(self) -> None:
        for client in (self.anonymous, *self.people.values()):
            client.close()

    # ---- the four requests; a person is a name, or a client

    def create(self, title: str, person: Any, *renewers: str, owner: str | None = None, life_ms: int = -1) -> Any:
        kind, _, name = (owner or "").partition(":")
        principals = [each.partition(":") for each in renewers]
        request = wire.CreateDelegationTokenRequest(
            owner_principal_type=kind,
            owner_principal_name=name,
            renewers=[wire.TokenPrincipal(principal_type=first, principal_name=last) for first, _, last in principals],
            max_lifetime_ms=life_ms,
        )
        answer = self.client(person).call(request, wire.CreateDelegationTokenResponse)
        requester = f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}"
        who = f"{answer.principal_type}:{answer.principal_name} by {requester}"
        times = [answer.issue_timestamp_ms, answer.expiry_timestamp_ms, answer.max_timestamp_ms]
        told = [Error(answer.error_code).name, who]
        if not answer.error_code:
            told += [*map(relative, times[1:]), f"{len(answer.token_id)} characters, {len(answer.hmac)} bytes"]
            self.made += 1
            eventually(lambda: answer.token_id in self.known())
        else:
            assert (times, answer.token_id, bytes(answer.hmac)) == ([-1, -1, -1], "", b"")
        self.told[title] = " ".join(told)
        return answer

    def renew(self, title: str, person: Any, hmac: bytes, period_ms: int = -1) -> None:
        request = wire.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        self.tell(title, self.client(person).call(request, wire.RenewDelegationTokenResponse))

    def expire(self, title: str, person: Any, hmac: bytes, period_ms: int = -1) -> None:
        request = wire.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        self.tell(title, self.client(person).call(request, wire.ExpireDelegationTokenResponse))

    def describe(self, title: str, person: Any, *owners: str, is_ownerless: bool = False) -> None:
        named = [wire.TokenPrincipal(principal_type="User", principal_name=owner) for owner in owners]
        request = wire.DescribeDelegationTokenRequest(owners=named if owners or is_ownerless else None)
        answer = self.client(person).call(request, wire.DescribeDelegationTokenResponse)
        rows = sorted(
            f"{each.principal_name} by {each.token_requester_principal_name} "
            f"for {','.join(renewer.principal_name for renewer in each.renewers) or '-'}"
            for each in answer.tokens
        )
        self.told[title] = f"{Error(answer.error_code).name} {'; '.join(rows)}".strip()

    def client(self, person: Any) -> Client:
        return self.people[person] if isinstance(person, str) else person

    def tell(self, title: str, answer: Any) -> None:
        self.told[title] = f"{Error(answer.error_code).name} {relative(answer.expiry_timestamp_ms)}"

    # ---- around them

    def known(self) -> set[str]:
        return {each.token.token_id for each in describe_tokens(self.people["admin"])}

    def allow(self, person: str, operation: Operation, kind: ResourceType, name: str, seen: Callable[[], bool]) -> None:
        entry = AccessControlEntry(f"User:{person}", "*", operation, Permission.ALLOW)
        create_acls(self.people["admin"], [AclBinding(ResourcePattern(kind, name, PatternType.LITERAL), entry)])
        eventually(seen)

    def count(self, person: str, owner: str | None = None) -> int:
        return len(describe_tokens(self.people[person], [owner] if owner is not None else None))


def relative(time_ms: int) -> str:
    """From now on, in the largest unit that fits: so that a run is as another one."""
    if time_ms <= 0:
        return str(time_ms)
    left_ms = time_ms - time.time() * 1000
    for unit, size_ms in UNITS:
        count = round(left_ms / size_ms)
        if count and abs(left_ms - count * size_ms) < 5000 and (unit != "s" or count > 5):
            return f"in {count} {unit}"
    return "now"


def eventually(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def play(scene: Scene) -> dict[str, str]:
    """All requests, in order, with the answer to each."""
    strangers(scene)
    token = making(scene)
    hmac = bytes(token.hmac)
    for name in ("alice", "bob", "carol", "admin"):
        scene.renew(f"renew by {name}", name, hmac)
    for title, period_ms in {"an hour": 3_600_000, "0": 0, "-5": -5, "a week": 7 * DAY_MS, "ages": 2**62}.items():
        scene.renew(f"renew for {title}", "alice", hmac, period_ms)
    for title, wrong in {"unknown": b"nonsense", "empty": b""}.items():
        scene.renew(f"renew {title}", "alice", wrong)
        scene.expire(f"expire {title}", "alice", wrong)
    seeing(scene)
    from_token(scene, token)
    ending(scene, hmac)
    return scene.told


def strangers(scene: Scene) -> None:
    scene.create("create without a login", scene.anonymous)
    scene.renew("renew without a login", scene.anonymous, b"x")
    scene.expire("expire without a login", scene.anonymous, b"x")
    scene.describe("describe without a login", scene.anonymous)


def making(scene: Scene) -> Any:
    token = scene.create("create", "alice", "User:bob")
    scene.create("create for a minute", "alice", life_ms=60_000)
    scene.create("create for 0", "alice", life_ms=0)
    scene.create("create for ages", "alice", life_ms=2**62)
    scene.create("create with a group for a renewer", "alice", "Group:x")
    scene.create("create with a nameless renewer", "alice", "User:")
    scene.create("create for another owner", "alice", owner="User:bob")
    scene.create("create for myself by name", "alice", owner="User:alice")
    scene.create("create for another owner by a super user", "admin", owner="User:bob")
    scene.create("create for a group", "admin", owner="Group:x")
    return token


def seeing(scene: Scene) -> None:
    scene.describe("describe all of alice", "alice")
    scene.describe("describe no owner's", "alice", is_ownerless=True)
    scene.describe("describe alice's to bob", "bob", "alice")
    scene.describe("describe all to bob", "bob")
    scene.describe("describe all to carol", "carol")
    user, token = ResourceType.USER, ResourceType.DELEGATION_TOKEN
    scene.allow("carol", Operation.DESCRIBE_TOKENS, user, "User:alice", lambda: scene.count("carol") > 0)
    scene.describe("describe all to carol, who may see alice's", "carol")

    def may_make() -> bool:
        return scene.create("create for bob by carol, who may", "carol", owner="User:bob").error_code == 0

    scene.allow("carol", Operation.CREATE_TOKENS, user, "User:bob", may_make)
    (made,) = [each for each in describe_tokens(scene.people["carol"]) if each.token.token_requester == "User:carol"]
    scene.renew("renew by the requester", "carol", made.hmac)
    scene.expire("expire by the requester", "carol", made.hmac)
    scene.describe("describe bob's to the requester", "carol", "bob")
    scene.describe("describe the requester's to admin", "admin", "carol")
    before = scene.count("alice")
    scene.allow("alice", Operation.DESCRIBE, token, made.token.token_id, lambda: scene.count("alice") > before)
    scene.describe("describe bob's to alice, who may see one token", "alice", "bob")


def from_token(scene: Scene, token: Any) -> None:
    hmac = bytes(token.hmac)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        with scene.log_in(token_login(token.token_id, hmac, mechanism)) as client:
            assert client.cluster().brokers
            scene.describe(f"describe from a token by {mechanism}", client)
            scene.create("create from a token", client)
            scene.renew("renew from a token", client, hmac)
            scene.expire("expire from a token", client, hmac)
    without_mark = login_of("SCRAM-SHA-512", SCRAM, token.token_id, password_of_hmac(hmac))
    for title, login in {
        "forged": token_login(token.token_id, b"forged"),
        "unknown": token_login("nonsense", hmac),
        "as a user": without_mark,
    }.items():
        scene.told[f"login {title}"] = refused(scene, login)


def ending(scene: Scene, hmac: bytes) -> None:
    scene.expire("expire in an hour", "bob", hmac, 3_600_000)
    scene.expire("expire by a stranger", "carol", hmac)
    brief = scene.create("create for a moment", "alice", life_ms=1)
    time.sleep(0.01)  # so long it is good: nothing tells when it is not any more
    for name in ("alice", "carol"):
        scene.renew(f"renew what has expired by {name}", name, bytes(brief.hmac))
        scene.expire(f"expire what has expired by {name}", name, bytes(brief.hmac), 5)
    scene.expire("expire at once what has expired", "alice", bytes(brief.hmac))
    eventually(lambda: brief.token_id not in scene.known())
    scene.expire("expire at once", "alice", hmac)
    eventually(lambda: hmac not in [each.hmac for each in describe_tokens(scene.people["admin"])])
    scene.expire("expire again", "alice", hmac)


def refused(scene: Scene, login: dict[str, str]) -> str:
    with scene.log_in(login) as client:
        try:
            client.cluster()
        except ClientError as problem:
            code = problem.error.name if problem.error is not None else "no code"
            return f"{code}: {str(problem).partition('failed: ')[2]}"
    return "let in"


def clean(scene: Scene) -> None:
    """Rules that were made are no business of the next run."""
    delete_acls(scene.people["admin"], [AclFilter()])


if __name__ == "__main__":
    played = Scene(sys.argv[1], sys.argv[2])
    Path(sys.argv[3]).write_text(json.dumps(play(played), indent=1) + "\n")
    clean(played)
