"""The controller of a real cluster: its election, the brokers it knows, and foreign writes into ZooKeeper."""

import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from ottla.testing.cluster import Cluster

STATE = "/brokers/topics/{}/partitions/{}/state"


@pytest.fixture
def topic() -> str:
    return f"controlled-{uuid.uuid4().hex[:8]}"


def epoch_of(cluster: Cluster) -> int:
    return int(cluster.read_node("/controller_epoch") or b"0")


def state_of(cluster: Cluster, topic: str, partition: int = 0) -> dict[str, object]:
    return dict(json.loads(cluster.read_node(STATE.format(topic, partition)) or b"{}"))


def test_deleting_the_controllers_node_elects_another_controller(cluster: Cluster, topic: str) -> None:
    before = epoch_of(cluster)
    cluster.store.delete("/controller")
    cluster.wait_for(lambda: epoch_of(cluster) > before and cluster.controller_id() >= 0, "a new controller")
    cluster.create_topic(topic, 3)
    answers = cluster.metadata(topic).values()
    assert [len(answer.topics[0].partitions) for answer in answers] == [3, 3, 3]


def test_a_live_broker_whose_node_vanished_registers_again_and_keeps_its_work(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, assignment={0: [2, 1, 3]})
    before = cluster.store.get("/brokers/ids/2")[1].czxid
    cluster.store.delete("/brokers/ids/2")
    cluster.wait_for(
        lambda: (found := cluster.store.exists("/brokers/ids/2")) is not None and found.czxid > before, "broker 2"
    )
    registration = json.loads(cluster.read_node("/brokers/ids/2") or b"{}")
    assert registration["previous_epoch"] == before, "it has lost nothing, and says so"
    cluster.wait_until_whole([topic])


def test_a_second_broker_with_an_id_that_is_in_use_does_not_start(cluster: Cluster, tmp_path: Path) -> None:
    port = cluster.broker(1).bootstrap_servers.rpartition(":")[2]
    file = tmp_path / "server.properties"
    file.write_text(
        f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/data\n"
        f"zookeeper.connect={cluster.zookeeper.connect}\nzookeeper.session.timeout.ms=1000\n"
    )
    command = [str(Path(sys.executable).with_name("ottla")), "broker", "--config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"broker id 1 is already in use by 127.0.0.1:{port}" in done.stderr
    assert cluster.read_node("/brokers/ids/1") is not None


def test_requests_that_tools_write_into_zookeeper_are_executed(cluster: Cluster, topic: str) -> None:
    assignment = json.dumps({"version": 1, "partitions": {"0": [1, 2, 3], "1": [3, 2, 1]}}).encode()
    cluster.store.create(f"/brokers/topics/{topic}", assignment)
    assert cluster.leader_of(topic, 1).id == 3
    cluster.wait_for_isr(topic, 0, [1, 2, 3])
    assert "topic_id" in json.loads(cluster.read_node(f"/brokers/topics/{topic}") or b"{}")

    config = json.dumps({"version": 1, "config": {"retention.ms": "4711"}}).encode()
    cluster.store.create(f"/config/topics/{topic}", config)
    note = json.dumps({"version": 2, "entity_path": f"topics/{topic}"}).encode()
    cluster.store.create("/config/changes/config_change_", note, sequence=True)

    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    for each in cluster.brokers:
        client = AdminClient({"bootstrap.servers": each.bootstrap_servers})

        def is_set(client: AdminClient = client) -> bool:
            (future,) = client.describe_configs([resource]).values()
            return bool(future.result(10)["retention.ms"].value == "4711")

        cluster.wait_for(is_set, f"the new setting on {each}")

    cluster.store.create(f"/admin/delete_topics/{topic}", b"")
    cluster.wait_for(lambda: cluster.read_node(f"/brokers/topics/{topic}") is None, "an end of the topic")
    cluster.wait_for(lambda: cluster.read_node(f"/admin/delete_topics/{topic}") is None, "an end of the mark")
    for each in cluster.brokers:
        cluster.wait_for(lambda each=each: each.partition_folder(topic, 0) is None, f"an end of it on {each}")


def test_a_state_that_was_changed_behind_the_controllers_back_heals(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, assignment={0: [1, 2, 3]})
    state = state_of(cluster, topic)
    cluster.store.set(STATE.format(topic, 0), json.dumps({**state, "isr": [1, 2], "leader_epoch": 7}).encode())
    note = json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0}]}).encode()
    cluster.store.create("/isr_change_notification/isr_change_", note, sequence=True)
    cluster.wait_for(
        lambda: (found := cluster.partition(topic)) is not None and found.leader_epoch >= 7, "the new epoch"
    )
    cluster.wait_for_isr(topic, 0, [1, 2, 3])
    cluster.wait_for(lambda: not cluster.store.get_children("/isr_change_notification"), "an end of the notification")


def test_a_broker_that_is_asked_to_stop_has_given_its_leaders_away_before(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, assignment={0: [3, 1, 2], 1: [3, 2, 1]})
    leaving = cluster.broker(3)
    leaving.stop()
    states = [state_of(cluster, topic, number) for number in (0, 1)]
    assert [state["leader"] for state in states] == [1, 2]
    assert [sorted(state["isr"]) for state in states] == [[1, 2], [1, 2]]  # type: ignore[call-overload]
    assert "Controlled shutdown request returned successfully" in leaving.logs
    leaving.start()
    cluster.wait_until_whole([topic])


def test_a_wiped_disk_takes_its_replicas_out_of_the_count(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, assignment={0: [2, 3]})
    second = cluster.broker(2)
    second.kill()
    cluster.wait_for_isr(topic, 0, [3])
    assert state_of(cluster, topic)["eligible_leader_replicas"] == [2]
    third = cluster.broker(3)
    third.kill()
    second.wipe()
    second.start()
    cluster.wait_for(lambda: "eligible_leader_replicas" not in state_of(cluster, topic), "an end of its claim")
    assert state_of(cluster, topic)["leader"] == -1, "it has nothing, though it was eligible"
    third.start()
    assert cluster.leader_of(topic).id == 3
    cluster.wait_until_whole([topic])
