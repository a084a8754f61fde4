"""The fork server: forked processes equal new Pythons, and end with their clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pipelines.running import wait_for

from ottla.pipelines.spark.processes import command_of
from ottla.pipelines.spark.workers.client import ADDRESS
from ottla.pipelines.spark.workers.starting import ForkServer

PROBE = """
import json, os, sys
import numpy
told = {
    "arguments": sys.argv[1:], "folder": os.getcwd(), "colour": os.environ.get("COLOUR"), "hash": hash("ottla"),
    "random": numpy.random.random(), "imported": "pyspark.worker" in sys.modules, "parent": os.getppid(),
    "name": __name__, "executable": sys.executable, "read": sys.stdin.readline(),
}
print(json.dumps(told))
print("a last word", file=sys.stderr)
sys.exit(7)
"""
WAITING = "import sys\nprint('here', __import__('os').getpid(), flush=True)\nsys.stdin.readline()\n"


@pytest.fixture(scope="module")
def server() -> ForkServer:
    return ForkServer()


def ask(server: ForkServer, folder: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    """As Spark starts Python."""
    return subprocess.Popen(
        [str(server.program), *words],
        cwd=folder,
        env={**os.environ, ADDRESS: str(server.address), "PYTHONHASHSEED": "0", **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def told(server: ForkServer, folder: Path, **environment: str) -> dict[str, object]:
    (folder / "probe.py").write_text(PROBE)
    asked = ask(server, folder, "-m", "probe", "one", "two words", COLOUR="red", **environment)
    out, errors = asked.communicate("a line\n", timeout=60)
    assert asked.returncode == 7, errors
    assert errors == "a last word\n"
    found: dict[str, object] = json.loads(out)
    return found


def test_a_process_is_what_a_new_python_would_be(server: ForkServer, tmp_path: Path) -> None:
    one, two = told(server, tmp_path), told(server, tmp_path)
    assert one["arguments"] == ["one", "two words"]
    assert (one["folder"], one["colour"], one["read"]) == (str(tmp_path), "red", "a line\n")
    assert (one["name"], one["executable"]) == ("__main__", sys.executable)
    assert (one["imported"], one["parent"]) == (True, server.process.pid)
    assert one["hash"] == two["hash"]
    assert one["random"] != two["random"]


def test_what_cannot_be_copied_is_started_as_usual(server: ForkServer, tmp_path: Path) -> None:
    for environment in ({"PYTHONHASHSEED": "1"}, {"OMP_NUM_THREADS": "3"}, {ADDRESS: str(tmp_path / "missing")}):
        found = told(server, tmp_path, **environment)
        assert (found["imported"], found["arguments"]) == (False, ["one", "two words"])
        assert found["parent"] != server.process.pid


def test_it_ends_with_whoever_asked(server: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(WAITING)
    asked = ask(server, tmp_path, "-m", "waiting")
    assert asked.stdout is not None
    pid = int(asked.stdout.readline().split()[1])
    assert pid != asked.pid
    asked.send_signal(signal.SIGKILL)
    asked.wait(60)
    wait_for(lambda: not command_of(pid), "the end of the process")


def test_all_ends_with_the_process_that_has_started_it(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(WAITING)
    server = ForkServer()
    asked = ask(server, tmp_path, "-m", "waiting")
    assert asked.stdout is not None
    assert asked.stdout.readline().startswith("here")
    assert server.process.stdin is not None
    server.process.stdin.close()  # as the system does when a process ends
    assert asked.stdin is not None
    asked.stdin.close()  # as a worker sees that Java has ended
    assert asked.wait(60) == 0
    assert server.process.wait(60) == 0
    assert not server.folder.exists()
