"""The Java process of a session, from its start to the connection for PySpark.

PySpark can start it too, but blocks meanwhile: here start and connection are two steps.

Rules:
1. No Java is left behind: it exits when its standard input closes, and it is killed if it does not read that yet.
2. Java reports its port in a file, as it does for PySpark.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.pipelines.spark.class_path import ClassPath
from ottla.pipelines.spark.command import direct_command, script_command, script_variables
from ottla.pipelines.spark.places import SparkStartError

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

LOOK_SECONDS = 0.01
PORT_VARIABLE, SECRET_VARIABLE = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
# The program that builds Java's command line is a Java as well, and needs no tuning for long runs.
LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
# Spark classes under the names that PySpark uses.
OFTEN_USED = {
    "functions": "org.apache.spark.sql.functions",
    "org.apache.spark.sql.functions": "org.apache.spark.sql.functions",
    "PythonUtils": "org.apache.spark.api.python.PythonUtils",
    "PythonSQLUtils": "org.apache.spark.sql.api.python.PythonSQLUtils",
}
# Spark uses the Python of this name to search all installed packages for data sources, once per session, and each query
# and foreachBatch call has its own session. Ours is registered explicitly, so the name is invalid on purpose.
NO_DRIVER_PYTHON = {"PYSPARK_DRIVER_PYTHON": "/nonexistent/python"}


class StartingJava:
    """A Java that is starting. A session with other `settings` needs another one."""

    def __init__(
        self, place: ClassPath, settings: Mapping[str, str], more: Mapping[str, str], errors: Path | None
    ) -> None:
        """`more` is added to its environment; its output goes to `errors`, or to the terminal. Raises OSError."""
        self.settings = dict(settings)
        self.is_lean = place.is_lean
        self._folder = Path(tempfile.mkdtemp(prefix="ottla-java-"))
        self._told = self._folder / "port"
        environment = {"SPARK_LAUNCHER_OPTS": LAUNCHER_OPTIONS, **os.environ, **more, **NO_DRIVER_PYTHON}
        command = direct_command(place, Path(environment["JAVA_HOME"]), self.settings)
        if command is not None:
            environment |= script_variables(place.spark)
        environment |= {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._told)}
        with ExitStack() as open_files:
            output = None if errors is None else open_files.enter_context(errors.open("ab"))
            self.process = subprocess.Popen(  # # noqa: S603 (Spark's own script, or its equivalent)
                command or script_command(place.spark, self.settings),
                stdin=subprocess.PIPE,
                stderr=output,
                env=environment,
                preexec_fn=_ignore_interrupts,  # # noqa: PLW1509 (as in PySpark: Ctrl-C is handled by Python)
            )

    def __repr__(self) -> str:
        return f"<StartingJava {self.process.pid}>"

    def connect(self) -> JavaGateway:
        """Wait until it is ready. Raises SparkStartError if it exits before; an interrupt also ends Java."""
        from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 (slow import)

        try:
            port, secret = self._wait()
            os.environ |= {PORT_VARIABLE: str(port), SECRET_VARIABLE: secret}
            try:
                gateway: JavaGateway = launch_gateway()  # type: ignore[no-untyped-call]
            finally:
                for name in (PORT_VARIABLE, SECRET_VARIABLE):
                    os.environ.pop(name, None)
        except BaseException:
            self.kill()
            raise
        gateway.proc = self.process
        remember_classes(gateway)
        return gateway

    def kill(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self.process.kill()
        self.process.wait()

    def _wait(self) -> tuple[int, str]:
        while not self._told.is_file():
            if self.process.poll() is not None:
                raise SparkStartError("")
            time.sleep(LOOK_SECONDS)
        data = self._told.read_bytes()  # written atomically: two four-byte numbers, then the secret
        shutil.rmtree(self._folder, ignore_errors=True)
        return int.from_bytes(data[:4], "big"), data[8:].decode("utf-8")


def remember_classes(gateway: JavaGateway) -> None:
    """Caches Java class lookups. For every column PySpark asks Java for `functions` and its `col`: a third of all
    calls of a plan, and for a name without package Java searches all jars. The answers never change."""
    from py4j.java_gateway import JavaClass, JavaMember  # noqa: PLC0415 (slow import)

    class Remembered(JavaClass):  # type: ignore[misc]
        """Only unknown names are looked up."""

        def __getattr__(self, name: str) -> object:
            found = super().__getattr__(name)
            if isinstance(found, JavaMember):
                self.__dict__[name] = found
            return found

    for name, whole in OFTEN_USED.items():
        gateway.jvm.__dict__[name] = Remembered(whole, gateway._gateway_client)


def end(gateway: JavaGateway) -> None:
    """Java exits when its standard input closes; writing a class archive may take it some more seconds in the
    background."""
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None and process.stdin is not None:
        process.stdin.close()


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
