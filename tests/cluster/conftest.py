"""A real cluster for tests: one that all share and leave whole, or some of their own."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.cluster.older_version import OlderVersionMissingError, older_sources

from ottla.testing.child import BrokerError
from ottla.testing.cluster import WAIT_SECONDS_MAX, Cluster
from ottla.testing.zookeeper import ZooKeeperProcess

_chroots = count(1)

# Short times, so that tests are. Not so the session: a busy machine can hold a process still for four seconds, and who
# is killed is missed at once all the same.
SETTINGS: dict[str, object] = {
    "zookeeper.session.timeout.ms": 9000,
    "replica.lag.time.max.ms": 3000,
    "group.min.session.timeout.ms": 500,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "controlled.shutdown.retry.backoff.ms": 500,
    "auto.leader.rebalance.enable": "false",  # leaders move when a test wants it
}


def promised(seconds: float) -> pytest.MarkDecorator:
    """The test gets `seconds_max`: what is promised when it runs alone (make faults), a ceiling beside other tests."""
    beside_others = pytest.param(WAIT_SECONDS_MAX, id="beside-others")
    return pytest.mark.parametrize(
        "seconds_max", [beside_others, pytest.param(seconds, id="alone", marks=pytest.mark.faults)]
    )


class Shared:
    """The cluster of the session; a new one if a test has left it in pieces."""

    def __init__(self) -> None:
        self.cluster: Cluster | None = None

    def get(self) -> Cluster:
        if self.cluster is None:
            self.cluster = Cluster(3, SETTINGS).start()  # type: ignore[arg-type]
        return self.cluster

    def mend(self) -> None:
        """Bring all brokers back; discard a cluster that does not recover."""
        cluster = self.get()
        try:
            for broker in cluster.brokers:
                broker.resume()
            if not cluster.zookeeper.is_running:
                cluster.zookeeper.start()
            cluster.start_brokers()
            cluster.wait_until_whole()
        except BrokerError as problem:
            self.close()
            raise AssertionError(f"the cluster did not mend: {problem}") from None

    def close(self) -> None:
        if self.cluster is not None:
            self.cluster.close()
            self.cluster = None


@pytest.fixture(scope="session")
def shared_clusters() -> Iterator[Shared]:
    shared = Shared()
    yield shared
    shared.close()


@pytest.fixture
def cluster(shared_clusters: Shared, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three brokers that a test may stop, kill and pause as it likes; topics are its own business."""
    cluster = shared_clusters.get()
    failed_before = request.session.testsfailed
    yield cluster
    if request.session.testsfailed > failed_before:
        cluster.print_logs()
    shared_clusters.mend()


@pytest.fixture
def cluster_factory(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Makes clusters: `cluster_factory(brokers=4, has_links=True, min_insync_replicas=1)`."""
    made: list[Cluster] = []

    def make(brokers: int = 3, settings: dict[str, object] | None = None, **details: object) -> Cluster:
        wanted = SETTINGS | (settings or {})
        made.append(Cluster(brokers, wanted, logs_folder=tmp_path / f"cluster-{len(made)}", **details))  # type: ignore[arg-type]
        return made[-1].start()

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeperProcess]:
    """A ZooKeeper without brokers. It runs during all tests; each test uses its own chroot."""
    with ZooKeeperProcess() as server:
        yield server


@pytest.fixture
def chroot() -> str:
    return f"/test{next(_chroots)}"


@pytest.fixture(scope="session")
def older() -> Path:
    """The sources of the version before. A clone without them fails the test, and says so: nothing was tried."""
    try:
        return older_sources()
    except OlderVersionMissingError as problem:
        pytest.fail(str(problem), pytrace=False)
