"""Jars that Spark lacks: its Kafka connector, Delta, Iceberg, S3 support; versions that fit Spark, cached.

Rules:
1. The newest fitting version: the same minor version as Spark, and not newer than it. Jars that Spark has are not
   fetched.
2. A folder under its final name is complete: jars are fetched beside it and the folder is renamed. Their checksums are
   stored in it and compared before use; a mismatch fetches again.
3. A filled folder needs no network. OTTLA_SPARK_JARS names a folder of jars to use instead of fetching any.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ottla.pipelines.spark.ivy import Module, NotFoundError, UnreachableError, fetch
from ottla.pipelines.spark.places import JAR, Installed, SparkStartError, artifacts_of, cache_folder

FOLDER_VARIABLE = "OTTLA_SPARK_JARS"
MANIFEST = "manifest.json"
RELEASE = re.compile(r"\d+(\.\d+)*")
PATCH_MAX = 99

Say = Callable[[str], None]


class Package(NamedTuple):
    """An extension of Spark. {spark} and {scala} in the name stand for the versions 4.2 and 2.13."""

    title: str
    organisation: str
    artifact: str
    follows_spark: bool  # its version is Spark's; otherwise its name contains the Spark version
    substitutes: tuple[str, ...] = ()  # dependencies; an older minor version is used if its own is not published
    settings: Mapping[str, str] = MappingProxyType({})  # Spark settings that enable it
    instead: str = ""  # alternative if it is unavailable
    follows_jar: str = ""  # its version is that of this Spark jar


PACKAGES = {
    "kafka": Package(
        "Spark's Kafka connector",
        "org.apache.spark",
        "spark-sql-kafka-0-10_{scala}",
        follows_spark=True,
        substitutes=("spark-token-provider-kafka-0-10_{scala}",),
        instead="connector: ottla, which needs no jars",
    ),
    "delta": Package(
        "Delta",
        "io.delta",
        "delta-spark_{spark}_{scala}",
        follows_spark=False,
        settings={
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
        instead="a parquet sink",
    ),
    "iceberg": Package(
        "Iceberg",
        "org.apache.iceberg",
        "iceberg-spark-runtime-{spark}_{scala}",
        follows_spark=False,
        settings={"spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"},
        instead="a delta or a parquet sink",
    ),
    "s3": Package(
        "Hadoop's way to S3, with the SDK of AWS (700 MB)",
        "org.apache.hadoop",
        "hadoop-aws",
        follows_spark=False,
        instead="a folder on a file system that all machines reach",
        follows_jar="hadoop-client-api",
    ),
}


class JarSet(NamedTuple):
    """Jars that belong together, and a sentence with the choice and its reason."""

    jars: tuple[Path, ...]
    sentence: str


def find_jars(name: str, spark: Installed, java: Path, say: Say = lambda _line: None) -> JarSet:
    """The jars of a package: the user's own, cached, or fetched now. Raises SparkStartError."""
    package = PACKAGES.get(name)
    if package is None:
        raise SparkStartError(f"there is no package {name!r}; known: {', '.join(PACKAGES)}")
    own = os.environ.get(FOLDER_VARIABLE)
    if own:
        return _from_folder(package, spark, Path(own))
    folder = cache_folder() / "jars" / spark.version / name
    jars = read_cache(folder)
    if jars is None:
        if folder.exists():
            say(f"{folder} is damaged or incomplete: fetching it again")
        say(f"fetching {package.title} for Spark {spark.version}")
        _fetch_into(folder, package, spark, java)
        jars = read_cache(folder)
        assert jars is not None, folder
    return JarSet(jars, sentence(package, spark, jars))


def attempts(package: Package, spark: Installed) -> Iterator[list[Module]]:
    """The requests in order of preference: all from one release, then older minor versions of substitutable parts."""
    wanted = Module(package.organisation, full_name(package.artifact, spark), _revisions(package, spark))
    yield [wanted]
    major, minor = spark.version.split(".")[:2]
    if not package.substitutes:
        return
    for older in range(int(minor) - 1, -1, -1):
        span = f"[{major}.{older}.0,{major}.{older}.{PATCH_MAX}]"
        names = (full_name(name, spark) for name in package.substitutes)
        yield [wanted, *(Module(package.organisation, name, span, is_override=True) for name in names)]


def full_name(artifact: str, spark: Installed) -> str:
    return artifact.format(spark=spark.minor, scala=spark.scala)


def sentence(package: Package, spark: Installed, jars: Sequence[Path]) -> str:
    """One line: version, reason, dependencies, folder."""
    versions = {match["artifact"]: match["version"] for match in (JAR.fullmatch(path.name) for path in jars) if match}
    name = full_name(package.artifact, spark)
    chosen = versions.pop(name, "?")
    others = ", ".join(f"{artifact} {version}" for artifact, version in sorted(versions.items()))
    why = f"newest for Spark {spark.minor}"
    if package.follows_spark:
        why = f"{'the same' if chosen == spark.version else 'newest of ' + spark.minor} for Spark {spark.version}"
    if package.follows_jar:
        why = f"as {package.follows_jar} in Spark {spark.version}"
    size = sum(path.stat().st_size for path in jars) / 1e6
    return f"{package.title} {chosen} ({why}){' with ' if others else ''}{others}: {size:.1f} MB in {jars[0].parent}"


def read_cache(folder: Path) -> tuple[Path, ...] | None:
    """The jars, if the folder is complete and every checksum matches."""
    try:
        digests = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["sha256"]
        jars = tuple(folder / name for name in sorted(digests))
        is_whole = bool(jars) and all(digest_of(path) == digests[path.name] for path in jars)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return jars if is_whole else None


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _revisions(package: Package, spark: Installed) -> str:
    if package.follows_jar:
        return jar_version(spark, package.follows_jar)
    if not package.follows_spark:
        return "latest.release"
    if not RELEASE.fullmatch(spark.version):  # a preview: only its own parts fit
        return spark.version
    return f"[{spark.minor}.0,{spark.version}]"


def jar_version(spark: Installed, artifact: str) -> str:
    """Raises SparkStartError."""
    found = (JAR.fullmatch(path.name) for path in sorted(spark.jars.glob(f"{artifact}-*.jar")))
    version = next((match["version"] for match in found if match and match["artifact"] == artifact), None)
    if version is None:
        raise SparkStartError(f"{spark.jars} lacks {artifact}: install PySpark again")
    return version


def _from_folder(package: Package, spark: Installed, folder: Path) -> JarSet:
    """The user's jars: all in the folder except those that Spark has."""
    known = spark.artifacts()
    jars = tuple(path for path in sorted(folder.glob("*.jar")) if not artifacts_of([path.name]) & known)
    name = full_name(package.artifact, spark)
    if name not in artifacts_of(path.name for path in jars):
        raise SparkStartError(f"{FOLDER_VARIABLE}={folder} lacks {package.title}: no jar there is named {name}-…")
    return JarSet(jars, sentence(package, spark, jars))


def _fetch_into(folder: Path, package: Package, spark: Installed, java: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        _fetch_first(unfinished, package, spark, java)
        digests = {path.name: digest_of(path) for path in sorted(unfinished.glob("*.jar"))}
        (unfinished / MANIFEST).write_text(json.dumps({"sha256": digests}, indent=1), encoding="utf-8")
        unfinished.chmod(0o755)
        _put_in_place(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _fetch_first(unfinished: Path, package: Package, spark: Installed, java: Path) -> None:
    """The first successful attempt is used."""
    name = full_name(package.artifact, spark)
    substitutes = [full_name(other, spark) for other in package.substitutes]
    for modules in attempts(package, spark):
        try:
            fetch(spark, java, modules, unfinished)
        except UnreachableError as problem:
            raise SparkStartError(
                f"{package.title} must be fetched once and cannot be: {problem}; go online, or name a folder with "
                f"{name} in {FOLDER_VARIABLE}, or use {package.instead}"
            ) from None
        except NotFoundError as problem:
            if not any(other in str(problem) for other in substitutes):
                break
        else:
            return
    raise SparkStartError(
        f"{package.title} is not published for Spark {spark.version}: {name} cannot be had; use {package.instead}"
    )


def _put_in_place(unfinished: Path, folder: Path) -> None:
    """Publish by rename: readers see a complete folder or none. Concurrent fetches have equal contents."""
    if folder.exists():
        damaged = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-old-"))
        folder.rename(damaged / folder.name)
        shutil.rmtree(damaged, ignore_errors=True)
    try:
        unfinished.rename(folder)
    except OSError:
        if read_cache(folder) is None:
            raise
