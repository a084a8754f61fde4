"""Two versions in one cluster: brokers of the version before (older_version.txt) beside brokers of this one."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster.older_version import make_newer, make_older
from tests.cluster.version_rolls import (
    change_level,
    check,
    level_of,
    replace,
    roll_back,
    roll_forward,
)
from tests.faults.cluster_checker import Checker
from tests.faults.cluster_rounds import check_logs, rounds

from ottla.client.cluster import UpgradeType
from ottla.controller.decisions.ottla_version import LEVEL_MAX, LEVEL_MIN
from ottla.testing.cluster import Cluster, ClusterBroker

ClusterFactory = Callable[..., Cluster]
GAP_SECONDS_MAX = 15.0  # of long rounds; `python -m bench.versions` measures it
CANNOT_POLL = "does not serve ClusterPoll, or only in other versions than ours"  # in the words of the older version


@pytest.fixture
def older_cluster(cluster_factory: ClusterFactory, older: Path) -> Cluster:
    """Three brokers of the older version."""
    paths = {"PYTHONPATH": str(older)}
    return cluster_factory(environments=dict.fromkeys((1, 2, 3), paths))


def test_a_cluster_is_rolled_to_this_version_and_back_until_its_level_is_raised(
    older_cluster: Cluster, older: Path, tmp_path: Path
) -> None:
    cluster = older_cluster
    with Checker(cluster.bootstrap, tmp_path / "logs", has_transactions=True) as checker:
        roll_forward(cluster)
        assert level_of(cluster) == LEVEL_MIN

        last = cluster.brokers[2]
        replace(cluster, last, lambda broker: make_older(broker, older))
        assert "Broker 3 does not support it: upgrade every broker first" in change_level(cluster, LEVEL_MAX)
        replace(cluster, last, make_newer)

        assert not change_level(cluster, LEVEL_MAX)
        assert level_of(cluster) == LEVEL_MAX
        refused = start_an_older_broker_that_is_refused(cluster, older)
        assert "without setting the upgrade type" in change_level(cluster, LEVEL_MIN)
        assert not change_level(cluster, LEVEL_MIN, UpgradeType.SAFE_DOWNGRADE)  # nothing of it is in use
        refused.wait_until_ready()
        cluster.wait_until_whole()
        checker.wait_for_acknowledgements(1)
        check(checker, cluster)
    check_logs(cluster)


def start_an_older_broker_that_is_refused(cluster: Cluster, older: Path) -> ClusterBroker:
    """It gets no metadata, is not counted on, and is not elected when the controller steps down."""
    broker = next(each for each in cluster.brokers if each is not cluster.controller())
    broker.stop()
    make_older(broker, older)
    position = broker.log_position()
    broker.launch()
    cluster.wait_for(lambda: CANNOT_POLL in broker.logs_since(position), "the older broker's complaint")
    controller = cluster.controller()
    sentence = f"broker {broker.id} is refused: this cluster runs at ottla.version=2, and it supports only 1"
    cluster.wait_for(lambda: sentence in controller.logs, "the controller's refusal")
    others = {each.id for each in cluster.brokers if each is not broker}
    assert {node.node_id for node in cluster.metadata()[controller.id].brokers} == others

    controller.restart()  # only the older one and one other could be elected
    assert cluster.controller().id in others
    said = broker.logs_since(position)
    assert "elected as the controller" not in said
    assert "ready on" not in said
    return broker


@pytest.mark.faults
def test_twenty_rolls_there_and_back_lose_nothing(older_cluster: Cluster, older: Path, tmp_path: Path) -> None:
    """The full number of rounds is 20: each to this version and back, under transactions and groups."""
    cluster = older_cluster
    with Checker(cluster.bootstrap, tmp_path / "logs", has_transactions=True) as checker:
        for _ in range(rounds(20)):
            roll_forward(cluster)
            checker.wait_for_acknowledgements(1)
            roll_back(cluster, older)
            checker.wait_for_acknowledgements(1)
        roll_forward(cluster)
        assert not change_level(cluster, LEVEL_MAX)
        check(checker, cluster, GAP_SECONDS_MAX)
    check_logs(cluster)
