"""A machine of a larger cluster: `ottla broker --processes N`, as systemd would run it."""

import os
import random
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.conftest import ottla_command

from ottla.cli.ports import is_free
from ottla.cli.processes.broker_processes import command_words
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.pipelines.spark.processes import children_of

SECONDS_MAX = 60.0
SETTINGS = {
    "zookeeper.session.timeout.ms": "9000",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "controlled.shutdown.retry.backoff.ms": "500",
}


def ports_in_a_row(count: int) -> int:
    """The first of a range of free ports outside the kernel's range of ephemeral ports."""
    while True:
        port = random.randrange(15_000, 30_000)
        if all(is_free(port + index) for index in range(count)):
            return port


class Machine:
    """The supervisor, and what it and its brokers have said."""

    def __init__(self, folder: Path, zookeeper: str, first_id: int, count: int, **settings: str) -> None:
        self.folder = folder
        self.output = folder / "output"
        self.ids = list(range(first_id, first_id + count))
        self.port = ports_in_a_row(count)
        self.metrics_port = ports_in_a_row(count + 1)
        self.settings = {
            "broker.id": str(first_id),
            "zookeeper.connect": zookeeper,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(folder / "data"),
            "ottla.log.dir": str(folder / "logs"),
            "ottla.metrics.port": str(self.metrics_port),
            **SETTINGS,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.port + index}" for index in range(len(self.ids)))

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def launch(self) -> "Machine":
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))
        words = ["broker", "--config", str(config), "--processes", str(len(self.ids))]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*ottla_command(), *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        return self

    def start(self) -> "Machine":
        self.launch()
        for broker in self.ids:
            self.wait_for(rf"^ottla broker {broker} ready on 127.0.0.1:{self.port + broker - self.ids[0]}$")
        return self

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def wait_for(self, pattern: str, times: int = 1) -> None:
        def is_said() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.text()
            return len(re.findall(pattern, self.text(), re.MULTILINE)) >= times

        wait_until(is_said, lambda: f"no {pattern!r} in:\n{self.text()}")

    def pids(self) -> dict[int, int]:
        """The brokers that there are now, by id."""
        found = {}
        for pid in children_of(self.pid):
            words = command_words(Path(f"/proc/{pid}"))
            ids = [int(word.removeprefix("broker.id=")) for word in words if word.startswith("broker.id=")]
            found.update(dict.fromkeys(ids, pid))
        return found

    def kill(self, *brokers: int) -> None:
        pids = self.pids()
        for broker in brokers:
            os.kill(pids[broker], signal.SIGKILL)

    def up(self) -> dict[int, int]:
        """Who of them is there, as the page for all says."""
        rows = re.findall(r'^ottla_process_up\{broker="(\d+)",.*\} (\d)$', self.page("/metrics"), re.MULTILINE)
        return {int(broker): int(value) for broker, value in rows}

    def page(self, path: str) -> str:
        address = f"http://127.0.0.1:{self.metrics_port}{path}"
        try:
            with urllib.request.urlopen(address, timeout=SECONDS_MAX) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as refusal:
            return f"{refusal.code} {refusal.read().decode()}"

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(SECONDS_MAX)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def wait_until(look: Callable[[], bool], words: Callable[[], str]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not look():
        assert time.monotonic() < deadline, words()
        time.sleep(0.02)


def rows_of(bootstrap: str, topic: str) -> list[tuple[int, list[int], list[int]]]:
    """Leader, replicas and in-sync replicas of each partition."""
    with Client(bootstrap) as client:
        return [(each.leader, each.replicas, sorted(each.isr)) for each in Admin(client).topic(topic).partitions]


def wait_until_whole(bootstrap: str, topic: str) -> None:
    def is_whole() -> bool:
        try:
            rows = rows_of(bootstrap, topic)
        except ClientError:
            return False  # no broker is back yet
        return all(leader >= 0 and sorted(replicas) == isr for leader, replicas, isr in rows)

    wait_until(is_whole, lambda: f"{topic} is not whole: {rows_of(bootstrap, topic)}")
