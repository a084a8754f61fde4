"""Three registries, four clients that register, and faults: no id twice, nothing lost, all nodes equal.

OTTLA_FAULTS_SCALE says how much of the full number of rounds is run.
"""

import json
import random
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from conformance.waiting import eventually
from conftest import ottla_command
from faults.cluster_rounds import rounds
from ottla.registry.election import SESSION_MS
from ottla.testing.cluster import Cluster

pytestmark = pytest.mark.faults
READY = re.compile(r"ottla registry ready on (http://\S+)")
TOPIC = "_schemas"
NODES = 3
CLIENTS = 4
SECONDS_MAX = 120.0


class RegistryNode:
    """A registry as a process that comes and goes."""

    def __init__(self, bootstrap: str) -> None:
        words = ["registry", "--bootstrap-server", bootstrap, "--port", "0"]
        self.process = subprocess.Popen([*ottla_command(), *words], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = READY.match(self.process.stdout.readline())
        assert found is not None
        self.url = found[1]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"content-type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=SECONDS_MAX) as answer:
            return json.load(answer)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Scene:
    """The nodes, and what clients were answered."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.nodes = [RegistryNode(cluster.bootstrap) for _ in range(NODES)]
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
                    self.complaints.append(f"nobody took {schema}")
                    return
                node = chance.choice(self.nodes)
                try:
                    answer = node.ask("POST", f"/subjects/s{client}-{number}/versions", {"schema": schema})
                except (OSError, ValueError):  # a node that is gone, or does not know who leads
                    time.sleep(0.05)
                else:
                    self.answered[schema] = answer["id"]
            self._check_everywhere(schema, chance)

    def _check_everywhere(self, schema: str, chance: random.Random) -> None:
        """Whoever was answered finds his schema on every node."""
        node = chance.choice(self.nodes)
        try:
            found = node.ask("GET", f"/schemas/ids/{self.answered[schema]}")["schema"]
        except urllib.error.HTTPError as refused:
            if refused.code == 404:
                self.complaints.append(f"{node.url} does not know {self.answered[schema]}")
        except (OSError, ValueError):
            return
        else:
            if found != schema:
                self.complaints.append(f"{node.url} says that {self.answered[schema]} is {found}, not {schema}")

    def wait_for_answers(self, count: int = CLIENTS) -> None:
        wanted = len(self.answered) + count
        assert eventually(lambda: len(self.answered) >= wanted or bool(self.complaints), SECONDS_MAX), (
            "nobody registers"
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
        while page := node.ask("GET", f"/schemas?offset={len(found)}"):
            found += page
        return found

    def close(self) -> None:
        for node in self.nodes:
            node.kill()


def kill_writer(scene: Scene) -> None:
    dying = scene.writer
    dying.kill()
    scene.wait_for_answers()
    scene.nodes[scene.nodes.index(dying)] = RegistryNode(scene.cluster.bootstrap)


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
