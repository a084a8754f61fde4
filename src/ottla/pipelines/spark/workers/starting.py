"""The driver's side of the fork server: starts it, and sets the Python command for Spark.

Rules:
1. One server serves all sessions of a process, and ends with it. It imports after Java has started, in parallel to
   Spark.
2. Only if workers run on this machine as our own children, and only on Linux, where forking is safe. A failure here
   costs only time.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from ottla.pipelines.spark.workers import client

SWITCH = "OTTLA_SPARK_FORK_SERVER_ENABLED"  # 0 = every worker is a new Python
DISABLED = "0"
# As Spark sets them for its workers: one thread per task, the same string hashes everywhere.
SETTINGS = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "YES"}
# Prevents a background thread of Arrow's allocator: a process with two threads cannot fork safely.
SETTINGS["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
SCRIPT = """\
#!/bin/sh
exec {python} -I -S {client} {python} "$@"
"""


class ForkServer:
    """A running server, its folder, and the program that replaces Python for Spark."""

    def __init__(self) -> None:
        """Raises OSError. The server removes the folder when it ends."""
        self.folder = Path(tempfile.mkdtemp(prefix="ottla-workers-"))
        self.program = self.folder / "python"
        self.address = self.folder / "socket"
        self.program.write_text(
            SCRIPT.format(python=shlex.quote(sys.executable), client=shlex.quote(str(Path(client.__file__)))),
            encoding="utf-8",
        )
        self.program.chmod(0o700)
        with socket.socket(socket.AF_UNIX) as listener:  # listening before the first request
            listener.bind(str(self.address))
            listener.listen()
            self.process = subprocess.Popen(  # # noqa: S603 (our own module)
                [sys.executable, "-m", f"{__package__}.server", str(listener.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=SETTINGS | os.environ,
                pass_fds=[listener.fileno()],
                process_group=0,
            )

    def __repr__(self) -> str:
        return f"<ForkServer {self.process.pid} in {self.folder}>"

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def get_ready(self) -> None:
        """Called when Java has started and a core is free. Idempotent."""
        assert self.process.stdin is not None
        with suppress(OSError):  # the server has exited: workers start without it
            self.process.stdin.write(b"+")
            self.process.stdin.flush()


_servers: list[ForkServer] = []  # of this process: at most one


def fork_server() -> ForkServer | None:
    """The server of this process, started on demand; None if unavailable."""
    if sys.platform != "linux" or os.environ.get(SWITCH) == DISABLED:
        return None
    if _servers and not _servers[0].is_running:
        _servers.clear()
    if not _servers:
        try:
            _servers.append(ForkServer())
        except OSError:
            return None
    return _servers[0]


def get_ready() -> None:
    """The server of this process, if any, imports now."""
    for server in _servers:
        server.get_ready()


def python_of_workers() -> tuple[str, dict[str, str]]:
    """The program for PYSPARK_PYTHON, and its environment variables."""
    server = fork_server()
    if server is None:
        return sys.executable, {}
    return str(server.program), {client.ADDRESS: str(server.address)}


def is_ours(program: str) -> bool:
    """Whether PYSPARK_PYTHON was not chosen by the user: it is unset, or set by an earlier local session."""
    return not program or program == sys.executable or program in [str(server.program) for server in _servers]
