"""Locations: the installed Spark, and our cache folder."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

CORE_JAR = re.compile(r"spark-core_(?P<scala>[\d.]+)-(?P<version>\d[\w.-]*)\.jar")
JAR = re.compile(r"(?P<artifact>.+)-(?P<version>\d[\w.+]*(-[A-Za-z]\w*)*)\.jar")  # spark-sql-kafka-0-10_2.13-4.2.0.jar


class SparkStartError(Exception):
    """Spark cannot be started: one line with the cause and the fix."""


class Installed(NamedTuple):
    """The Spark that pip installed."""

    home: Path
    version: str  # 4.2.1
    scala: str  # 2.13

    @property
    def jars(self) -> Path:
        return self.home / "jars"

    @property
    def minor(self) -> str:
        """4.2 of 4.2.1: the part that must match between components."""
        return ".".join(self.version.split(".")[:2])

    def artifacts(self) -> set[str]:
        """The names, without versions, of Spark's jars."""
        return artifacts_of(path.name for path in self.jars.glob("*.jar"))


def find_spark() -> Installed:
    """Without importing pyspark, which is slow. Raises SparkStartError."""
    own = pyspark_folder()
    spark = read_installation(own)
    if spark is None:
        raise SparkStartError(f"{own} has no jars: only sc:// masters can be used; install `pyspark` for the others")
    chosen = os.environ.get("SPARK_HOME")
    if chosen and Path(chosen).resolve() != own.resolve():
        return _foreign(Path(chosen), spark)
    return spark


def pyspark_folder() -> Path:
    """Raises SparkStartError."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SparkStartError("PySpark is not installed: pip install 'ottla[pipelines]'")
    return Path(found.origin).parent


def read_installation(home: Path) -> Installed | None:
    """Parse the names of the jars; None without jars."""
    for path in home.glob("jars/spark-core_*.jar"):
        match = CORE_JAR.fullmatch(path.name)
        if match:
            return Installed(home, match["version"], match["scala"])
    return None


def artifacts_of(names: Iterable[str]) -> set[str]:
    """{'ivy', 'spark-tags_2.13'} of ['ivy-2.5.3.jar', 'spark-tags_2.13-4.2.1.jar']"""
    return {match["artifact"] for match in map(JAR.fullmatch, names) if match}


def cache_folder() -> Path:
    """Our folder in the user's cache; its contents may be deleted at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla"


def _foreign(home: Path, own: Installed) -> Installed:
    """PySpark uses SPARK_HOME: a Spark of another version there fails with misleading errors."""
    chosen = read_installation(home)
    if chosen is None or chosen.version != own.version:
        is_there = f"holds Spark {chosen.version}" if chosen else "holds no Spark"
        raise SparkStartError(f"SPARK_HOME={home} {is_there}, PySpark is {own.version}: unset SPARK_HOME")
    return chosen
