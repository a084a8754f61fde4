"""Quotas of users, client ids and addresses: list, set and remove them; and which of them count for somebody.

Rules:
1. They are about the whole cluster, so looking needs the role of viewer for all names, and a change that of operator.
2. Whoever changes a limit says what he has seen: if it is another by now, nothing is changed (409).
"""

from __future__ import annotations

import msgspec

from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.client.quota_words import (
    ADDRESS_LIMITS,
    LIMITS,
    QuotaError,
    entity_text,
    known_limits,
    number_text,
    parse_entity,
    parse_limit,
)
from ottla.client.quotas import Alteration, Quota, alter_quotas, describe_quotas
from ottla.console.api.call import Call
from ottla.console.api.errors import bad_request, conflict
from ottla.console.api.settling import wait_until
from ottla.console.api.unavailable import Unavailable, why_unavailable
from ottla.operations.quota_limits import applied_to, sort_key
from ottla.quotas.entities import CONSUMER_MESSAGES, PRODUCER_MESSAGES

SHOWN_MAX = 10_000
LENGTH_MAX = 1_000
KINDS = {"user": "user", "client-id": "client", "ip": "ip"}  # on the wire, and in words
OURS = [PRODUCER_MESSAGES, CONSUMER_MESSAGES]  # limits that Apache Kafka does not have
Entity = dict[str, str | None]


class QuotaRow(msgspec.Struct, frozen=True):
    """Limits of a user, a client id, both, or an address: names by kind (user, client-id, ip), null: the default."""

    entity: Entity
    limits: dict[str, float]


class QuotaList(msgspec.Struct, frozen=True):
    """`keys` and `address_keys` are the limits that there are; `own_keys` those that only ottla's brokers know."""

    quotas: list[QuotaRow]
    is_all: bool
    keys: list[str]
    address_keys: list[str]
    own_keys: list[str]
    unavailable: Unavailable | None = None


class QuotaChange(msgspec.Struct, forbid_unknown_fields=True):
    """`expected` is what the caller has seen, null for a limit that was not there."""

    entity: Entity
    set: dict[str, float] = {}
    remove: list[str] = []
    expected: dict[str, float | None] = {}


class AppliedRow(msgspec.Struct, frozen=True):
    """A limit on somebody's way. Of each key one counts; `user` and `client_id` share it ("": whoever it is)."""

    key: str
    limit: float
    entity: Entity
    counts: bool
    user: str
    client_id: str


class AppliedList(msgspec.Struct, frozen=True):
    applied: list[AppliedRow]


async def list_quotas(call: Call) -> QuotaList:
    try:
        found = await call.cluster.ask_seldom(all_quotas)
    except ClientError as problem:
        return _answer([], why_unavailable(problem))
    return _answer(found)


async def change_quota(call: Call) -> QuotaList:
    body: QuotaChange = call.body
    entity = _entity(body.entity)
    touched = [*body.set, *body.remove]
    if not touched:
        raise bad_request("name a limit in `set` or in `remove`")
    limits = {key: _limit(entity, key, value) for key, value in body.set.items()}

    def alter(client: Client) -> None:
        wanted = [(kind, name or "") for kind, name in entity.items()]
        before = _limits(client, wanted)
        after = {**{key: before.get(key) for key in touched}, **limits, **dict.fromkeys(body.remove)}
        call.note(f"quota of {entity_text(entity)}", {key: before.get(key) for key in touched}, after)
        for key, value in body.expected.items():
            if before.get(key) != value:
                words = "{0} is {1} by now: somebody else has changed it. Look again and then decide"
                raise conflict("CHANGED_MEANWHILE", words, key, _shown(before.get(key)))
        missing = [key for key in body.remove if key not in before]
        if missing:
            raise conflict("CHANGED_MEANWHILE", "{0} has no {1} any more", entity_text(entity), ", ".join(missing))
        alter_quotas(client, [Alteration(entity, limits, body.remove)])
        asked = {**limits, **dict.fromkeys(body.remove)}
        wait_until(lambda: asked.items() <= {**dict.fromkeys(asked), **_limits(client, wanted)}.items())

    await call.cluster.change(alter)
    return await list_quotas(call)


async def list_applied(call: Call) -> AppliedList:
    """For requests of `user` with `client`, and for connections from `ip`."""
    user, client_id, host = (call.query(name) for name in ("user", "client", "ip"))
    if not (user or client_id or host):
        raise bad_request("whom is it about? `user`, `client` or `ip`")
    found = await call.cluster.ask_seldom(all_quotas)
    return AppliedList([AppliedRow(*each) for each in applied_to(found, user, client_id, host)])


def all_quotas(client: Client) -> list[Quota]:
    return sorted(describe_quotas(client, (), is_strict=False), key=lambda quota: sort_key(quota.entity))


def _limits(client: Client, wanted: list[tuple[str, str]]) -> dict[str, float]:
    """Of exactly this entity."""
    found = describe_quotas(client, wanted)
    return found[0].limits if found else {}


def _answer(found: list[Quota], unavailable: Unavailable | None = None) -> QuotaList:
    rows = [QuotaRow(*quota) for quota in found[:SHOWN_MAX]]
    return QuotaList(rows, len(found) <= SHOWN_MAX, list(LIMITS), list(ADDRESS_LIMITS), OURS, unavailable)


def _entity(named: Entity) -> Entity:
    unknown = [kind for kind in named if kind not in KINDS]
    if unknown:
        raise bad_request("a quota is of {0}, not of {1}", ", ".join(KINDS), ", ".join(unknown))
    if any(len(name or "") > LENGTH_MAX for name in named.values()):
        raise bad_request("{0} has 1 to {1} characters", "entity", LENGTH_MAX)
    words = {
        f"{KINDS[kind]}-defaults" if name is None else KINDS[kind]: True if name is None else name
        for kind, name in named.items()
    }
    try:
        return parse_entity(words)
    except QuotaError as problem:
        raise bad_request("nobody has such a quota: {0}", problem) from None


def _limit(entity: Entity, key: str, value: float) -> float:
    known = known_limits(entity)
    if key not in known:
        raise bad_request("there is no limit {0} here, only {1}", key, ", ".join(known))
    if not value > 0:
        raise bad_request("{0} is a number above 0", key)
    try:
        return parse_limit(entity, key, value)
    except QuotaError as problem:
        raise bad_request("{0} cannot be {1}: {2}", key, number_text(value), problem) from None


def _shown(value: float | None) -> str:
    return "-" if value is None else number_text(value)
