"""A local Spark Connect server: a Spark that clients reach over gRPC, sc://127.0.0.1:PORT.

with ConnectServer(folder) as server:
    spark = start_session("job", server.master)
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from ottla.pipelines.spark.class_archive import archive_options
from ottla.pipelines.spark.class_path import ClassPath
from ottla.pipelines.spark.java import find_java, option_text
from ottla.pipelines.spark.masters import parse_master
from ottla.pipelines.spark.places import find_spark
from ottla.pipelines.spark.processes import HOST, JavaProcess
from ottla.pipelines.spark.settings import default_settings, machine_memory

READY = re.compile(r"Spark Connect server started at")
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectServer:
    """`settings` are Spark's; `behind` is the master on which the server itself runs its jobs."""

    def __init__(self, folder: Path, behind: str = "local[2]", settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.port = free_port()
        self._behind = parse_master(behind)
        self._settings = dict(settings or {})
        self._process = JavaProcess("Spark Connect server", folder / "connect.log")

    def __repr__(self) -> str:
        return f"ConnectServer({self.master}, {self._process!r})"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_failure: object) -> None:
        self.close()

    @property
    def master(self) -> str:
        return f"sc://{HOST}:{self.port}"

    def start(self) -> Self:
        """Return when it serves. Raises SparkStartError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        spark, java = find_spark(), find_java()
        settings = default_settings(self._behind, self._settings, machine_memory())
        settings["spark.driver.defaultJavaOptions"] = option_text(
            archive_options(java, ClassPath(spark), records=False)
        )
        settings |= self._settings
        settings |= {"spark.connect.grpc.binding.address": HOST, "spark.connect.grpc.binding.port": str(self.port)}
        given = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        submit = ["org.apache.spark.deploy.SparkSubmit", "--class", SERVER, "--master", self._behind.url]
        self._process.start(spark, java, [*submit, *given, "spark-internal"], {})
        try:
            self._process.wait_for(READY)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        self._process.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
