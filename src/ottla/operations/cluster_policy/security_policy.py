"""Users, ACLs and quotas of a cluster, as wanted and as found, in comparable values. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.client.quotas import Entity, SaltedPassword
from ottla.security.acls import AclBinding

USERS, RIGHTS, QUOTAS = "users", "rights", "quotas"
SECTIONS: Final = (USERS, RIGHTS, QUOTAS)

EntityKey = tuple[tuple[str, str | None], ...]


class Login(NamedTuple):
    """One login mechanism of a user."""

    iterations: int
    password: SaltedPassword | None = None


class Policy(NamedTuple):
    """The wanted or the current state; None: the section is not specified."""

    users: dict[tuple[str, str], Login] | None = None  # by user and mechanism
    rights: frozenset[AclBinding] | None = None
    quotas: dict[tuple[EntityKey, str], float] | None = None  # by entity and quota name


def entity_key(entity: Entity) -> EntityKey:
    return tuple(sorted(entity.items(), key=lambda item: item[0]))
