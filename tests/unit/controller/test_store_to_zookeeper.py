"""The migration of a standalone store to ZooKeeper, and its refusals."""

import pytest

from ottla.controller import tree
from ottla.controller.migration.store_to_zookeeper import MigrationRefusedError, plan_migration
from ottla.controller.stores.store import Node

CLUSTER = tree.encode_cluster_id("one")
SOURCE = {
    path: Node(data, 3, 1)
    for path, data in {
        "/brokers": b"",
        "/brokers/ids": b"",
        "/brokers/ids/1": b"{}",
        "/brokers/topics": b"",
        "/brokers/seqid": b"",
        "/brokers/topics/t": b"topic",
        "/brokers/topics/t/partitions": b"",
        "/brokers/topics/t/partitions/0": b"",
        "/brokers/topics/t/partitions/0/state": b"state",
        "/cluster": b"",
        "/cluster/id": CLUSTER,
        "/config": b"",
        "/config/changes": b"",
        "/config/changes/config_change_0000000001": b"x",
        "/config/topics": b"",
        "/config/topics/t": b"settings",
        "/controller": b"{}",
        "/controller_epoch": b"7",
        "/latest_producer_id_block": b"block",
    }.items()
}


def target(**data: bytes) -> dict[str, Node]:
    return {"/" + path.replace("__", "/"): Node(each, 0, 9) for path, each in data.items()}


def test_all_nodes_are_copied_except_those_of_running_brokers() -> None:
    made = {operation.path: operation.data for operation in plan_migration(SOURCE, {})}
    left_out = {"/brokers/ids/1", "/controller", "/config/changes/config_change_0000000001"}
    assert made == {path: node.data for path, node in SOURCE.items() if path not in left_out}
    paths = list(made)
    assert all(path.rpartition("/")[0] in ("", *paths[:index]) for index, path in enumerate(paths)), "parents first"


def test_existing_nodes_are_not_written_again() -> None:
    there = {path: SOURCE[path] for path in list(SOURCE)[:8] if path != "/brokers/ids/1"}
    made = [operation.path for operation in plan_migration(SOURCE, there)]
    assert not set(made) & set(there)
    assert "/brokers/topics/t/partitions/0/state" in made


@pytest.mark.parametrize(
    ("there", "problem"),
    [
        (target(cluster__id=tree.encode_cluster_id("two")), r"another cluster already \(two\)"),
        (target(brokers__ids__5=b""), "brokers are running there"),
        (target(brokers__topics__other=b""), "there are topics already"),
        (target(brokers__topics__t=b"another topic of that name"), "there are topics already"),
        (target(latest_producer_id_block=b"another"), "/latest_producer_id_block holds something else"),
    ],
)
def test_a_target_that_is_in_use_is_refused(there: dict[str, Node], problem: str) -> None:
    with pytest.raises(MigrationRefusedError, match=problem):
        plan_migration(SOURCE, there)


def test_places_that_a_broker_has_prepared_do_no_harm() -> None:
    plan_migration(
        SOURCE, target(controller_epoch=b"1", brokers__seqid=b"", config=b"", admin=b"", cluster__id=CLUSTER)
    )


def test_a_store_that_was_never_used_has_nothing_to_move() -> None:
    with pytest.raises(MigrationRefusedError, match="nothing to move"):
        plan_migration({}, {})
