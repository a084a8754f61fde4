"""Immutable mappings of an image with up to hundreds of thousands of entries: changes and comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, ValuesView
from itertools import chain
from typing import Final, TypeVar, cast

K = TypeVar("K")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
D = TypeVar("D")

PLAIN_MAX: Final = 1_000  # entries; a dict of this size is copied in a few microseconds
BUCKETS: Final = 1_024


class BucketMap(Mapping[K, V_co]):
    """An immutable mapping of very many entries; a changed copy shares all unchanged buckets."""

    __slots__ = ("_buckets", "_length")

    def __init__(self, entries: Mapping[K, V_co]) -> None:
        self._buckets: list[dict[K, V_co]] = [{} for _ in range(BUCKETS)]
        self._length = len(entries)
        for key, value in entries.items():
            self._buckets[hash(key) % BUCKETS][key] = value

    def changed(self, changes: Mapping[K, V_co | None]) -> BucketMap[K, V_co]:
        """Return a copy with these changes; None removes a key."""
        buckets, length = list(self._buckets), self._length
        touched: dict[int, dict[K, V_co]] = {}
        for key, value in changes.items():
            place = hash(key) % BUCKETS
            bucket = touched.get(place)
            if bucket is None:
                bucket = touched[place] = buckets[place] = dict(buckets[place])
            length -= len(bucket)
            if value is None:
                bucket.pop(key, None)
            else:
                bucket[key] = value
            length += len(bucket)
        new: BucketMap[K, V_co] = BucketMap.__new__(BucketMap)
        new._buckets, new._length = buckets, length
        return new

    def __getitem__(self, key: K) -> V_co:
        return self._buckets[hash(key) % BUCKETS][key]

    def get(self, key: K, default: D = None) -> V_co | D:  # type: ignore[assignment]
        return self._buckets[hash(key) % BUCKETS].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._buckets[hash(key) % BUCKETS]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._buckets)

    def values(self) -> ValuesView[V_co]:
        return BucketValues(self)

    def __repr__(self) -> str:
        return f"<BucketMap of {self._length}>"


class BucketValues(ValuesView[V_co]):
    """Values without a lookup of each key."""

    def __init__(self, mapping: BucketMap[K, V_co]) -> None:
        super().__init__(mapping)
        self._buckets = mapping._buckets

    def __iter__(self) -> Iterator[V_co]:
        return chain.from_iterable(bucket.values() for bucket in self._buckets)


def sharable(entries: Mapping[K, V]) -> Mapping[K, V]:
    """Return the entries in a form whose copies cost as much as their changes."""
    return BucketMap(entries) if len(entries) > PLAIN_MAX and not isinstance(entries, BucketMap) else entries


def with_changes(old: Mapping[K, V], changes: Mapping[K, V | None]) -> Mapping[K, V]:
    """Return a changed copy; None removes a key. Returns `old` itself without changes."""
    if not changes:
        return old
    if isinstance(old, BucketMap):
        return old.changed(changes)
    copy = cast("dict[K, V]", {**old, **changes})
    for key, value in changes.items():
        if value is None:
            del copy[key]
    return sharable(copy)


def kept(old: Mapping[K, V], new: Mapping[K, V]) -> tuple[Mapping[K, V], frozenset[K]]:
    """Return the new mapping with all equal values taken from the old one, and the keys that differ.

    This uses Python loops, because single C calls such as a set union would hold the GIL for long.
    """
    same = {key: value for key, value in old.items() if new.get(key) == value}
    if len(same) == len(old) == len(new):
        return old, frozenset()
    differing = [key for key in new if key not in same] + [key for key in old if key not in new]
    return sharable({key: same.get(key, value) for key, value in new.items()}), frozenset(differing)


def differing(old: Mapping[str, Mapping[str, str]], new: Mapping[str, Mapping[str, str]]) -> frozenset[str]:
    changed = {name for name, config in new.items() if old.get(name) is not config}
    return frozenset(changed.union(name for name in old if name not in new))


def without_empty(configs: Mapping[str, Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
    return {name: config for name, config in configs.items() if config}
