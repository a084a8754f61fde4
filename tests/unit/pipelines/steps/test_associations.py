"""FP-growth compared with counting every subset of every basket."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

import pytest

from ottla.pipelines.steps.associations import MiningLimits, frequent_sets, mine_rules


def _baskets(seed: int) -> list[list[str]]:
    rng = random.Random(seed)
    names = "abcdefgh"
    count = rng.randrange(1, 60)
    return [[name for at, name in enumerate(names) if rng.random() < 0.7 / (1 + at / 3)] for _ in range(count)]


def _counted(baskets: list[list[str]], least: float, size_max: int) -> dict[frozenset[str], int]:
    counts: Counter[frozenset[str]] = Counter()
    for basket in baskets:
        for size in range(1, size_max + 1):
            counts.update(frozenset(each) for each in combinations(sorted(set(basket)), size))
    return {items: count for items, count in counts.items() if count >= least * len(baskets) - 1e-9}


@pytest.mark.parametrize("seed", range(40))
def test_every_frequent_set_is_found_and_counted(seed: int) -> None:
    baskets = _baskets(seed)
    for support, size_max in ((0.05, 4), (0.3, 8), (1.0, 3)):
        limits = MiningLimits(support=support, items_in_set_max=size_max)
        assert frequent_sets(baskets, limits) == _counted(baskets, support, size_max)


def test_a_rule_has_counts_and_confidence() -> None:
    baskets = [["bread", "butter"], ["bread", "butter", "milk"], ["bread"], ["milk"]]
    (rule, other) = mine_rules(baskets, MiningLimits(support=0.5, confidence=0.6))
    assert rule == (["bread"], "butter", 2, 0.5, 2 / 3, 2 / 3 * 4 / 2)
    assert other == (["butter"], "bread", 2, 0.5, 1.0, 4 / 3)


def test_the_same_item_twice_in_a_basket_counts_once() -> None:
    assert frequent_sets([["a", "a"], ["b"]], MiningLimits(support=0.5)) == {frozenset("a"): 1, frozenset("b"): 1}


def test_no_baskets_give_no_rules() -> None:
    assert mine_rules([], MiningLimits()) == []
    assert mine_rules([[], []], MiningLimits()) == []


def test_the_search_ends_at_its_limits() -> None:
    everything = [list("abcdefghijklmnopqrstuvwxyz")] * 3
    assert len(frequent_sets(everything, MiningLimits(sets_max=500))) == 500
    assert len(mine_rules(everything, MiningLimits(rules_max=7, sets_max=1000))) == 7
