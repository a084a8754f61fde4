"""Finds Apache ZooKeeper's jars: in ZOOKEEPER_HOME, in the installed PySpark, or downloads them from Maven once."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ottla.cli.terminal import ToolError
from ottla.pipelines.spark.places import cache_folder

MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JAVA_VERSION_MIN: Final = 11
HOME_VARIABLE: Final = "ZOOKEEPER_HOME"
REPOSITORY_VARIABLE: Final = "OTTLA_MAVEN_REPOSITORY"
REPOSITORY: Final = "https://repo1.maven.org/maven2"
FETCH_SECONDS_MAX: Final = 60
MAIN_JAR: Final = re.compile(r"zookeeper-(\d+)\.(\d+)[\w.-]*\.jar")
VERSION_MIN: Final = (3, 6)  # the first version with multi-reads
# The jars of PySpark that ZooKeeper and its logger need.
SPARK_JARS: Final = (
    "zookeeper-[0-9]*",
    "zookeeper-jute-*",
    "netty-*",
    "slf4j-api-*",
    "log4j-slf4j2-impl-*",
    "log4j-api-*",
    "log4j-core-*",
    "snappy-java-*",
    "metrics-core-*",
    "commons-cli-*",
    "commons-io-*",
    "jackson-*",
)

Say = Callable[[str], None]


class Jars(NamedTuple):
    """A class path and its origin."""

    paths: tuple[Path, ...]
    origin: str

    @property
    def class_path(self) -> str:
        return os.pathsep.join(map(str, self.paths))


class Artifact(NamedTuple):
    """A jar in a Maven repository, with its SHA-256 digest."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.jar"

    @property
    def path(self) -> str:
        return f"{self.group.replace('.', '/')}/{self.name}/{self.version}/{self.file_name}"


# The dependencies of the server and its shell according to its pom.xml: 7 MB.
ARTIFACTS: Final = (
    Artifact(
        "org.apache.zookeeper", "zookeeper", "3.9.5", "936d025db1a85f085edea25048c3f5b3de5fc29329c371a10925e3b78b0b38a0"
    ),
    Artifact(
        "org.apache.zookeeper",
        "zookeeper-jute",
        "3.9.5",
        "abcbc7f9d6c493daa118da6fa3061a201e2c521217526e8535adfb56b629e52a",
    ),
    Artifact("commons-cli", "commons-cli", "1.5.0", "bc8bb01fc0fad250385706e20f927ddcff6173f6339b387dc879237752567ac6"),
    Artifact("commons-io", "commons-io", "2.17.0", "4aa4ca48f3dfd30b78220b7881d8cb93eac4093ec94361b6befa9487998a550b"),
    Artifact(
        "io.dropwizard.metrics",
        "metrics-core",
        "4.1.12.1",
        "cec34936faa625039f4e46123eccaa10a9eb9d9a40c6075830cd81330e259cf9",
    ),
    Artifact(
        "io.netty", "netty-buffer", "4.1.130.Final", "00a522b67ea35cb7b4dd9cf27f85c6c58f5e306785aa045302e5f6b2d4944a87"
    ),
    Artifact(
        "io.netty", "netty-codec", "4.1.130.Final", "52636bc29bd62120b97bbe5d1d21eab9b1cb2bef8efbb54d2221c5f3fa08d8cd"
    ),
    Artifact(
        "io.netty", "netty-common", "4.1.130.Final", "53921f28dd5a352b1bed0e1cbcc54d013dc60ffebeae9b2b1e53eabef317e581"
    ),
    Artifact(
        "io.netty", "netty-handler", "4.1.130.Final", "98c78ec187ca30a4b9775bf6f632f5c9929db6bf06a60e6971f945813880ca0f"
    ),
    Artifact(
        "io.netty",
        "netty-resolver",
        "4.1.130.Final",
        "48c5b218a89d184e1b601d46433957f515fcefdb4464182b1348bce4f5a18f35",
    ),
    Artifact(
        "io.netty",
        "netty-transport",
        "4.1.130.Final",
        "1bf573266d271f856705a9984d25449c56a1d73c02a16af12033ceccfe555dbb",
    ),
    Artifact(
        "io.netty",
        "netty-transport-native-unix-common",
        "4.1.130.Final",
        "cf5efc4168597d7cd14695b469418cac2a1134533f9a0c82ef0538d796fd39e1",
    ),
    Artifact("org.slf4j", "slf4j-api", "2.0.13", "e7c2a48e8515ba1f49fa637d57b4e2f590b3f5bd97407ac699c3aa5efb1204a9"),
    Artifact("org.slf4j", "slf4j-simple", "2.0.13", "3153fe1d689cffb94f1530b58470c306685ba68844de8857116e3b6ebb81d9f7"),
    Artifact(
        "org.xerial.snappy",
        "snappy-java",
        "1.1.10.5",
        "0f3f1857ed33116583f480b4df5c0218836c47bfbc9c6221c0d73f356decf37b",
    ),
)


def find_jars(say: Say = lambda _line: None) -> Jars:
    """Find the jars. Raises ToolError with a remedy."""
    home = os.environ.get(HOME_VARIABLE)
    if home:
        return from_home(Path(home))
    return from_pyspark() or from_maven(say)


def from_home(home: Path) -> Jars:
    jars = sorted([*home.glob("lib/*.jar"), *home.glob("*.jar")])
    if not has_zookeeper(jars):
        raise ToolError(
            f"{HOME_VARIABLE}={home} has no zookeeper-{VERSION_MIN[0]}.{VERSION_MIN[1]} or newer in its lib folder: "
            "name an unpacked apache-zookeeper-...-bin, or unset it"
        )
    return Jars((*jars, home / "conf"), str(home))


def from_pyspark() -> Jars | None:
    """Locate PySpark without importing it, which takes seconds."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "jars"
    jars = sorted(path for pattern in SPARK_JARS for path in folder.glob(f"{pattern}.jar"))
    return Jars(tuple(jars), "pyspark") if has_zookeeper(jars) else None


def has_zookeeper(jars: Sequence[Path]) -> bool:
    matches = (MAIN_JAR.fullmatch(path.name) for path in jars)
    return any((int(match[1]), int(match[2])) >= VERSION_MIN for match in matches if match)


def from_maven(say: Say) -> Jars:
    """Download once and keep; a folder with its final name is complete."""
    folder = cache_folder() / "jars" / f"zookeeper-{ARTIFACTS[0].version}"
    if not folder.is_dir():
        say(f"fetching Apache ZooKeeper {ARTIFACTS[0].version} from {repository()} ({len(ARTIFACTS)} jars, once)")
        _fetch_into(folder, say)
    jars = tuple(folder / artifact.file_name for artifact in ARTIFACTS)
    damaged = [path.name for path, artifact in zip(jars, ARTIFACTS, strict=True) if digest(path) != artifact.sha256]
    if damaged:
        raise ToolError(f"{folder} is damaged ({', '.join(damaged)}): delete it to download it again")
    return Jars(jars, str(folder))


def repository() -> str:
    return (os.environ.get(REPOSITORY_VARIABLE) or REPOSITORY).rstrip("/")


def digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _fetch_into(folder: Path, say: Say) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        for number, artifact in enumerate(ARTIFACTS, 1):
            data = _fetch(artifact)
            (unfinished / artifact.file_name).write_bytes(data)
            say(f"  {number}/{len(ARTIFACTS)} {artifact.file_name} ({len(data) / 1e6:.1f} MB)")
        unfinished.chmod(0o755)
        if not folder.exists():
            unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _fetch(artifact: Artifact) -> bytes:
    address = f"{repository()}/{artifact.path}"
    if not address.startswith(("https://", "http://")):
        raise ToolError(f"{REPOSITORY_VARIABLE} is not a URL: {address}")
    try:
        with urllib.request.urlopen(address, timeout=FETCH_SECONDS_MAX) as answer:  # noqa: S310 (checked above)
            data: bytes = answer.read()
    except (OSError, urllib.error.URLError) as problem:
        raise ToolError(
            f"ZooKeeper must be fetched once and cannot be ({address}: {problem}): go online, set {HOME_VARIABLE} to "
            "an unpacked Apache ZooKeeper, or pip install pyspark, which has it inside"
        ) from None
    if hashlib.sha256(data).hexdigest() != artifact.sha256:
        raise ToolError(f"{address} has an unexpected checksum")
    return data
