"""Quotas of users, clients and addresses, their notation in `kafka-configs.sh`, and SCRAM credentials of users."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple

from ottla.base.errors import Error, KafkaError
from ottla.client.client import Client
from ottla.client.errors import BrokerError, error_from_code, raise_for_error
from ottla.protocol.messages import configs as quota_wire
from ottla.protocol.messages import credentials as scram_wire
from ottla.quotas import entities
from ottla.quotas.entities import CLIENT_KEYS, CONNECTIONS
from ottla.security.scram_credentials import MECHANISMS, NUMBERS, SALT_BYTES, salted_password

EXACTLY, DEFAULT, ANY = 0, 1, 2  # match types of DescribeClientQuotas
ENTITIES_MAX: Final = 500  # in one request

Entity = Mapping[str, str | None]  # names by type ("user", "client-id", "ip"); None: the default


class Quota(NamedTuple):
    """The limits of one entity."""

    entity: dict[str, str | None]
    limits: dict[str, float]


class Alteration(NamedTuple):
    """Changes of one entity's limits."""

    entity: Entity
    changed: Mapping[str, float]
    deleted: Sequence[str] = ()


class ScramUpsertion(NamedTuple):
    """A user's new password."""

    mechanism: str
    iterations: int
    password: bytes

    def salted(self) -> SaltedPassword:
        """Takes milliseconds, because the hash is slow on purpose."""
        salt = secrets.token_bytes(SALT_BYTES)
        hashed = salted_password(self.mechanism, self.password, salt, self.iterations)
        return SaltedPassword(self.mechanism, self.iterations, salt, hashed)


class SaltedPassword(NamedTuple):
    """The salted and hashed password. It is a secret as well, because it is enough for a login."""

    mechanism: str
    iterations: int
    salt: bytes
    hashed: bytes

    def __repr__(self) -> str:
        return f"<SaltedPassword {self.mechanism}, {self.iterations} iterations>"


def describe_quotas(client: Client, wanted: Sequence[tuple[str, str | None]], *, is_strict: bool = True) -> list[Quota]:
    """The quotas of entities of exactly these types; a name of None means any, "" the default.

    Not strict: entities may have further types, so that without any filter all quotas are returned.
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
    raise_for_error(answer.error_code, answer.error_message)
    return [
        Quota(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]


def alter_quotas(client: Client, alterations: Sequence[Alteration]) -> None:
    """Sent in as few requests as possible; the first error ends it."""
    for start in range(0, len(alterations), ENTITIES_MAX):
        entries = [_alteration(each) for each in alterations[start : start + ENTITIES_MAX]]
        request = quota_wire.AlterClientQuotasRequest(entries=entries)
        answer = client.call_controller(request, quota_wire.AlterClientQuotasResponse)
        for entry in answer.entries:
            raise_for_error(entry.error_code, entry.error_message)


def _alteration(wanted: Alteration) -> quota_wire.QuotaAlteration:
    operations = [quota_wire.QuotaOperation(key=key, value=value) for key, value in wanted.changed.items()]
    operations += [quota_wire.QuotaOperation(key=key, value=0.0, remove=True) for key in wanted.deleted]
    names = [quota_wire.QuotaEntity(entity_type=kind, entity_name=name) for kind, name in wanted.entity.items()]
    return quota_wire.QuotaAlteration(entity=names, ops=operations)


def describe_scram(client: Client, users: Sequence[str]) -> dict[str, list[tuple[str, int]] | BrokerError]:
    """Mechanisms and iterations by user, of all users if none is given; users without a password are left out."""
    names = [scram_wire.ScramUserName(name=user) for user in users] or None
    request = scram_wire.DescribeUserScramCredentialsRequest(users=names)
    answer = client.call(request, scram_wire.DescribeUserScramCredentialsResponse)
    raise_for_error(answer.error_code, answer.error_message)
    found: dict[str, list[tuple[str, int]] | BrokerError] = {}
    for result in answer.results:
        if result.error_code == Error.RESOURCE_NOT_FOUND:
            continue
        if result.error_code:
            found[result.user] = error_from_code(result.error_code, result.error_message)
        else:
            infos = result.credential_infos
            found[result.user] = [(MECHANISMS.get(info.mechanism, "UNKNOWN"), info.iterations) for info in infos]
    return found


def alter_scram(
    client: Client, user: str, changed: Sequence[ScramUpsertion | SaltedPassword], deleted: Sequence[str]
) -> None:
    """Set and delete passwords of one user. The password itself does not leave this process."""
    request = scram_wire.AlterUserScramCredentialsRequest(
        deletions=[scram_wire.ScramCredentialDeletion(name=user, mechanism=NUMBERS[name]) for name in deleted],
        upsertions=[_upsertion(user, item) for item in changed],
    )
    answer = client.call_controller(request, scram_wire.AlterUserScramCredentialsResponse)
    for result in answer.results:
        raise_for_error(result.error_code, result.error_message)


def _upsertion(user: str, item: ScramUpsertion | SaltedPassword) -> scram_wire.ScramCredentialUpsertion:
    given = item.salted() if isinstance(item, ScramUpsertion) else item
    return scram_wire.ScramCredentialUpsertion(
        name=user,
        mechanism=NUMBERS[given.mechanism],
        iterations=given.iterations,
        salt=given.salt,
        salted_password=given.hashed,
    )


# ---- notation: `user`, `client`, `ip`, their `-defaults`, and the names of limits
#
#     parse_quota({"user": "alice", "client-defaults": True, "producer_byte_rate": 1_000_000})
#
# Files, command lines and tests share this form.
NAMES: Final = {"user": "user", "client": "client-id", "ip": "ip"}  # the term, and the type on the wire
DEFAULTS: Final = {f"{word}-defaults": kind for word, kind in NAMES.items()}
WORDS: Final = {kind: word for word, kind in NAMES.items()}
LIMITS: Final = CLIENT_KEYS
ADDRESS_LIMITS: Final = (CONNECTIONS,)


class QuotaError(ValueError):
    """An invalid quota; `word` is the wrong part, "" if something is missing."""

    def __init__(self, cause: str, word: str = "") -> None:
        super().__init__(cause)
        self.word = word


def parse_quota(words: Mapping[str, object]) -> Quota:
    """Entity and limits, at least one of each. Raises QuotaError."""
    entity = parse_entity({word: value for word, value in words.items() if word in NAMES or word in DEFAULTS})
    limits = {key: value for key, value in words.items() if key not in NAMES and key not in DEFAULTS}
    if not limits:
        raise QuotaError(f"no limit is given, such as {known_limits(entity)[0]}")
    return Quota(entity, {key: parse_limit(entity, key, value) for key, value in limits.items()})


def parse_entity(words: Mapping[str, object]) -> dict[str, str | None]:
    """A user, a client id, both, or an address; or a default. Raises QuotaError."""
    entity: dict[str, str | None] = {}
    for word, value in words.items():
        kind = NAMES.get(word) or DEFAULTS[word]
        if kind in entity:
            raise QuotaError(f"{WORDS[kind]} and {WORDS[kind]}-defaults exclude each other", word)
        if word in DEFAULTS:
            if value is not True:
                raise QuotaError(f"{word} is true, or is left out", word)
            entity[kind] = None
        elif not isinstance(value, str):
            raise QuotaError(f"{value!r} is not text: put the name in quotes", word)
        elif not value:
            raise QuotaError(f"the name is empty; the default of all is {word}-defaults", word)
        else:
            entity[kind] = value
    if not entity:
        raise QuotaError("the limit has no entity: user, client or ip, or one of their -defaults")
    if "ip" in entity and len(entity) > 1:
        raise QuotaError("an ip cannot be combined with user or client", "ip")
    return {kind: entity[kind] for kind in WORDS if kind in entity}


def parse_limit(entity: Entity, key: str, value: object) -> float:
    """Raises QuotaError for a limit that no cluster accepts."""
    known = known_limits(entity)
    if key not in known:
        near = get_close_matches(key, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise QuotaError(f"{key} is not a limit of {entity_text(entity)}: {hint}", key)
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (0 < number < math.inf):
        raise QuotaError(f"{key}={value} is not a number above 0", key)
    try:
        entities.check_value(entities.Entity(tuple(entity), tuple(entity.values())), key, number)
    except KafkaError as problem:
        raise QuotaError(str(problem), key) from None
    return number


def known_limits(entity: Entity) -> tuple[str, ...]:
    return ADDRESS_LIMITS if "ip" in entity else LIMITS


def entity_words(entity: Entity) -> dict[str, str | bool]:
    """The inverse of parse_entity()."""
    words: dict[str, str | bool] = {}
    for kind, word in WORDS.items():
        if kind in entity:
            name = entity[kind]
            words.update({f"{word}-defaults": True} if name is None else {word: name})
    return words


def entity_text(entity: Entity) -> str:
    """A readable form: user alice, client app."""
    parts = []
    for kind, word in WORDS.items():
        if kind in entity:
            name = entity[kind]
            parts.append(f"each {word}" if name is None else f"{word} {name}")
    return ", ".join(parts)


def number_text(value: float) -> str:
    """A number without trailing zeros; may be NaN, which Kafka stores if it is set."""
    return str(int(value)) if abs(value) < 2**63 and value == int(value) else repr(value)
