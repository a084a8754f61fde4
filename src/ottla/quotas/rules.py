"""Lookup of quota rules: Kafka's eight levels of precedence, for each kind of quota separately.

Levels (the first with a value for the kind is used), and the requests that share the quota:

1. user and client id       each such pair
2. user, any client id      each such pair
3. user                     all clients of the user together
4. any user and client id   each such pair
5. any user, any client id  each such pair
6. any user                 all clients of each user together
7. client id                all users of the client id together
8. any client id            all users of each client id together
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ottla.quotas.entities import (
    CLIENT_ID,
    CONNECTIONS,
    IP,
    USER,
    Entity,
    address,
    of_address,
    of_client,
    of_user,
    of_user_and_client,
    stored_value,
)

Values = Mapping[str, float]
NO_VALUES: Final[Values] = {}


class Rule(NamedTuple):
    """A quota of one kind: bound, source, and the sharing user and client id ("" is all)."""

    key: str
    bound: float
    entity: Entity
    user: str = ""
    client_id: str = ""


class Rules:
    """All rules of a cluster; every change increments `generation`."""

    def __init__(self) -> None:
        self._values: dict[Entity, Values] = {}
        self.generation = 0

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[tuple[Entity, Values]]:
        return iter(list(self._values.items()))

    def change(self, entity: Entity, config: Mapping[str, str]) -> bool:
        """Set an entity's configuration; returns whether a quota has changed."""
        if entity.kinds == (IP,) and entity.names[0] is not None:
            entity = of_address(address(entity.names[0]) or entity.names[0])
        values = {key: value for key, text in config.items() if (value := stored_value(key, text)) is not None}
        if values == self._values.get(entity, NO_VALUES):
            return False
        if values:
            self._values[entity] = values
        else:
            del self._values[entity]
        self.generation += 1
        return True

    def bound_of(self, entity: Entity, key: str) -> float | None:
        return self._values.get(entity, NO_VALUES).get(key)

    def of_client(self, user: str, client_id: str) -> dict[str, Rule]:
        """Return the rules for a client's requests, by kind."""
        found: dict[str, Rule] = {}
        for entity in levels(user, client_id):
            for key, bound in self._values.get(entity, NO_VALUES).items():
                if key not in found:
                    found[key] = Rule(key, bound, entity, *shares_limit(entity, user, client_id))
        return found

    def of_address(self, host: str) -> Rule | None:
        """Return the rule for an address's connections."""
        for entity in (of_address(host), of_address(None)):
            bound = self._values.get(entity, NO_VALUES).get(CONNECTIONS)
            if bound is not None:
                return Rule(CONNECTIONS, bound, entity)
        return None

    def __repr__(self) -> str:
        return f"<Rules of {len(self)} entities, generation {self.generation}>"


def levels(user: str, client_id: str) -> tuple[Entity, ...]:
    return (
        of_user_and_client(user, client_id),
        of_user_and_client(user, None),
        of_user(user),
        of_user_and_client(None, client_id),
        of_user_and_client(None, None),
        of_user(None),
        of_client(client_id),
        of_client(None),
    )


def shares_limit(entity: Entity, user: str, client_id: str) -> tuple[str, str]:
    """Return the key under which requests are measured together: user and client id, "" where the rule ignores it."""
    return user if USER in entity.kinds else "", client_id if CLIENT_ID in entity.kinds else ""
