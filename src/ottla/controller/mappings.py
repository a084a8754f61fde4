"""Mappings of an image, by the hundred thousand: how they are changed and compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def with_changes(
    configs: Mapping[str, Mapping[str, str]], changed: Mapping[str, Mapping[str, str] | None]
) -> dict[str, Mapping[str, str]]:
    """A copy, in which None takes away; there may be a hundred thousand of them, so only the changed are looked at."""
    copy = dict(configs)
    for name, config in changed.items():
        if config is None:
            copy.pop(name, None)
        else:
            copy[name] = config
    return copy


def kept(old: Mapping[K, V], new: Mapping[K, V]) -> tuple[Mapping[K, V], frozenset[K]]:
    """What is new, with all that is equal taken from the old one; and the keys of what differs.

    Step by step: what Python does at once, the union of two sets for instance, would stop every other thread.
    """
    same = {key: value for key, value in old.items() if new.get(key) == value}
    if len(same) == len(old) == len(new):
        return old, frozenset()
    differing = [key for key in new if key not in same] + [key for key in old if key not in new]
    return {key: same.get(key, value) for key, value in new.items()}, frozenset(differing)


def differing(old: Mapping[str, Mapping[str, str]], new: Mapping[str, Mapping[str, str]]) -> frozenset[str]:
    changed = {name for name, config in new.items() if old.get(name) is not config}
    return frozenset(changed.union(name for name in old if name not in new))


def without_empty(configs: Mapping[str, Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
    return {name: config for name, config in configs.items() if config}
