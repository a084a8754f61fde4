"""A command that restarts a broker of a test's cluster, as `systemctl restart` does for a service.

    with restart_command(cluster) as command:
        subprocess.run(command.replace("{id}", "2"), shell=True, check=True)

The processes belong to whoever runs the test, so the command only asks: at a port of this machine, until it is done.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator

from ottla.testing.child import BrokerError
from ottla.testing.cluster import Cluster
from ottla.testing.links import HOST

ASK = (
    "import socket, sys; door = socket.create_connection((sys.argv[1], int(sys.argv[2]))); "
    'door.sendall(sys.argv[3].encode() + b"\\n"); sys.exit(door.makefile().readline().strip() or None)'
)


@contextlib.contextmanager
def restart_command(cluster: Cluster) -> Iterator[str]:
    """A command line with the place-holder {id}; it ends when the broker serves again, or says why it does not."""
    with socket.create_server((HOST, 0)) as server:
        threading.Thread(target=_serve, args=(server, cluster), daemon=True).start()
        yield f"{sys.executable} -c '{ASK}' {HOST} {server.getsockname()[1]} {{id}}"


def _serve(server: socket.socket, cluster: Cluster) -> None:
    with contextlib.suppress(OSError):  # the socket is closed at the end
        while True:
            door, _ = server.accept()
            with door:
                door.sendall(f"{_restart(cluster, door.makefile().readline())}\n".encode())


def _restart(cluster: Cluster, which: str) -> str:
    """What went wrong, or nothing."""
    try:
        cluster.broker(int(which)).restart()
    except (BrokerError, ValueError, KeyError) as problem:
        return str(problem).replace("\n", " ") or "it failed"
    return ""
