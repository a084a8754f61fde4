"""Names of topics that metrics cannot tell apart: '.' and '_' are the same there, so Kafka refuses the second."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.base.names import topic_name_collision_key


def collisions(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Names that hold '.' or '_', by what they become when the two are taken for one."""
    found: dict[str, tuple[str, ...]] = {}
    for name in names:
        note_collision(found, name)
    return found


def note_collision(found: dict[str, tuple[str, ...]], name: str) -> None:
    if "." in name or "_" in name:
        key = topic_name_collision_key(name)
        others = found.get(key, ())
        if name not in others:
            found[key] = (*others, name)


def forget_collision(found: dict[str, tuple[str, ...]], name: str) -> None:
    key = topic_name_collision_key(name)
    left = tuple(other for other in found.get(key, ()) if other != name)
    if left:
        found[key] = left
    else:
        found.pop(key, None)
