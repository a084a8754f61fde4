"""Checks whether TCP ports of this machine can be bound."""

from __future__ import annotations

import socket
from collections.abc import Container
from typing import Final

LOCALHOST: Final = "127.0.0.1"


def bind_error(port: int, address: str = LOCALHOST) -> OSError | None:
    """The error that a server on this address would get; None if the port is free. The address "" is all interfaces."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as problem:
            return problem
        except (OverflowError, UnicodeError) as problem:
            return OSError(str(problem))
    return None


def is_free(port: int, address: str = LOCALHOST) -> bool:
    return bind_error(port, address) is None


def free_port(taken: Container[int] = ()) -> int:
    """A free port that is not among the taken ones, chosen by the kernel."""
    while True:
        with socket.socket() as probe:
            probe.bind((LOCALHOST, 0))
            port = int(probe.getsockname()[1])
        if port not in taken:
            return port
