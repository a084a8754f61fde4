"""Mappings of an image that are too large to be copied: a changed copy shares what did not change."""

from __future__ import annotations

from random import Random

from ottla.controller.mappings import BUCKETS, PLAIN_MAX, BucketMap, sharable, with_changes


def test_changes_equal_those_of_a_dictionary_and_do_not_affect_the_old_mapping() -> None:
    chance = Random(7)
    plain: dict[str, int] = {}
    mapping = sharable(dict(plain))
    for _ in range(300):
        changes = {
            f"k{chance.randrange(4_000)}": None if chance.random() < 0.2 else chance.randrange(9) for _ in range(40)
        }
        before, known = mapping, dict(plain)
        mapping = with_changes(mapping, changes)
        for key, value in changes.items():
            if value is None:
                plain.pop(key, None)
            else:
                plain[key] = value
        assert before == known, "the old mapping does not change"
    assert isinstance(mapping, BucketMap)
    assert (len(mapping), dict(mapping), sorted(mapping.values())) == (len(plain), plain, sorted(plain.values()))
    assert (mapping.get("absent"), mapping.get("absent", 3), "absent" in mapping) == (None, 3, False)
    assert plain == mapping


def test_a_change_copies_one_bucket_and_none_copies_nothing() -> None:
    old = sharable({str(number): number for number in range(100 * PLAIN_MAX)})
    assert isinstance(old, BucketMap)
    new = with_changes(old, {"7": 8})
    assert isinstance(new, BucketMap)
    shared = sum(one is other for one, other in zip(old._buckets, new._buckets, strict=True))
    assert shared == BUCKETS - 1
    assert with_changes(old, {}) is old
