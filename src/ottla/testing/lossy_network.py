"""A network that loses, delays and reorders real packets: namespaces joined by TUN devices and a forwarder.

    from ottla.testing.lossy_network import LossyNetwork

    with LossyNetwork() as network:
        network.set(loss=0.01, delay_ms=10)          # both ways: 20 ms there and back
        with network.inside(1):
            broker = Broker({"listeners": f"PLAINTEXT://{network.address(1)}:9092"}).start()
        with network.inside(2):
            consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, ...})
        network.set(1, 2, loss=1.0)                  # nothing from 1 gets to 2 any more
        network.set(1, 2, loss=0.0)

Rules:
1. Hosts are 1, 2, ... Processes and threads that start inside one stay there, including threads of librdkafka.
2. It needs Linux, root and /dev/net/tun; an error says what is missing.
3. The congestion control of the hosts is `cubic`, Linux's default, whatever this machine uses. It is set by a route,
   because a namespace's default may only be one that the machine allows to all users.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

NETWORK = "10.77.0"
CONGESTION_CONTROL = "cubic"
CLONE_NEWNET = 0x40000000
STOP_SECONDS_MAX = 10.0


class NetworkError(Exception):
    """This machine cannot create such a network."""


class Counts(NamedTuple):
    """Counts of packets of wire size in one direction since the start."""

    carried: int
    lost: int
    reordered: int
    carried_bytes: int


class LossyNetwork:
    """Some hosts, each connected to all others. A context manager."""

    def __init__(self, hosts: int = 2, seed: int = 1) -> None:
        self.hosts = range(1, hosts + 1)
        command = [sys.executable, "-P", "-m", "ottla.testing.lossy_forwarder", str(hosts), str(seed)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)  # noqa: S603 (fixed arguments)
        self._namespaces: dict[int, int] = {}
        self._lock = threading.Lock()
        try:
            answer = self._read_answer()
            if "problem" in answer:
                raise NetworkError(f"a lossy network cannot be made: {answer['problem']}")
            for host, namespace in zip(self.hosts, answer["namespaces"], strict=True):
                self._namespaces[host] = os.open(f"/proc/{self._process.pid}/fd/{namespace}", os.O_RDONLY)
                self.control_congestion(host, CONGESTION_CONTROL)
        except BaseException:
            self.close()
            raise

    def address(self, host: int) -> str:
        assert host in self.hosts
        return f"{NETWORK}.{host}"

    @contextlib.contextmanager
    def inside(self, host: int) -> Iterator[None]:
        """Moves this thread to that host, with all sockets, threads and processes that it creates meanwhile."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _enter(self._namespaces[host])
            try:
                yield
            finally:
                _enter(before)
        finally:
            os.close(before)

    def control_congestion(self, host: int, algorithm: str) -> None:
        """For all sockets of that host without a setting of their own, from their next connection on."""
        route = ["ip", "route", "replace", f"{NETWORK}.0/24", "dev", "lossy0", "src", self.address(host)]
        with self.inside(host):
            done = subprocess.run([*route, "congctl", algorithm], capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise NetworkError(f"no route with {algorithm} can be made: {done.stderr.strip()}")

    def sysctl(self, host: int, name: str, value: str) -> None:
        """Set a parameter of that host's kernel."""
        with self.inside(host):
            Path("/proc/sys", *name.split(".")).write_text(value)

    def set(self, source: int | None = None, target: int | None = None, **settings: float) -> None:
        """Change `loss` and `reorder` (shares of the packets), `delay_ms` or `bytes_per_second`, from now on.

        None is every host. Settings that are not given stay as they are.
        """
        self._send(
            [
                {"source": one, "target": other, **settings}
                for one in self.hosts
                for other in self.hosts
                if one != other and source in (None, one) and target in (None, other)
            ]
        )

    def counts(self, source: int, target: int) -> Counts:
        for answer in self._send([]):
            if (answer["source"], answer["target"]) == (source, target):
                return Counts(*(answer[name] for name in Counts._fields))
        raise KeyError((source, target))

    def close(self) -> None:
        for namespace in self._namespaces.values():
            os.close(namespace)
        self._namespaces.clear()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait(STOP_SECONDS_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, changes: list[dict[str, Any]]) -> Any:
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(json.dumps(changes).encode() + b"\n")
            self._process.stdin.flush()
            return self._read_answer()

    def _read_answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise NetworkError("the forwarder of the lossy network has ended")
        return json.loads(line)

    def __repr__(self) -> str:
        return f"<LossyNetwork {len(self.hosts)} hosts, forwarder {self._process.pid}>"


def _enter(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
