"""The names that cleanup.policy may have: Kafka's own, and custom ones that installed packages offer.

A package offers a policy as an entry point of the group `ottla.cleanup_policies`. Here only the names are looked up;
nothing of the package is imported before a log is cleaned, and then in the cleaner's process.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from ottla.base.setting_types import one_of

ENTRY_POINT_GROUP: Final = "ottla.cleanup_policies"
COMPACT: Final = "compact"
DELETE: Final = "delete"


def known_policies(name: str, value: object) -> str | None:
    """The check of cleanup.policy; packages are only looked at for a name that is not Kafka's."""
    problem = one_of(COMPACT, DELETE)(name, value)
    return problem and one_of(COMPACT, DELETE, *custom_policy_names())(name, value)


@cache
def custom_policy_names() -> tuple[str, ...]:
    """As of the start: a package that is installed later needs a restart."""
    from importlib.metadata import entry_points  # noqa: PLC0415 (a tenth of the start-up time, and rarely needed)

    return tuple(sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)} - {COMPACT, DELETE}))


def is_custom(policy: str) -> bool:
    return policy not in (COMPACT, DELETE)
