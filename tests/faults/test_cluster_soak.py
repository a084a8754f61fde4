"""Everything at once: kills, pauses and cuts in any order under records, transactions, copies and groups, for a time.

OTTLA_SOAK_SECONDS says how long each seed takes (300 before a release).
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.faults.cluster_checker import TOPIC, Checker
from tests.faults.cluster_faults import CUTS, DEATHS, PARTITIONS, PAUSES, Fault, Scene
from tests.faults.cluster_rounds import MEND_SECONDS_MAX, check_logs

from ottla.testing.cluster import Cluster

pytestmark = pytest.mark.faults
SECONDS = float(os.environ.get("OTTLA_SOAK_SECONDS", "60"))
SEEDS = [int(word) for word in os.environ.get("OTTLA_SOAK_SEEDS", "1 2 3").split()]
ALL: dict[str, Fault] = DEATHS | PAUSES | CUTS
ACKNOWLEDGED_PER_SECOND_MIN = 10


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_that_was_promised_is_broken(
    cluster_factory: Callable[..., Cluster], tmp_path: Path, seed: int
) -> None:
    cluster = cluster_factory(has_links=True)
    scene = Scene(cluster, random.Random(seed), TOPIC)
    happened: Counter[str] = Counter()
    with Checker(
        cluster.bootstrap, tmp_path / "logs", seed=seed, partitions=PARTITIONS, has_transactions=True
    ) as checker:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            name = scene.chance.choice(sorted(ALL))
            is_wipe = name == "wipe follower"  # two copies are promised, so only one may go at a time
            if is_wipe:
                cluster.wait_until_whole(seconds_max=MEND_SECONDS_MAX)
            happened[name] += 1
            ALL[name](scene)
            if is_wipe or scene.chance.random() < 0.7:  # else the next fault finds it as it is
                cluster.wait_until_whole(seconds_max=MEND_SECONDS_MAX)
            time.sleep(scene.chance.uniform(0.0, 2.0))
        cluster.wait_until_whole(seconds_max=MEND_SECONDS_MAX)
        checker.wait_for_acknowledgements(1)
        outcome = checker.finish(cluster)
    print(f"seed {seed}, {SECONDS:g} s, {sum(happened.values())} faults {dict(happened)}: {outcome}")
    assert not outcome.violations, outcome
    assert not outcome.given_up, outcome
    assert outcome.acknowledged > ACKNOWLEDGED_PER_SECOND_MIN * SECONDS, outcome
    check_logs(cluster)
