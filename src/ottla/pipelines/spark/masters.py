"""Spark masters: values of --master, parsed and checked before anything is started."""

from __future__ import annotations

import os
import re
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ottla.pipelines.spark.places import SparkStartError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = re.compile(r"local(\[(?P<cores>\*|\d+)(,\s*(?P<failures>\d+))?\])?")
ATTEMPTS = 4  # task attempts; Spark's default on clusters, while a local master would not retry
CONNECT_PORT = 15002  # Spark's default
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
FORMS = "local[*], local[N], spark://HOST:PORT, sc://HOST:PORT (Spark Connect), k8s://https://HOST:PORT or yarn"


class Kind(Enum):
    LOCAL = "this machine"
    STANDALONE = "a standalone cluster"
    CONNECT = "Spark Connect"
    KUBERNETES = "Kubernetes"
    YARN = "YARN"


ADDRESS = r"[^\s/:,;]+|\[[0-9a-fA-F:]+\]"
ADDRESSES = {
    Kind.STANDALONE: re.compile(rf"({ADDRESS}):\d{{1,5}}(,({ADDRESS}):\d{{1,5}})*"),
    Kind.CONNECT: re.compile(rf"({ADDRESS})(:\d{{1,5}})?(/.*)?"),
    Kind.KUBERNETES: re.compile(r"\S+"),
}


class Master(NamedTuple):
    """`url` is passed to Spark; `cores` is their number, if known."""

    kind: Kind
    url: str
    cores: int | None = None

    @property
    def is_near(self) -> bool:
        """Everything runs on this machine, so no address must be reachable from elsewhere."""
        return self.kind is Kind.LOCAL or any(f"//{host}:" in self.url for host in LOOPBACK)

    def addresses(self) -> list[tuple[str, int]]:
        """The addresses; a standalone cluster may have several masters, spark://one:7077,two:7077."""
        written = self.url.partition("://")[2].partition("/")[0]
        found = (re.fullmatch(rf"({ADDRESS})(?::(\d+))?", text) for text in written.split(","))
        return [(match[1].strip("[]"), int(match[2] or CONNECT_PORT)) for match in found if match]


def parse_master(text: str | None) -> Master:
    """Raises SparkStartError for an invalid master."""
    written = (text or "local[*]").strip()
    local = LOCAL.fullmatch(written)
    if local:
        return _local(local["cores"], local["failures"])
    if written == "yarn":
        return _with_hadoop(Master(Kind.YARN, written))
    for start, kind in (("spark://", Kind.STANDALONE), ("sc://", Kind.CONNECT), ("k8s://", Kind.KUBERNETES)):
        if written.startswith(start) and ADDRESSES[kind].fullmatch(written.removeprefix(start)):
            return Master(kind, written)
    raise SparkStartError(f"{written!r} is not a master: write {FORMS}")


def _local(cores: str | None, failures: str | None) -> Master:
    """As many task attempts as on a cluster: a broker restart must not end a query."""
    count = (os.cpu_count() or 1) if cores == "*" else int(cores or 1)
    if count < 1:
        raise SparkStartError("local[0] has no core to run on: write local[1] or more")
    return Master(Kind.LOCAL, f"local[{count},{int(failures or ATTEMPTS)}]", count)


def _with_hadoop(master: Master) -> Master:
    if not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
        raise SparkStartError("master yarn: set HADOOP_CONF_DIR to the folder with the cluster's configuration")
    return master


def runs_here(spark: SparkSession) -> bool:
    """Whether all tasks run on this machine and share its files."""
    return str(spark.conf.get("spark.master", "")).startswith("local")
