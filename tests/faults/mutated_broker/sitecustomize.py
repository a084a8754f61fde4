"""Loaded by a broker's Python before anything else: breaks one rule of replication, the one OTTLA_TEST_MUTATION names.

The checker must notice (test_cluster_mutations.py). It works on the pure files only: compiled classes do not change.
"""

import os

from ottla.replication.leader_state import LeaderState
from ottla.storage.producer_state import ProducerStates


def acknowledge_what_only_the_leader_has() -> None:
    LeaderState.replicated_offset = lambda _, own_offset: own_offset  # type: ignore[method-assign]


def forget_what_producers_sent() -> None:
    ProducerStates.find_duplicate = lambda *_: None  # type: ignore[method-assign, assignment]
    ProducerStates.check = lambda *_: None  # type: ignore[method-assign, assignment]


{
    "early acknowledgement": acknowledge_what_only_the_leader_has,
    "no deduplication": forget_what_producers_sent,
}[os.environ["OTTLA_TEST_MUTATION"]]()
