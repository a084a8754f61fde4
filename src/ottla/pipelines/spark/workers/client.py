"""The program that Spark starts as Python: it requests a process from the fork server and represents it.

A standalone program, run without site-packages in a hundredth of a second: it must not import ottla.

    python -I -S client.py PYTHON -m pyspark.daemon pyspark.worker

Rules:
1. The new process gets this one's arguments, environment, folder, standard input, output and error.
2. It ends when this one does, and this one ends with its exit code.
3. Without a fork server, or if it refuses, this process becomes PYTHON: everything works, only more slowly.
"""

import json
import os
import socket
import sys

ADDRESS = "OTTLA_SPARK_FORK_SERVER"  # path of its socket
ACCEPTED = b"+"
STANDARD = (0, 1, 2)


def main(python: str, arguments: list[str]) -> int:
    server = ask(arguments)
    if server is None:
        os.execv(python, [python, *arguments])  # # noqa: S606 (the user's own Python)
    os.close(0)  # the new process owns standard input: its writer must see when it closes
    code = server.recv(1)
    return code[0] if code else 1


def ask(arguments: list[str]) -> "socket.socket | None":
    """A connection to a server that has forked the process; None if that failed."""
    address = os.environ.get(ADDRESS)
    if not address:
        return None
    server = socket.socket(socket.AF_UNIX)
    wanted = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
    message = json.dumps(wanted).encode("ascii")
    try:
        server.connect(address)
        socket.send_fds(server, [len(message).to_bytes(4, "big")], STANDARD)
        server.sendall(message)
        if server.recv(1) == ACCEPTED:
            return server
    except OSError:
        pass
    server.close()
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
