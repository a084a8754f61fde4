"""Apache Kafka: several KRaft nodes, to stand beside a cluster of ours.

Each is broker and controller in one process, as in its quick start; or, as its pages have it for production, brokers
have a controller of their own, which is node 0 and is left alone.
"""

import shutil
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Self

from bench.broker_process import HOST, SHARED_SETTINGS, free_port, properties, runs_folder
from bench.child import start_child, stop_child
from bench.errors import BenchError
from bench.kafka_process import FORMAT_SECONDS_MAX, HEAP_OPTIONS, LOG_OPTION, PERFORMANCE_OPTIONS, kafka_jars
from bench.raw_client import Target, metadata_is_answered
from ottla.testing.lossy_network import LossyNetwork

START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 60.0
POLL_SECONDS = 0.05


class KafkaNode:
    """One of them. `kill()` and `stop()` keep its data, `start()` brings it back."""

    def __init__(self, node_id: int, folder: Path, host: str = HOST) -> None:
        self.id = node_id
        self.host = host
        self.folder = folder
        self.port, self.controller_port = free_port(), free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._cluster_id = ""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def data_folder(self) -> Path:
        return self.folder / "data"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def prepare(self, cluster_id: str, settings: dict[str, str]) -> None:
        self.data_folder.mkdir(parents=True)
        self._properties.write_text(properties(settings))
        self._cluster_id = cluster_id
        self._format()

    def wipe(self) -> None:
        """An empty disk. The metadata log goes with it, and the node gets it again from the others."""
        shutil.rmtree(self.data_folder)
        self.data_folder.mkdir()
        self._format()

    def _format(self) -> None:
        cluster_id = self._cluster_id
        arguments = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._properties)]
        command = ["java", "-Xmx256M", LOG_OPTION, "-cp", f"{kafka_jars()}/*", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_SECONDS_MAX, check=False)
        if done.returncode != 0:
            raise BenchError(f"formatting a data folder of Apache Kafka failed: {(done.stdout + done.stderr)[-1000:]}")

    def launch(self) -> None:
        options = [*HEAP_OPTIONS, *PERFORMANCE_OPTIONS, LOG_OPTION, f"-Dkafka.logs.dir={self.folder}"]
        command = ["java", *options, "-cp", f"{kafka_jars()}/*", "kafka.Kafka", str(self._properties)]
        with (self.folder / "output").open("ab") as output:
            self.process = start_child(command, cwd=self.folder, output=output)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not metadata_is_answered(Target(self.host, self.port, self.pid)):
            if not self.is_running or time.monotonic() > deadline:
                raise BenchError(f"node {self.id} of Apache Kafka does not start: {self.folder / 'output'}")
            time.sleep(POLL_SECONDS)

    def start(self) -> None:
        self.launch()
        self.wait_until_ready()

    def stop(self) -> None:
        if self.process is not None:
            stop_child(self.process, STOP_SECONDS_MAX)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def __repr__(self) -> str:
        return f"<KafkaNode {self.id} {self.address} {'alive' if self.is_running else 'stopped'}>"


class KafkaCluster:
    """`with KafkaCluster(3) as cluster:` starts them; three replicas and two in sync are the defaults.

    With a `network` node N is on its host N.
    """

    def __init__(
        self,
        nodes: int = 3,
        settings: dict[str, str] | None = None,
        network: LossyNetwork | None = None,
        *,
        has_own_controller: bool = False,
    ) -> None:
        self.network = network
        self.folder = runs_folder() / f"kafka-cluster-{uuid.uuid4().hex[:8]}"
        self.settings = settings or {}
        self.nodes = [
            KafkaNode(number, self.folder / f"node-{number}", network.address(number) if network else HOST)
            for number in range(1, nodes + 1)
        ]
        self.controllers = [KafkaNode(0, self.folder / "controller")] if has_own_controller else self.nodes

    def __enter__(self) -> Self:
        try:
            cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")  # no option
            for node in self._processes:
                node.prepare(cluster_id, self._settings(node))
            for node in self._processes:
                with self._place(node):
                    node.launch()
            for node in self.nodes:
                with self._place(node):
                    node.wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _place(self, node: KafkaNode) -> AbstractContextManager[None]:
        return self.network.inside(node.id) if self.network is not None else nullcontext()

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def replica_folders(self, topic: str, partition: int) -> dict[int, Path]:
        """The folder of each replica of a partition, by broker id."""
        folders = {node.id: node.data_folder / f"{topic}-{partition}" for node in self.nodes}
        return {node_id: folder for node_id, folder in folders.items() if folder.is_dir()}

    @property
    def _processes(self) -> list[KafkaNode]:
        return [*dict.fromkeys((*self.controllers, *self.nodes))]

    def close(self) -> None:
        for node in self._processes:
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _settings(self, node: KafkaNode) -> dict[str, str]:
        voters = ",".join(f"{each.id}@{each.host}:{each.controller_port}" for each in self.controllers)
        listeners = {}
        if node in self.nodes:
            listeners["broker"] = f"PLAINTEXT://{node.address}"
        if node in self.controllers:
            listeners["controller"] = f"CONTROLLER://{node.host}:{node.controller_port}"
        advertised = {"advertised.listeners": f"PLAINTEXT://{node.address}"} if node in self.nodes else {}
        replicas = str(min(3, len(self.nodes)))
        in_sync = str(max(1, min(3, len(self.nodes)) - 1))
        return {
            **advertised,
            "process.roles": ",".join(listeners),
            "node.id": str(node.id),
            "controller.quorum.voters": voters,
            "listeners": ",".join(listeners.values()),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(node.data_folder),
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
            **SHARED_SETTINGS,
            **self.settings,
        }

    def __repr__(self) -> str:
        return f"<KafkaCluster {self.nodes}>"
