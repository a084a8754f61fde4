"""Clusters for the rounds: times are those of the reliability list, a session of 6 s among them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.testing.cluster import Cluster

SETTINGS: dict[str, object] = {
    "zookeeper.session.timeout.ms": 6000,
    "replica.lag.time.max.ms": 5000,
    "group.min.session.timeout.ms": 500,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}


@pytest.fixture
def cluster_factory(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Makes clusters: `cluster_factory(has_links=True, settings={...})`; their logs stay in the test's folder."""
    made: list[Cluster] = []

    def make(brokers: int = 3, settings: dict[str, object] | None = None, **details: object) -> Cluster:
        wanted = SETTINGS | (settings or {})
        made.append(Cluster(brokers, wanted, logs_folder=tmp_path / f"cluster-{len(made)}", **details))  # type: ignore[arg-type]
        return made[-1].start()

    yield make
    for each in made:
        each.close()
