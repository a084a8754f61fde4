"""Quotas of users, clients and addresses, and the passwords of users for SASL/SCRAM."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.client.client import Client
from ottla.client.errors import RefusedError, refusal
from ottla.protocol.messages import client_quotas as quota_wire
from ottla.protocol.messages import scram_credentials as scram_wire
from ottla.security.scram import MECHANISMS, NUMBERS, SALT_BYTES, salted_password

EXACTLY, DEFAULT, ANY = 0, 1, 2  # how DescribeClientQuotas matches a name


class Quota(NamedTuple):
    """The limits of one entity: its names by type ("user", "client-id", "ip"; None: the default one)."""

    entity: dict[str, str | None]
    limits: dict[str, float]


class Upsertion(NamedTuple):
    """A password that a user shall have."""

    mechanism: str
    iterations: int
    password: bytes


def describe_quotas(client: Client, wanted: Sequence[tuple[str, str | None]]) -> list[Quota]:
    """The quotas of entities of exactly these types; a name of None means any, "" the default."""
    components = [
        quota_wire.QuotaFilterComponent(
            entity_type=kind,
            match_type=ANY if name is None else EXACTLY if name else DEFAULT,
            match=name or None,
        )
        for kind, name in wanted
    ]
    request = quota_wire.DescribeClientQuotasRequest(components=components, strict=True)
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


def alter_quotas(
    client: Client, entity: Mapping[str, str | None], changed: Mapping[str, float], deleted: Sequence[str]
) -> None:
    operations = [quota_wire.QuotaOperation(key=key, value=value) for key, value in changed.items()]
    operations += [quota_wire.QuotaOperation(key=key, value=0.0, remove=True) for key in deleted]
    names = [quota_wire.QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    request = quota_wire.AlterClientQuotasRequest(entries=[quota_wire.QuotaAlteration(entity=names, ops=operations)])
    answer = client.call_controller(request, quota_wire.AlterClientQuotasResponse)
    for entry in answer.entries:
        if entry.error_code:
            raise refusal(entry.error_code, entry.error_message)


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


def alter_scram(client: Client, user: str, changed: Sequence[Upsertion], deleted: Sequence[str]) -> None:
    """Give and take passwords of one user. The password itself does not leave this process."""
    request = scram_wire.AlterUserScramCredentialsRequest(
        deletions=[scram_wire.ScramCredentialDeletion(name=user, mechanism=NUMBERS[name]) for name in deleted],
        upsertions=[_upsertion(user, item) for item in changed],
    )
    answer = client.call_controller(request, scram_wire.AlterUserScramCredentialsResponse)
    for result in answer.results:
        if result.error_code:
            raise refusal(result.error_code, result.error_message)


def _upsertion(user: str, item: Upsertion) -> scram_wire.ScramCredentialUpsertion:
    salt = secrets.token_bytes(SALT_BYTES)
    return scram_wire.ScramCredentialUpsertion(
        name=user,
        mechanism=NUMBERS[item.mechanism],
        iterations=item.iterations,
        salt=salt,
        salted_password=salted_password(item.mechanism, item.password, salt, item.iterations),
    )
