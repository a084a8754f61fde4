"""The drill of every Kafka course, with the commands of every Kafka course: three brokers, one topic, kill the leader.

Everything goes through the tools as a person types them; only the kill is sent by the test.
"""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ottla.testing.cluster import WAIT_SECONDS_MAX, Cluster

MESSAGES = ["my test message 1", "my test message 2"]


def tool(name: str, *arguments: str, text: str = "", seconds_max: float = 60.0) -> str:
    script = Path(sys.executable).with_name(name)
    done = subprocess.run(
        [str(script), *arguments], input=text, capture_output=True, text=True, timeout=seconds_max, check=False
    )
    assert done.returncode == 0, f"{name} {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def described(bootstrap: str, topic: str) -> tuple[int, list[int], list[int]]:
    """Leader, replicas and those in sync of the only partition, as kafka-topics.sh tells them."""
    text = tool("kafka-topics.sh", "--bootstrap-server", bootstrap, "--describe", "--topic", topic)
    found = re.search(r"Partition: 0\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S*)", text)
    assert found, text
    leader, replicas, isr = found.groups()
    numbers = [[int(each) for each in words.split(",") if each] for words in (replicas, isr)]
    return int(leader) if leader != "none" else -1, numbers[0], numbers[1]


def described_without(dead: int, bootstrap: str, topic: str) -> tuple[int, list[int], list[int]]:
    """The same, once the broker that answers knows the new leader: the survivors learn of it one after the other."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        found = described(bootstrap, topic)
        if (found[0] != dead and dead not in found[2]) or time.monotonic() > deadline:
            return found


def read_from_the_beginning(bootstrap: str, topic: str) -> list[str]:
    text = tool(
        "kafka-console-consumer.sh",
        "--bootstrap-server",
        bootstrap,
        "--from-beginning",
        "--topic",
        topic,
        "--max-messages",
        str(len(MESSAGES)),
        "--timeout-ms",
        "30000",
    )
    return text.splitlines()


@pytest.mark.parametrize("replicas", [3])
def test_the_leader_is_killed_and_the_messages_are_still_there(cluster: Cluster, replicas: int) -> None:
    bootstrap, topic = cluster.bootstrap, "my-replicated-topic"
    tool(
        "kafka-topics.sh", "--create", "--bootstrap-server", bootstrap, "--replication-factor", str(replicas),
        "--partitions", "1", "--topic", topic,
    )  # fmt: skip
    leader, assigned, isr = described(bootstrap, topic)
    assert sorted(assigned) == sorted(isr) == [1, 2, 3]
    assert leader == assigned[0]
    lines = "".join(f"{message}\n" for message in MESSAGES)
    tool("kafka-console-producer.sh", "--bootstrap-server", bootstrap, "--topic", topic, text=lines)
    assert read_from_the_beginning(bootstrap, topic) == MESSAGES

    cluster.broker(leader).kill()
    survivors = ",".join(broker.bootstrap_servers for broker in cluster.live_brokers)
    cluster.wait_for_leader(topic, other_than=cluster.broker(leader))
    cluster.wait_for_isr(topic, 0, {1, 2, 3} - {leader})
    new_leader, assigned, isr = described_without(leader, survivors, topic)
    assert new_leader in {1, 2, 3} - {leader}
    assert sorted(assigned) == [1, 2, 3]
    assert sorted(isr) == sorted({1, 2, 3} - {leader})
    assert read_from_the_beginning(survivors, topic) == MESSAGES

    cluster.broker(leader).start()
    cluster.wait_for_isr(topic, 0, [1, 2, 3])
    assert read_from_the_beginning(bootstrap, topic) == MESSAGES
