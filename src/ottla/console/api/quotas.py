"""Quotas of users, client ids and addresses: list, set, remove, and the quotas that apply to a client.

Rules:
1. Quotas apply to the whole cluster: reading requires the viewer role for all names, changing the operator role.
2. A change contains the values that the caller has seen; if they differ, nothing is changed (409).
"""

from __future__ import annotations

import msgspec

from ottla.client.client import Client
from ottla.client.quotas import (
    ADDRESS_LIMITS,
    LIMITS,
    Alteration,
    Quota,
    QuotaError,
    alter_quotas,
    describe_quotas,
    entity_text,
    known_limits,
    number_text,
    parse_entity,
    parse_limit,
)
from ottla.console.api.call import Call
from ottla.console.api.errors import Unavailable, bad_request, check_unchanged, conflict
from ottla.console.clusters.cluster import wait_until
from ottla.operations.quotas import quotas_for, sort_key
from ottla.quotas.entities import CONSUMER_MESSAGES, PRODUCER_MESSAGES

SHOWN_MAX = 10_000
LENGTH_MAX = 1_000
ENTITY_WORDS = {"user": "user", "client-id": "client", "ip": "ip"}  # on the wire, and in words
OTTLA_ONLY_LIMITS = [PRODUCER_MESSAGES, CONSUMER_MESSAGES]  # limits that Apache Kafka does not have
Entity = dict[str, str | None]


class QuotaRow(msgspec.Struct, frozen=True):
    """Limits of a user, a client id, both, or an address: entity type (user, client-id, ip) to name; null: default."""

    entity: Entity
    limits: dict[str, float]


class QuotaList(msgspec.Struct, frozen=True):
    """`keys` and `address_keys`: all limits; `own_keys`: those that only ottla's brokers support."""

    quotas: list[QuotaRow]
    is_all: bool
    keys: list[str]
    address_keys: list[str]
    own_keys: list[str]
    unavailable: Unavailable | None = None


class QuotaChange(msgspec.Struct, forbid_unknown_fields=True):
    """`expected`: the values that the caller has seen; null: no limit."""

    entity: Entity
    set: dict[str, float] = {}
    remove: list[str] = []
    expected: dict[str, float | None] = {}


class AppliedRow(msgspec.Struct, frozen=True):
    """A limit that matches a client. One limit per key applies; `user` and `client_id` share it ("": any)."""

    key: str
    limit: float
    entity: Entity
    counts: bool
    user: str
    client_id: str


class AppliedList(msgspec.Struct, frozen=True):
    applied: list[AppliedRow]


async def list_quotas(call: Call) -> QuotaList:
    found, unavailable = await call.query_if_available(all_quotas)
    rows = [QuotaRow(*quota) for quota in found[:SHOWN_MAX]]
    return QuotaList(rows, len(found) <= SHOWN_MAX, list(LIMITS), list(ADDRESS_LIMITS), OTTLA_ONLY_LIMITS, unavailable)


async def change_quota(call: Call) -> QuotaList:
    body: QuotaChange = call.body
    entity = _checked_entity(body.entity)
    touched = [*body.set, *body.remove]
    if not touched:
        raise bad_request("name a limit in `set` or in `remove`")
    limits = {key: _checked_limit(entity, key, value) for key, value in body.set.items()}

    def alter(client: Client) -> None:
        wanted = [(kind, name or "") for kind, name in entity.items()]
        before = _limits_of(client, wanted)
        after = {**{key: before.get(key) for key in touched}, **limits, **dict.fromkeys(body.remove)}
        call.audit(f"quota of {entity_text(entity)}", {key: before.get(key) for key in touched}, after)
        check_unchanged(before, body.expected, _number_or_dash)
        missing = [key for key in body.remove if key not in before]
        if missing:
            raise conflict("CHANGED_MEANWHILE", "{0} no longer has {1}", entity_text(entity), ", ".join(missing))
        alter_quotas(client, [Alteration(entity, limits, body.remove)])
        asked = {**limits, **dict.fromkeys(body.remove)}
        wait_until(lambda: asked.items() <= {**dict.fromkeys(asked), **_limits_of(client, wanted)}.items())

    await call.cluster.change(alter)
    return await list_quotas(call)


async def list_applied(call: Call) -> AppliedList:
    """For requests of `user` with `client`, and for connections from `ip`."""
    user, client_id, host = (call.query(name) for name in ("user", "client", "ip"))
    if not (user or client_id or host):
        raise bad_request("give `user`, `client` or `ip`")
    found = await call.cluster.query_cached(all_quotas)
    return AppliedList([AppliedRow(*each) for each in quotas_for(found, user, client_id, host)])


def all_quotas(client: Client) -> list[Quota]:
    return sorted(describe_quotas(client, (), is_strict=False), key=lambda quota: sort_key(quota.entity))


def _limits_of(client: Client, wanted: list[tuple[str, str]]) -> dict[str, float]:
    """The limits of exactly this entity."""
    found = describe_quotas(client, wanted)
    return found[0].limits if found else {}


def _checked_entity(named: Entity) -> Entity:
    unknown = [kind for kind in named if kind not in ENTITY_WORDS]
    if unknown:
        raise bad_request("a quota applies to {0}, not to {1}", ", ".join(ENTITY_WORDS), ", ".join(unknown))
    if any(len(name or "") > LENGTH_MAX for name in named.values()):
        raise bad_request("{0} has 1 to {1} characters", "entity", LENGTH_MAX)
    words = {
        f"{ENTITY_WORDS[kind]}-defaults" if name is None else ENTITY_WORDS[kind]: True if name is None else name
        for kind, name in named.items()
    }
    try:
        return parse_entity(words)
    except QuotaError as problem:
        raise bad_request("there is no such quota entity: {0}", problem) from None


def _checked_limit(entity: Entity, key: str, value: float) -> float:
    known = known_limits(entity)
    if key not in known:
        raise bad_request("there is no limit {0} for this entity, only {1}", key, ", ".join(known))
    if not value > 0:
        raise bad_request("{0} must be above 0", key)
    try:
        return parse_limit(entity, key, value)
    except QuotaError as problem:
        raise bad_request("{0} cannot be {1}: {2}", key, number_text(value), problem) from None


def _number_or_dash(value: float | None) -> str:
    return "-" if value is None else number_text(value)
