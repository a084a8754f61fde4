"""Which jars Java gets.

Lean is a class path without what Spark brings for Hive, Kubernetes, YARN and machine learning, a third of its jars. Who
runs neither code of their own nor a model needs none of them, and each session pays: the functions of MLlib alone are
registered in most of a second, and every name that generated code does not find is looked for in all jars.
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
KEPT = "hive-storage-api"  # ORC is built on it


class ClassPath(NamedTuple):
    """`jars` are those that come in addition."""

    spark: Installed
    jars: tuple[Path, ...] = ()
    is_lean: bool = False

    def text(self) -> str:
        """As Spark's own launcher makes it, with a star that Java unfolds."""
        own = self.lean_jars() if self.is_lean else [self.spark.jars / "*"]
        first = sorted(self.spark.jars.glob("slf4j-api-*.jar"))
        return ":".join(map(str, (*self.jars, settings_folder(self.spark), *first, *own)))

    def lean_jars(self) -> Iterator[Path]:
        for path in sorted(self.spark.jars.glob("*.jar")):
            if path.name.startswith(KEPT) or not path.name.startswith(LEFT_OUT):
                yield path


def settings_folder(spark: Installed) -> Path:
    """Where Spark looks for files with settings."""
    return Path(os.environ.get("SPARK_CONF_DIR") or spark.home / "conf")
