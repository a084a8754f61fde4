"""Users, clients and IP addresses in `kafka-configs.sh`: quotas and SCRAM credentials."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ottla.cli.configs.config_entities import CLIENTS, IPS, USERS, Entities
from ottla.cli.java.errors import java_class, java_sentence
from ottla.cli.java.hash_order import hash_map_order, quota_order
from ottla.cli.java.options import OptionError
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.client.quotas import (
    ADDRESS_LIMITS,
    LIMITS,
    Alteration,
    Entity,
    Quota,
    ScramUpsertion,
    alter_quotas,
    alter_scram,
    describe_quotas,
    describe_scram,
    number_text,
)
from ottla.operations.records.deserializers import java_float, parse_double
from ottla.security.scram_credentials import ITERATIONS_MAX, ITERATIONS_MIN
from ottla.security.scram_credentials import NUMBERS as MECHANISMS

ENTITY_TYPES = {USERS: "user", CLIENTS: "client-id", IPS: "ip"}
TITLES = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}  # in the order in which they are printed
_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)", re.DOTALL)


def describe_quotas_and_credentials(client: Client, entities: Entities, is_old: bool = False) -> Iterator[str]:
    for quota in quota_order(describe_quotas(client, _quota_filter(entities))):
        yield legacy_quota_line(quota) if is_old else quota_line(quota)
    if entities.type == IPS or CLIENTS in entities.types or "" in entities.names:
        return
    for user, found in describe_scram(client, entities.names).items():
        if isinstance(found, BrokerError):
            name = java_class(found.error).rpartition(".")[2]
            yield (
                f"Error retrieving SCRAM credential configs for user-principal '{user}': {name}: {java_sentence(found)}"
            )
        else:
            texts = ", ".join(f"{mechanism}=iterations={iterations}" for mechanism, iterations in found)
            yield f"SCRAM credential configs for user-principal '{user}' are {texts}"


def alter_quotas_and_credentials(
    client: Client, entities: Entities, added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    _check_keys(entities, added, deleted)
    if entities.type == IPS or any(key in LIMITS for key in (*added, *deleted)):
        _alter_quotas(client, entities, added, deleted)
    else:
        changed = [parse_credential(mechanism, text) for mechanism, text in added.items()]
        alter_scram(client, entities.names[0], changed, deleted)


def quota_line(quota: Quota) -> str:
    parts = []
    for kind, title in TITLES.items():
        if kind in quota.entity:
            name = quota.entity[kind]
            parts.append(f"{title} '{name}'" if name else f"the default {title}")
    keys = hash_map_order(list(quota.limits), len(quota.limits))
    limits = ", ".join(f"{key}={java_float(quota.limits[key])}" for key in keys)
    return f"Quota configs for {', '.join(parts)} are {limits}"


def legacy_quota_line(quota: Quota) -> str:
    """The line that Kafka printed for --zookeeper."""
    limits = ",".join(f"{key}={number_text(value)}" for key, value in quota.limits.items())
    return f"Configs for {legacy_entity_text(quota.entity)} are {limits}"


def legacy_entity_text(entity: Entity) -> str:
    named = ((title, entity[kind]) for kind, title in TITLES.items() if kind in entity)
    return ", ".join(f"{title} '{name}'" if name else f"default {title}" for title, name in named)


def quota_entity(entities: Entities) -> dict[str, str | None]:
    return {ENTITY_TYPES[kind]: name or None for kind, name in zip(entities.types, entities.names, strict=True)}


def parse_credential(mechanism: str, text: str) -> ScramUpsertion:
    """Parse `iterations=8192,password=secret`; the iterations are optional."""
    match = _CREDENTIAL.fullmatch(text)
    if match is None:
        raise OptionError(f"Invalid credential property {mechanism}")
    iterations = int(match[1]) if match[1] not in (None, "", "-1", "-") else ITERATIONS_MIN
    if iterations < ITERATIONS_MIN:
        raise OptionError(f"Iterations {iterations} is less than the minimum {ITERATIONS_MIN} required for {mechanism}")
    if iterations > ITERATIONS_MAX:
        raise OptionError(f"Iterations {iterations} is more than the maximum {ITERATIONS_MAX} for {mechanism}")
    return ScramUpsertion(mechanism, iterations, match[2].encode())


def _quota_filter(entities: Entities) -> list[tuple[str, str | None]]:
    if len(entities.names) > len(entities.types):
        raise OptionError("More entity names specified than entity types")
    names: list[str | None] = [*entities.names, *[None] * (len(entities.types) - len(entities.names))]
    return [(ENTITY_TYPES[kind], name) for kind, name in zip(entities.types, names, strict=True)]


def _alter_quotas(client: Client, entities: Entities, added: Mapping[str, str], deleted: Sequence[str]) -> None:
    found = quota_order(describe_quotas(client, _quota_filter(entities)))
    known = found[0].limits if found else {}
    missing = [key for key in deleted if key not in known]
    if missing:
        raise OptionError(f"Invalid config(s): {','.join(missing)}")
    limits = {key: _limit(key, added[key]) for key in hash_map_order(added)}  # a broker may keep this order
    alter_quotas(client, [Alteration(quota_entity(entities), limits, deleted)])


def _limit(key: str, text: str) -> float:
    try:
        return parse_double(text)
    except ValueError:
        raise OptionError(f"Cannot parse quota configuration value for {key}: {text}") from None


def _check_keys(entities: Entities, added: Mapping[str, str], deleted: Sequence[str]) -> None:
    """Reject keys that are neither quotas nor, for a user alone, SCRAM credentials, and a mixture of both."""
    if entities.type == IPS:
        unknown = [key for key in (*added, *deleted) if key not in ADDRESS_LIMITS]
        if unknown:
            raise OptionError(
                "Only connection quota configs can be added for 'ips' using --bootstrap-server. "
                f"Unexpected config names: {','.join(unknown)}"
            )
        return
    with_passwords = CLIENTS not in entities.types
    known = (*LIMITS, *MECHANISMS) if with_passwords else LIMITS
    what = "quota and SCRAM credential configs" if with_passwords else "quota configs"
    for keys, verb, collection in ((added, "added", "Set"), (deleted, "deleted", "ArrayBuffer")):
        unknown = [key for key in keys if key not in known]
        if unknown:
            raise OptionError(
                f"Only {what} can be {verb} for '{USERS if with_passwords else CLIENTS}' using --bootstrap-server. "
                f"Unexpected config names: {collection}({', '.join(unknown)})"
            )
    if any(key in MECHANISMS for key in (*added, *deleted)):
        _check_passwords(entities, [*added, *deleted])


def _check_passwords(entities: Entities, keys: Sequence[str]) -> None:
    if "" in entities.names:
        raise OptionError(
            "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials "
            "using --bootstrap-server."
        )
    if any(key in LIMITS for key in keys):
        raise OptionError(
            f"Cannot alter both quota and SCRAM credential configs simultaneously for '{USERS}' "
            "using --bootstrap-server."
        )
