"""Three registries, four clients that register, and faults: no id twice, nothing lost, all nodes equal.

OTTLA_FAULTS_SCALE says how much of the full number of rounds is run.
"""

import json
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.conformance.registry_node import RegistryNode
from tests.conformance.waiting import eventually
from tests.faults.cluster_rounds import rounds

from ottla.registry.election import SESSION_MS
from ottla.testing.cluster import Cluster

pytestmark = pytest.mark.faults
TOPIC = "_schemas"
NODES = 3
CLIENTS = 4
SECONDS_MAX = 120.0


class Scene:
    """The nodes, and what clients were answered."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.nodes = [RegistryNode(cluster.bootstrap, TOPIC) for _ in range(NODES)]
        self.answered: dict[str, int] = {}  # schema -> id
        self.complaints: list[str] = []
        self._is_ending = threading.Event()
        self._threads = [threading.Thread(target=self._register, args=(number,)) for number in range(CLIENTS)]

    @property
    def writer(self) -> RegistryNode:
        return min(self.nodes, key=lambda node: node.url)

    @contextmanager
    def load(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._is_ending.set()
            for thread in self._threads:
                thread.join()

    def _register(self, client: int) -> None:
        chance = random.Random(client)
        for number in range(1_000_000):
            if self._is_ending.is_set():
                return
            schema = json.dumps({"type": "fixed", "name": f"c{client}n{number}", "size": 1}, separators=(",", ":"))
            deadline = time.monotonic() + SECONDS_MAX
            while schema not in self.answered:
                if time.monotonic() > deadline:
                    self.complaints.append(f"no node accepted {schema}")
                    return
                node = chance.choice(self.nodes)
                try:
                    status, answer = node.ask("POST", f"/subjects/s{client}-{number}/versions", {"schema": schema})
                except (OSError, ValueError):  # a node that is gone
                    status, answer = 0, None
                if status == 200:
                    self.answered[schema] = answer["id"]
                else:  # it does not know the leader
                    time.sleep(0.05)
            self._check_everywhere(schema, chance)

    def _check_everywhere(self, schema: str, chance: random.Random) -> None:
        """A registered schema is found on every node."""
        node = chance.choice(self.nodes)
        try:
            status, answer = node.ask("GET", f"/schemas/ids/{self.answered[schema]}")
        except (OSError, ValueError):
            return
        if status == 404 or (status == 200 and answer["schema"] != schema):
            self.complaints.append(f"{node.url} says that {self.answered[schema]} is {answer}, not {schema}")

    def wait_for_answers(self, count: int = CLIENTS) -> None:
        wanted = len(self.answered) + count
        assert eventually(lambda: len(self.answered) >= wanted or bool(self.complaints), SECONDS_MAX), (
            "no schema is registered"
        )

    def check(self) -> None:
        assert not self.complaints, self.complaints[:5]
        assert len(set(self.answered.values())) == len(self.answered), "an id was given twice"
        for node in self.nodes:
            known = {item["schema"]: item["id"] for item in self._all_of(node)}
            lost = {schema: number for schema, number in self.answered.items() if known.get(schema) != number}
            assert not lost, (node.url, list(lost.items())[:5])
        assert len({json.dumps(self._all_of(node)) for node in self.nodes}) == 1, "nodes differ"

    def _all_of(self, node: RegistryNode) -> list[Any]:
        found: list[Any] = []
        while page := node.ask("GET", f"/schemas?offset={len(found)}")[1]:
            found += page
        return found

    def close(self) -> None:
        for node in self.nodes:
            node.kill()


def kill_writer(scene: Scene) -> None:
    dying = scene.writer
    dying.kill()
    scene.wait_for_answers()
    scene.nodes[scene.nodes.index(dying)] = RegistryNode(scene.cluster.bootstrap, TOPIC)


def pause_writer(scene: Scene) -> None:
    """For two session times: when it wakes it believes that it still leads."""
    paused = scene.writer
    paused.process.send_signal(signal.SIGSTOP)
    time.sleep(2 * SESSION_MS / 1000)
    paused.process.send_signal(signal.SIGCONT)


def kill_leader_of_the_topic(scene: Scene) -> None:
    leader = scene.cluster.leader_of(TOPIC, 0)
    leader.kill()
    scene.wait_for_answers()
    leader.start()
    scene.cluster.wait_until_whole()


@pytest.mark.parametrize("fault", [kill_writer, pause_writer, kill_leader_of_the_topic])
def test_registries_outlive(cluster_factory: Callable[..., Cluster], fault: Callable[[Scene], None]) -> None:
    scene = Scene(cluster_factory())
    try:
        with scene.load():
            for _ in range(rounds(20)):
                scene.wait_for_answers()
                fault(scene)
                scene.wait_for_answers()
        print(f"{fault.__name__}: {len(scene.answered)} schemas registered")
        scene.check()
    finally:
        scene.close()
