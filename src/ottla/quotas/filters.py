"""Which entities a DescribeClientQuotas asks for (KIP-546). Codes and sentences are Kafka's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.base.errors import Error, KafkaError
from ottla.quotas.entities import CLIENT_ID, IP, NAMES, USER, Entity, invalid

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2


class Component(NamedTuple):
    """One line of a filter."""

    kind: str
    match_type: int
    match: str | None


class Filter:
    """What all of its lines say together; `is_strict`: no entities of further kinds."""

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
