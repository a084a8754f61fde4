"""Rights: a person has grants, each a role on some clusters for some names. Pure.

Reading messages is a separate right: an operator of a cluster need not see its data.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from fnmatch import fnmatchcase

import msgspec

ALL = "*"


class Role(IntEnum):
    """Roles; each includes the lower ones."""

    VIEWER = 1
    OPERATOR = 2  # topics and groups
    ADMIN = 3  # clusters, brokers, people


class Grant(msgspec.Struct, frozen=True):
    """A role on the clusters and for the names (of topics and groups) that two patterns like `orders.*` match."""

    role: str
    cluster: str = ALL
    names: str = ALL
    may_read_messages: bool = False


FULL_GRANTS = (Grant("admin", may_read_messages=True),)
ROLES = {role.name.lower(): role for role in Role}


def has_role(grants: Sequence[Grant], role: Role, cluster: str | None = None, name: str | None = None) -> bool:
    """Whether the grants include a role. Without a cluster: on all clusters; without a name: for any name."""
    return any(ROLES[grant.role] >= role and _covers(grant, cluster, name) for grant in grants)


def may_read_messages(grants: Sequence[Grant], cluster: str, topic: str) -> bool:
    return any(grant.may_read_messages and _covers(grant, cluster, topic) for grant in grants)


def may_read_some_messages(grants: Sequence[Grant], cluster: str) -> bool:
    return any(grant.may_read_messages and _covers(grant, cluster, None) for grant in grants)


def sees_all_names(grants: Sequence[Grant], cluster: str) -> bool:
    return any(fnmatchcase(cluster, grant.cluster) and grant.names == ALL for grant in grants)


def highest_role(grants: Sequence[Grant], cluster: str | None) -> Role | None:
    """The highest role of the grants on a cluster."""
    roles = [ROLES[grant.role] for grant in grants if _covers(grant, cluster, None)]
    return max(roles, default=None)


def _covers(grant: Grant, cluster: str | None, name: str | None) -> bool:
    if cluster is None:
        return grant.cluster == ALL and grant.names == ALL
    return fnmatchcase(cluster, grant.cluster) and (name is None or fnmatchcase(name, grant.names))
