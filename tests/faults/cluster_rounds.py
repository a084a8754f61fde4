"""Rounds of faults on a cluster under load, and what must hold afterwards."""

import os
import random
import time
from pathlib import Path

from tests.faults.cluster_checker import TOPIC, Checker, Outcome
from tests.faults.cluster_faults import PARTITIONS, Fault, Scene

from ottla.testing.cluster import Cluster

MEND_SECONDS_MAX = 90.0


def rounds(full: int) -> int:
    """How many rounds: a part of the full number, which OTTLA_FAULTS_SCALE names."""
    return max(2, round(full * float(os.environ.get("OTTLA_FAULTS_SCALE", "0.2"))))


def run_rounds(
    cluster: Cluster,
    folder: Path,
    faults: list[Fault],
    *,
    topic: str = TOPIC,
    seed: int = 0,
    gap_seconds_max: float | None = None,
    has_transactions: bool = False,
    acknowledged_min: int = 200,
) -> Outcome:
    """Each fault once, in that order; after each the cluster must become whole and every partition take writes.

    For how long at most a partition may go without an acknowledgement is a promise for a machine that has nothing else
    to do: rounds that run beside others promise nothing (None).
    """
    scene = Scene(cluster, random.Random(seed), topic)
    with Checker(
        cluster.bootstrap, folder, topic=topic, seed=seed, partitions=PARTITIONS, has_transactions=has_transactions
    ) as checker:
        for fault in faults:
            time.sleep(scene.chance.uniform(0.2, 1.0))
            fault(scene)
            cluster.wait_until_whole(seconds_max=MEND_SECONDS_MAX)
            checker.wait_for_acknowledgements(1)
        outcome = checker.finish(cluster)
    print(f"{len(faults)} faults, seed {seed}: {outcome}")
    assert not outcome.violations, outcome
    assert not outcome.given_up, outcome
    assert outcome.acknowledged >= acknowledged_min, outcome
    assert gap_seconds_max is None or outcome.longest_gap_seconds <= gap_seconds_max, outcome
    check_logs(cluster)
    return outcome


def check_logs(cluster: Cluster) -> None:
    """No broker has met something that it did not know how to deal with."""
    for broker in cluster.brokers:
        text = broker.logs
        position = text.find("Traceback (most recent call last)")
        assert position < 0, f"broker {broker.id} has a traceback in its log:\n{text[max(0, position - 500) :][:4000]}"
