"""The jars for Java.

The lean class path omits Spark's jars for Hive, Kubernetes, YARN and machine learning, a third of all. Pipelines
without user code and models do not need them, and they slow down each session: registering MLlib's functions takes most
of a second, and every unknown name in generated code is searched in all jars.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.pipelines.spark.places import Installed

LEFT_OUT = (
    "JLargeArrays", "JTransforms", "algebra", "arpack", "blas", "breeze", "cats-kernel", "datanucleus", "derby",
    "hive-", "kubernetes-", "lapack", "spark-hive", "spark-kubernetes", "spark-mllib", "spark-yarn", "spire", "vertx-",
    "volcano-",
)  # fmt: skip
KEPT = "hive-storage-api"  # ORC depends on it


class ClassPath(NamedTuple):
    """`jars` are additional ones."""

    spark: Installed
    jars: tuple[Path, ...] = ()
    is_lean: bool = False

    def text(self) -> str:
        """The form of Spark's own launcher, with a wildcard that Java expands."""
        own = self.lean_jars() if self.is_lean else [self.spark.jars / "*"]
        first = sorted(self.spark.jars.glob("slf4j-api-*.jar"))
        return ":".join(map(str, (*self.jars, settings_folder(self.spark), *first, *own)))

    def lean_jars(self) -> Iterator[Path]:
        for path in sorted(self.spark.jars.glob("*.jar")):
            if path.name.startswith(KEPT) or not path.name.startswith(LEFT_OUT):
                yield path


def settings_folder(spark: Installed) -> Path:
    """The folder in which Spark looks for configuration files."""
    return Path(os.environ.get("SPARK_CONF_DIR") or spark.home / "conf")
