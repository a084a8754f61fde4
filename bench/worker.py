"""Runs a load in a separate process, with its own interpreter lock and memory.

The parent passes a function name and its arguments; the child calls it and sends back the result. A function that other
processes wait for calls its first argument when it is ready, and wait_ready() returns then.
"""

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import Any, Self

from bench.child import start_child, stop_child
from bench.errors import BenchError
from bench.paths import PROJECT

STOP_SECONDS_MAX = 5.0


class Worker:
    """One load in its own process; used as a context manager it never outlives its block."""

    def __init__(self, function: Callable[..., Any], *arguments: Any, tells_ready: bool = False) -> None:
        self.name = f"{function.__module__}:{function.__qualname__}"
        self._connection, child = Pipe()
        command = [sys.executable, "-m", "bench.worker", str(child.fileno())]
        self._process = start_child(command, cwd=PROJECT, pass_fds=[child.fileno()])
        child.close()
        self._connection.send((function.__module__, function.__qualname__, arguments, tells_ready))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Worker {self.name} pid {self._process.pid}, exit code {self._process.poll()}>"

    def wait_ready(self, timeout_s: float) -> None:
        kind, value = self._next_message(timeout_s)
        if kind != "ready":
            raise BenchError(f"{self.name} ended before it was ready: {value}")

    def result(self, timeout_s: float) -> Any:
        kind, value = self._next_message(timeout_s)
        if kind != "result":
            raise BenchError(f"{self.name}: {value}")
        return value

    def stop(self) -> None:
        self._connection.close()
        stop_child(self._process, STOP_SECONDS_MAX)

    def _next_message(self, timeout_s: float) -> tuple[str, Any]:
        if not self._connection.poll(timeout_s):
            raise BenchError(f"{self.name} gave no result within {timeout_s:.0f} s")
        try:
            kind, value = self._connection.recv()
        except EOFError:
            raise BenchError(f"{self.name} died, exit code {self._process.wait(STOP_SECONDS_MAX)}") from None
        return kind, value


def run_apart(timeout_s: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls the function in a process of its own and returns its result."""
    with Worker(function, *arguments) as worker:
        return worker.result(timeout_s)


def _child_main(connection: Connection) -> None:
    module, name, arguments, tells_ready = connection.recv()
    if tells_ready:
        arguments = (lambda: connection.send(("ready", None)), *arguments)
    try:
        function = getattr(importlib.import_module(module), name)
        connection.send(("result", function(*arguments)))
    except BaseException:  # noqa: BLE001  # whatever it was, the parent must see it
        connection.send(("failed", traceback.format_exc(limit=-4)))
    os._exit(0)  # client libraries leave threads behind that may wait for minutes


if __name__ == "__main__":
    _child_main(Connection(int(sys.argv[1])))
