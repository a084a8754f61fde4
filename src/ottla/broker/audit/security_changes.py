"""The same for access rules, users, quotas and delegation tokens. Never a secret: no password, salt, key or token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, PatternType, Permission, ResourceType, word_of
from ottla.broker.audit.changes import CLUSTER, Asked
from ottla.broker.audit.event import Change
from ottla.controller.decisions.quota_changes import Parts, current_config
from ottla.quotas.entities import KEYS, read_entity
from ottla.security.scram import MECHANISMS

USER: Final = "user"
TOKEN: Final = "token"  # noqa: S105 - what a line is about
DEFAULT_ENTITY: Final = "<default>"
ITERATIONS: Final = "iterations="


def acls_created(asked: Asked) -> Iterator[Change]:
    for creation, row in zip(asked.request.creations, asked.response.results, strict=True):
        rule = described_rule(creation, creation.resource_pattern_type)
        yield rule_change(creation, None, rule, row.error_code, row.error_message)


def acls_deleted(asked: Asked) -> Iterator[Change]:
    for result in asked.response.filter_results:
        if result.error_code != Error.NONE:
            yield Change(CLUSTER, None, None, None, result.error_code, result.error_message)
        for rule in result.matching_acls:
            yield rule_change(rule, described_rule(rule, rule.pattern_type), None, rule.error_code, rule.error_message)


def rule_change(
    rule: Any, before: Mapping[str, str] | None, after: Mapping[str, str] | None, error: int, message: str | None
) -> Change:
    return Change(word(ResourceType, rule.resource_type).lower(), rule.resource_name, before, after, error, message)


def described_rule(rule: Any, pattern_type: int) -> dict[str, str]:
    return {
        "pattern_type": word(PatternType, pattern_type),
        "principal": rule.principal,
        "host": rule.host,
        "operation": word(Operation, rule.operation),
        "permission": word(Permission, rule.permission_type),
    }


def word(kind: type[IntEnum], number: int) -> str:
    try:
        return word_of(kind(number))
    except ValueError:
        return str(number)


# ---- users


def users_altered(asked: Asked) -> Iterator[Change]:
    """One change for each user: how he could log in before and can now, with how many iterations."""
    taken: dict[str, set[str]] = {}
    given: dict[str, dict[str, int | None]] = {}
    for each in asked.request.deletions:
        taken.setdefault(each.name, set()).add(MECHANISMS.get(each.mechanism, str(each.mechanism)))
    for each in asked.request.upsertions:
        given.setdefault(each.name, {})[MECHANISMS.get(each.mechanism, str(each.mechanism))] = each.iterations
    for row in asked.response.results:
        before = mechanisms_of(asked.before.user_configs.get(row.user, {}))
        kept = {name: count for name, count in before.items() if name not in taken.get(row.user, ())}
        after = {**kept, **given.get(row.user, {})}
        yield Change(USER, row.user, {"iterations": before}, {"iterations": after}, row.error_code, row.error_message)


def mechanisms_of(config: Mapping[str, str]) -> dict[str, int | None]:
    """The mechanisms that a user has a password for, with their iterations; the rest of a credential stays out."""
    found: dict[str, int | None] = {}
    for mechanism in MECHANISMS.values():
        if mechanism in config:
            _, _, number = config[mechanism].rpartition(ITERATIONS)
            found[mechanism] = int(number) if number.isdecimal() else None
    return found


# ---- quotas


def quotas_altered(asked: Asked) -> Iterator[Change]:
    """The quotas that a request names; null is one that there was not, or that it takes away."""
    if asked.request.validate_only:
        return
    answers = {frozenset(entity_parts(row.entity)): row for row in asked.response.entries}
    for alteration in asked.request.entries:
        parts = entity_parts(alteration.entity)
        row = answers.get(frozenset(parts))  # of an entity that is named twice there is one
        if row is not None:
            name = ",".join(f"{kind}={name or DEFAULT_ENTITY}" for kind, name in parts)
            after = {operation.key: None if operation.remove else operation.value for operation in alteration.ops}
            yield Change("quota", name, quotas_before(asked, parts, after), after, row.error_code, row.error_message)


def quotas_before(asked: Asked, parts: Parts, keys: Iterable[str]) -> dict[str, float | None] | None:
    try:
        config = current_config(asked.before, read_entity(parts))
    except KafkaError:  # nobody has quotas under such a name
        return None
    return {key: float(config[key]) if key in KEYS and key in config else None for key in keys}


def entity_parts(entity: Iterable[Any]) -> Parts:
    return tuple((each.entity_type, each.entity_name) for each in entity)


# ---- delegation tokens


def token_created(asked: Asked) -> Iterator[Change]:
    request, response = asked.request, asked.response
    after = {
        "owner": f"{response.principal_type}:{response.principal_name}",
        "renewers": [f"{each.principal_type}:{each.principal_name}" for each in request.renewers],
        "expires_ms": response.expiry_timestamp_ms,
        "max_ms": response.max_timestamp_ms,
    }
    yield Change(TOKEN, response.token_id or None, None, after, response.error_code)


def token_renewed(asked: Asked) -> Iterator[Change]:
    yield token_moved(asked, asked.request.renew_period_ms, is_gone=False)


def token_expired(asked: Asked) -> Iterator[Change]:
    period_ms = asked.request.expiry_time_period_ms
    yield token_moved(asked, period_ms, is_gone=period_ms < 0)


def token_moved(asked: Asked, period_ms: int, *, is_gone: bool) -> Change:
    """A request names a token by its secret alone; `seen` has the id of the one that is meant, if there is one."""
    token_id, response = asked.seen.get("token_id"), asked.response
    token = asked.before.delegation_tokens.get(token_id or "")
    known = {"owner": token.owner} if token is not None else {}
    before = {**known, "expires_ms": token.expiry_ms} if token is not None else None
    after = {**known, "expires_ms": response.expiry_timestamp_ms} if not is_gone else None
    if response.error_code != Error.NONE:
        after = {"period_ms": period_ms}
    return Change(TOKEN, token_id, before, after, response.error_code)
