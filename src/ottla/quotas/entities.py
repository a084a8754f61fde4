"""Quota entities, the kinds of quotas, and their valid values. Codes and messages are Kafka's.

An entity is a user, a client id, both, or an address; a name of None is the default of its kind. Log lines and metrics
display it as `user=alice,client-id=<default>`.

Filters of DescribeClientQuotas (KIP-546). Codes and messages are Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Final, NamedTuple

from ottla.base.errors import Error, KafkaError

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
DEFAULT_SHOWN: Final = "<default>"

PRODUCER_BYTES: Final = "producer_byte_rate"
CONSUMER_BYTES: Final = "consumer_byte_rate"
REQUEST_SHARE: Final = "request_percentage"
MUTATIONS: Final = "controller_mutation_rate"
CONNECTIONS: Final = "connection_creation_rate"
PRODUCER_MESSAGES: Final = "producer_message_rate"  # the last two are not Kafka's
CONSUMER_MESSAGES: Final = "consumer_message_rate"

CLIENT_KEYS: Final = (
    PRODUCER_BYTES,
    CONSUMER_BYTES,
    REQUEST_SHARE,
    MUTATIONS,
    PRODUCER_MESSAGES,
    CONSUMER_MESSAGES,
)
KEYS: Final = (*CLIENT_KEYS, CONNECTIONS)
FRACTIONAL: Final = frozenset({REQUEST_SHARE, MUTATIONS})
LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1
EPSILON: Final = 1e-6  # Kafka's tolerance for whole numbers

NAMES: Final = (USER, CLIENT_ID, IP)


class Entity(NamedTuple):
    """An entity: `kinds` are its parts, with one name each; None is the default."""

    kinds: tuple[str, ...]
    names: tuple[str | None, ...]

    @property
    def parts(self) -> tuple[tuple[str, str | None], ...]:
        return tuple(zip(self.kinds, self.names, strict=True))

    def __str__(self) -> str:
        return ",".join(f"{kind}={DEFAULT_SHOWN if name is None else name}" for kind, name in self.parts)


def of_user(name: str | None) -> Entity:
    return Entity((USER,), (name,))


def of_client(name: str | None) -> Entity:
    return Entity((CLIENT_ID,), (name,))


def of_user_and_client(user: str | None, client_id: str | None) -> Entity:
    return Entity((USER, CLIENT_ID), (user, client_id))


def of_address(name: str | None) -> Entity:
    return Entity((IP,), (name,))


def read_entity(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Return the entity of a request. Raises KafkaError(INVALID_REQUEST)."""
    found = dict(parts)
    if not found:
        raise invalid("Invalid empty client quota entity")
    for kind, name in found.items():
        if kind not in NAMES:
            raise invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise invalid(f"Empty {kind} not supported")
    if IP in found:
        if len(found) > 1:
            raise invalid("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
        if found[IP] is not None and address(found[IP] or "") is None:
            raise invalid(f"{found[IP]} is not a valid IP or resolvable host.")
    kinds = tuple(kind for kind in NAMES if kind in found)
    return Entity(kinds, tuple(found[kind] for kind in kinds))


def keys_of(entity: Entity) -> tuple[str, ...]:
    return (CONNECTIONS,) if entity.kinds == (IP,) else CLIENT_KEYS


def check_value(entity: Entity, key: str, value: float) -> None:
    """Check that an entity can have this quota. Raises KafkaError(INVALID_REQUEST)."""
    if key not in keys_of(entity):
        raise invalid(f"Invalid configuration key {key}")
    if not value > 0:  # includes NaN, which Kafka treats as 0 and stores
        raise invalid(f"Quota {key} must be greater than 0")
    if key in FRACTIONAL and isfinite(value):
        return
    largest, kind = (INT_MAX, "an INT") if key == CONNECTIONS else (LONG_MAX, "a LONG")
    if value > largest:
        raise invalid(f"Proposed value for {key} is too large for {kind}.")
    if abs(int(value + EPSILON) - value) > EPSILON:
        raise invalid(f"{key} cannot be a fractional value.")


def value_text(key: str, value: float) -> str:
    """Return a quota in its stored form: whole numbers as such, the others as Java writes a double."""
    if key not in FRACTIONAL:
        return str(int(value + EPSILON))
    return repr(float(value))


def stored_value(key: str, text: str) -> float | None:
    """Return a stored quota; None if it is invalid, and therefore ignored."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if key in KEYS and value > 0 and isfinite(value) else None


def address(text: str) -> str | None:
    """Return an address in the form that connections have; None if the text is not one, such as a host name."""
    from ipaddress import IPv6Address, ip_address  # noqa: PLC0415 (rarely needed, and slow to import)

    try:
        found = ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)


def invalid(message: str) -> KafkaError:
    return KafkaError(Error.INVALID_REQUEST, message)


EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2


class Component(NamedTuple):
    """One component of a filter."""

    kind: str
    match_type: int
    match: str | None


class Filter:
    """All components together; `is_strict`: excludes entities with further kinds."""

    def __init__(self, components: Sequence[Component], is_strict: bool) -> None:
        self._exact: dict[str, str | None] = {}
        self._any: set[str] = set()
        self._is_strict = is_strict
        for component in components:
            self._add(component)
        kinds = self._exact.keys() | self._any
        if IP in kinds and kinds & {USER, CLIENT_ID}:
            raise invalid(
                "Invalid entity filter component combination. IP filter component should not be used with user or "
                "clientId filter component."
            )
        self._kinds = kinds

    def _add(self, component: Component) -> None:
        kind, match_type, match = component
        if not kind:
            raise invalid("Invalid empty entity type.")
        if kind in self._exact or kind in self._any:
            raise invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in NAMES:
            raise KafkaError(Error.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if match_type == EXACT:
            if match is None:
                raise invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            self._exact[kind] = match
        elif match_type in (DEFAULT, ANY):
            if match is not None:
                name = "DEFAULT" if match_type == DEFAULT else "SPECIFIED"
                raise invalid(f"Request specified MATCH_TYPE_{name}, but also specified a match string.")
            if match_type == DEFAULT:
                self._exact[kind] = None
            else:
                self._any.add(kind)
        else:
            raise invalid(f"Unknown match type {match_type}")

    def matches(self, entity: Entity) -> bool:
        parts = dict(entity.parts)
        if not self._kinds <= parts.keys():
            return False
        if self._is_strict and len(parts) != len(self._kinds):
            return False
        return all(parts[kind] == name for kind, name in self._exact.items())
