"""Names of topics that metrics cannot tell apart: '.' and '_' are the same there, so Kafka refuses the second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.base.names import topic_name_collision_key

Known = Mapping[str, tuple[str, ...]]
Changes = dict[str, tuple[str, ...] | None]  # None: there is none any more


def collisions(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Names that hold '.' or '_', by what they become when the two are taken for one."""
    found: dict[str, tuple[str, ...] | None] = {}
    for name in names:
        note_collision({}, found, name)
    return {key: names for key, names in found.items() if names is not None}


def note_collision(known: Known, changes: Changes, name: str) -> None:
    """`changes` are those against what is known."""
    if "." in name or "_" in name:
        key = topic_name_collision_key(name)
        others = names_at(known, changes, key)
        if name not in others:
            changes[key] = (*others, name)


def forget_collision(known: Known, changes: Changes, name: str) -> None:
    if "." in name or "_" in name:
        key = topic_name_collision_key(name)
        changes[key] = tuple(other for other in names_at(known, changes, key) if other != name) or None


def names_at(known: Known, changes: Changes, key: str) -> tuple[str, ...]:
    return (changes[key] if key in changes else known.get(key)) or ()
