"""Quotas in the words of `kafka-configs.sh`: `user`, `client`, `ip`, their `-defaults`, and the names of limits. Pure.

    parse_quota({"user": "alice", "client-defaults": True, "producer_byte_rate": 1_000_000})

Files, command lines and tests all say it this way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from ottla.base.errors import KafkaError
from ottla.client.quotas import Entity, Quota
from ottla.quotas import entities
from ottla.quotas.entities import CLIENT_KEYS, CONNECTIONS

NAMES: Final = {"user": "user", "client": "client-id", "ip": "ip"}  # the word, and the type on the wire
DEFAULTS: Final = {f"{word}-defaults": kind for word, kind in NAMES.items()}
WORDS: Final = {kind: word for word, kind in NAMES.items()}
LIMITS: Final = CLIENT_KEYS
ADDRESS_LIMITS: Final = (CONNECTIONS,)


class QuotaError(ValueError):
    """What is no quota; `word` is what is wrong in it, "" if something is missing."""

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
    """A user, a client, both of them, or an address; or the default of it. Raises QuotaError."""
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
        raise QuotaError("whose limit is it? user, client or ip, or one of their -defaults")
    if "ip" in entity and len(entity) > 1:
        raise QuotaError("an ip stands alone, without user and client", "ip")
    return {kind: entity[kind] for kind in WORDS if kind in entity}


def parse_limit(entity: Entity, key: str, value: object) -> float:
    """Raises QuotaError for what no cluster takes."""
    known = known_limits(entity)
    if key not in known:
        near = get_close_matches(key, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise QuotaError(f"{key} is no limit of {entity_text(entity)}: {hint}", key)
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
    """The other way of parse_entity()."""
    words: dict[str, str | bool] = {}
    for kind, word in WORDS.items():
        if kind in entity:
            name = entity[kind]
            words.update({f"{word}-defaults": True} if name is None else {word: name})
    return words


def entity_text(entity: Entity) -> str:
    """In words for people: user alice, client app."""
    parts = []
    for kind, word in WORDS.items():
        if kind in entity:
            name = entity[kind]
            parts.append(f"each {word}" if name is None else f"{word} {name}")
    return ", ".join(parts)


def number_text(value: float) -> str:
    """Without the tail of zeros that a floating point number has; Kafka keeps NaN, too, if somebody sets it."""
    return str(int(value)) if abs(value) < 2**63 and value == int(value) else repr(value)
