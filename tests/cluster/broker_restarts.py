"""A command that restarts a broker of a test cluster, as `systemctl restart` does for a service.

    with restart_command(cluster) as command:
        subprocess.run(command.replace("{id}", "2"), shell=True, check=True)

The test's process owns the broker processes, so the command sends a request to a local port, and waits for the end.
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
    "import socket, sys; connection = socket.create_connection((sys.argv[1], int(sys.argv[2]))); "
    'connection.sendall(sys.argv[3].encode() + b"\\n"); sys.exit(connection.makefile().readline().strip() or None)'
)


@contextlib.contextmanager
def restart_command(cluster: Cluster) -> Iterator[str]:
    """A command line with the place-holder {id}; it ends when the broker serves again, or prints why it does not."""
    with socket.create_server((HOST, 0)) as server:
        threading.Thread(target=_serve, args=(server, cluster), daemon=True).start()
        yield f"{sys.executable} -c '{ASK}' {HOST} {server.getsockname()[1]} {{id}}"


def _serve(server: socket.socket, cluster: Cluster) -> None:
    with contextlib.suppress(OSError):  # the socket is closed at the end
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(f"{_restart(cluster, connection.makefile().readline())}\n".encode())


def _restart(cluster: Cluster, which: str) -> str:
    """Returns the error, or an empty text."""
    try:
        cluster.broker(int(which)).restart()
    except (BrokerError, ValueError, KeyError) as problem:
        return str(problem).replace("\n", " ") or "it failed"
    return ""
