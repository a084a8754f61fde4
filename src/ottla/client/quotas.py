"""Quotas of users, clients and addresses, and the passwords of users for SASL/SCRAM."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ottla.base.errors import Error
from ottla.client.client import Client
from ottla.client.errors import RefusedError, refusal
from ottla.protocol.messages import client_quotas as quota_wire
from ottla.protocol.messages import scram_credentials as scram_wire
from ottla.security.scram import MECHANISMS, NUMBERS, SALT_BYTES, salted_password

EXACTLY, DEFAULT, ANY = 0, 1, 2  # how DescribeClientQuotas matches a name
ENTITIES_MAX: Final = 500  # in one request

Entity = Mapping[str, str | None]  # names by type ("user", "client-id", "ip"); None: the default one


class Quota(NamedTuple):
    """The limits of one entity."""

    entity: dict[str, str | None]
    limits: dict[str, float]


class Alteration(NamedTuple):
    """What shall change about one entity."""

    entity: Entity
    changed: Mapping[str, float]
    deleted: Sequence[str] = ()


class Upsertion(NamedTuple):
    """A password that a user shall have."""

    mechanism: str
    iterations: int
    password: bytes

    def salted(self) -> SaltedPassword:
        """Takes milliseconds, on purpose."""
        salt = secrets.token_bytes(SALT_BYTES)
        hashed = salted_password(self.mechanism, self.password, salt, self.iterations)
        return SaltedPassword(self.mechanism, self.iterations, salt, hashed)


class SaltedPassword(NamedTuple):
    """The same, hashed already. Whoever has it can log in with it: it is a secret, too."""

    mechanism: str
    iterations: int
    salt: bytes
    hashed: bytes

    def __repr__(self) -> str:
        return f"<SaltedPassword {self.mechanism}, {self.iterations} iterations>"


def describe_quotas(client: Client, wanted: Sequence[tuple[str, str | None]], *, is_strict: bool = True) -> list[Quota]:
    """The quotas of entities of exactly these types; a name of None means any, "" the default.

    Not strict: entities may have further types, so that without any wanted ones all quotas are told.
    """
    components = [
        quota_wire.QuotaFilterComponent(
            entity_type=kind,
            match_type=ANY if name is None else EXACTLY if name else DEFAULT,
            match=name or None,
        )
        for kind, name in wanted
    ]
    request = quota_wire.DescribeClientQuotasRequest(components=components, strict=is_strict)
    answer = client.call(request, quota_wire.DescribeClientQuotasResponse)
    if answer.error_code:
        raise refusal(answer.error_code, answer.error_message)
    return [
        Quota(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]


def alter_quotas(client: Client, alterations: Sequence[Alteration]) -> None:
    """In as few requests as can be; the first that is refused ends it."""
    for start in range(0, len(alterations), ENTITIES_MAX):
        entries = [_alteration(each) for each in alterations[start : start + ENTITIES_MAX]]
        request = quota_wire.AlterClientQuotasRequest(entries=entries)
        answer = client.call_controller(request, quota_wire.AlterClientQuotasResponse)
        for entry in answer.entries:
            if entry.error_code:
                raise refusal(entry.error_code, entry.error_message)


def _alteration(wanted: Alteration) -> quota_wire.QuotaAlteration:
    operations = [quota_wire.QuotaOperation(key=key, value=value) for key, value in wanted.changed.items()]
    operations += [quota_wire.QuotaOperation(key=key, value=0.0, remove=True) for key in wanted.deleted]
    names = [quota_wire.QuotaEntity(entity_type=kind, entity_name=name) for kind, name in wanted.entity.items()]
    return quota_wire.QuotaAlteration(entity=names, ops=operations)


def describe_scram(client: Client, users: Sequence[str]) -> dict[str, list[tuple[str, int]] | RefusedError]:
    """Mechanisms and iterations by user, of all users if none is named; those without a password are left out."""
    names = [scram_wire.ScramUserName(name=user) for user in users] or None
    request = scram_wire.DescribeUserScramCredentialsRequest(users=names)
    answer = client.call(request, scram_wire.DescribeUserScramCredentialsResponse)
    if answer.error_code:
        raise refusal(answer.error_code, answer.error_message)
    found: dict[str, list[tuple[str, int]] | RefusedError] = {}
    for result in answer.results:
        if result.error_code == Error.RESOURCE_NOT_FOUND:
            continue
        if result.error_code:
            found[result.user] = refusal(result.error_code, result.error_message)
        else:
            infos = result.credential_infos
            found[result.user] = [(MECHANISMS.get(info.mechanism, "UNKNOWN"), info.iterations) for info in infos]
    return found


def alter_scram(
    client: Client, user: str, changed: Sequence[Upsertion | SaltedPassword], deleted: Sequence[str]
) -> None:
    """Give and take passwords of one user. The password itself does not leave this process."""
    request = scram_wire.AlterUserScramCredentialsRequest(
        deletions=[scram_wire.ScramCredentialDeletion(name=user, mechanism=NUMBERS[name]) for name in deleted],
        upsertions=[_upsertion(user, item) for item in changed],
    )
    answer = client.call_controller(request, scram_wire.AlterUserScramCredentialsResponse)
    for result in answer.results:
        if result.error_code:
            raise refusal(result.error_code, result.error_message)


def _upsertion(user: str, item: Upsertion | SaltedPassword) -> scram_wire.ScramCredentialUpsertion:
    given = item.salted() if isinstance(item, Upsertion) else item
    return scram_wire.ScramCredentialUpsertion(
        name=user,
        mechanism=NUMBERS[given.mechanism],
        iterations=given.iterations,
        salt=given.salt,
        salted_password=given.hashed,
    )
