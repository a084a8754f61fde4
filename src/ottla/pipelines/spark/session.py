"""Starts Spark: Java, jars, settings and logging, without user interaction.

    from ottla.pipelines.spark.session import start_session
    spark = start_session("page-views")

Rules:
1. One line for each slow step is passed to `on_step`; there is no other output unless `quiet` is false.
2. Java logs to a file of bounded size. If it does not start, one line has the reason.
3. A local session listens on 127.0.0.1 only.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from ottla.base.java import Java
from ottla.pipelines.source.dataframes import register
from ottla.pipelines.spark.class_archive import Work, archive_options
from ottla.pipelines.spark.class_path import ClassPath
from ottla.pipelines.spark.command import CLASS_PATH, is_known
from ottla.pipelines.spark.gateway import StartingJava
from ottla.pipelines.spark.jars import PACKAGES, find_jars
from ottla.pipelines.spark.java import find_java, option_text
from ottla.pipelines.spark.launch import cause_in, default_log_file, end_java, error_file, launch, log_options
from ottla.pipelines.spark.masters import Kind, Master, parse_master
from ottla.pipelines.spark.places import Installed, SparkStartError, find_spark, pyspark_folder
from ottla.pipelines.spark.settings import (
    HOST,
    PARTITIONS_OF_CLUSTER,
    PARTITIONS_OF_SPARK,
    SHUFFLE_PARTITIONS,
    default_settings,
    machine_memory,
)
from ottla.pipelines.spark.workers.starting import fork_server, get_ready, is_ours, python_of_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REACH_SECONDS_MAX = 5.0
IMAGE = "spark.kubernetes.container.image"
EXTENSIONS = "spark.sql.extensions"
# Java's compilers use more than a third of the CPU time of a start, mostly for code that runs a few thousand times. So
# the second compiler waits twenty times as long as by default, the first one (tier 3) two to five times; the hot code
# of a stream reaches these counts within the first batches.
PATIENT_COMPILERS = (
    "-XX:Tier3InvocationThreshold=1000",
    "-XX:Tier3MinInvocationThreshold=500",
    "-XX:Tier3CompileThreshold=4000",
    "-XX:Tier4InvocationThreshold=100000",
    "-XX:Tier4MinInvocationThreshold=40000",
    "-XX:Tier4CompileThreshold=250000",
    "-XX:Tier4BackEdgeThreshold=800000",
)
# With two cores, concurrent garbage collection takes a tenth of the CPU time of a start; the heap is small, and stream
# state is outside of it. Java rejects two collectors, so a user's choice replaces ours.
SMALL_CORES = 2
SMALL_COLLECTOR = "-XX:+UseSerialGC"
# Java runs a full collection whenever class metadata exceeds its threshold, initially 21 MB.
ROOM_FOR_CLASSES = "-XX:MetaspaceSize=256m"
EXTRA_OPTIONS = "spark.driver.extraJavaOptions"

Say = Callable[[str], None]


class Plan(NamedTuple):
    """All settings of a new session, and the environment of its Java and workers."""

    place: ClassPath
    settings: dict[str, str]
    environment: dict[str, str]


class Wish(NamedTuple):
    """The requested session."""

    name: str
    master: Master
    packages: list[str]
    given: dict[str, str]
    is_lean: bool
    work: Work


Connector = Literal["ottla", "jvm"]


def start_session(
    name: str,
    master: str | None = None,
    connector: Connector = "ottla",
    packages: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    *,
    is_lean: bool = False,
    work: Work = "queries",
    quiet: bool = True,
    on_step: Say | None = None,
    log_file: Path | None = None,
) -> SparkSession:
    """A session for streams. `packages`: kafka (implied by the connector jvm), delta, iceberg. `is_lean`: without Hive
    and pyspark.ml (class_path.py). `work`: the kind of work, for its class archive (class_archive.py). Raises
    SparkStartError.

    A Spark that already runs in this process is used unchanged.
    """
    say = on_step or (lambda _line: None)
    started = time.monotonic()
    target = parse_master(master)
    given = {key: str(value) for key, value in (settings or {}).items()}
    session = _running(say)
    if session is not None:
        return session
    if target.kind is Kind.CONNECT:
        session = _connect(name, target, given, say)
    else:
        wanted = dict.fromkeys([*(["kafka"] if connector == "jvm" else []), *packages])
        wish = Wish(name, target, list(wanted), given, is_lean and not wanted, work)
        session = _launch(wish, quiet, say, log_file or default_log_file(name))
        register(session)  # Spark does not search for it in our Java (gateway.py)
    say(f"Spark {session.version} is ready after {time.monotonic() - started:.1f} s")
    return session


def is_running() -> bool:
    """Whether this process has a Spark already, which its owner will stop."""
    if "pyspark.sql" not in sys.modules:
        return False
    from pyspark.core.context import SparkContext  # noqa: PLC0415

    return SparkContext._active_spark_context is not None


def _running(say: Say) -> SparkSession | None:
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.core.context import SparkContext  # # noqa: PLC0415 (slow import, not needed to check a file)
    from pyspark.sql import SparkSession  # noqa: PLC0415

    session = SparkSession.getActiveSession()
    if session is None and SparkContext._active_spark_context is not None:  # started by another thread
        session = SparkSession.builder.getOrCreate()
    if session is not None:
        say(f"using the Spark {session.version} that is running already, with its settings")
    return session


def _connect(name: str, master: Master, given: dict[str, str], say: Say) -> SparkSession:
    """A session on an external Spark: only runtime settings are set."""
    pyspark_folder()
    say(f"connecting to {master.url}")
    _check_reachable(master)
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    try:
        session = SparkSession.builder.remote(master.url).appName(name).getOrCreate()
        for key, value in (default_settings(master, given, 0) | given).items():
            if session.conf.isModifiable(key):
                session.conf.set(key, value)
        if SHUFFLE_PARTITIONS not in given and session.conf.get(SHUFFLE_PARTITIONS) == PARTITIONS_OF_SPARK:
            session.conf.set(SHUFFLE_PARTITIONS, str(PARTITIONS_OF_CLUSTER))
    except ImportError as problem:
        raise SparkStartError(f"Spark Connect needs more: pip install 'pyspark[connect]' ({problem})") from None
    except PySparkException as problem:
        raise SparkStartError(f"{master.url}: {cause_in(str(problem))}") from None
    return session


def _launch(wish: Wish, quiet: bool, say: Say, log: Path) -> SparkSession:
    if any(not java.is_lean for java in _early_java):  # a full class path includes the lean one
        wish = wish._replace(is_lean=False)
    plan = _planned(wish, find_spark(), say, log)
    # It stays set: Python workers and later sessions need the same.
    os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)  # set by an earlier session of Spark Connect
    os.environ.update(plan.environment)
    end_java()
    return launch(_early(plan) or _started(plan, log, quiet), log, get_ready)


def start_early(
    name: str,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    is_lean: bool = False,
    work: Work = "queries",
) -> None:
    """Start Java in advance for a local session with the same settings and no packages, while Python imports. For
    another session this Java ends and a new one is started."""
    if _early_java or is_running():
        return
    with suppress(SparkStartError):  # reported when the session is requested
        target, spark, log = parse_master(master), find_spark(), default_log_file(name)
        if target.kind is not Kind.LOCAL:
            return
        wish = Wish(name, target, [], dict(settings or {}), is_lean, work)
        plan = _planned(wish, spark, lambda _line: None, log)
        _early_java.append(_started(plan, log, quiet=True))


def end_early() -> None:
    """The session was not requested."""
    while _early_java:
        _early_java.pop().kill()


_early_java: list[StartingJava] = []  # at most one


def _early(plan: Plan) -> StartingJava | None:
    """The Java that was started early, if it fits."""
    java = _early_java.pop() if _early_java else None
    if java is not None and (java.settings != plan.settings or java.process.poll() is not None):
        java.kill()
        return None
    return java


def _started(plan: Plan, log: Path, quiet: bool) -> StartingJava:
    try:
        return StartingJava(plan.place, plan.settings, plan.environment, error_file(log) if quiet else None)
    except OSError as problem:
        raise SparkStartError(f"Spark did not start: {problem}") from None


def _planned(wish: Wish, spark: Installed, say: Say, log: Path) -> Plan:
    java, master, given = find_java(), wish.master, wish.given
    if master.kind is Kind.LOCAL:
        fork_server()  # Java needs its address
    for remark in java.rejections:
        say(remark)
    say(f"Java {java.version} ({java.origin})")
    _check_cluster(master, given)
    chosen = default_settings(master, given, machine_memory())
    jars: list[Path] = []
    for package in wish.packages:
        found = find_jars(package, spark, java.program, say)
        say(found.sentence)
        jars += [path for path in found.jars if path not in jars]
        chosen |= joined(chosen, PACKAGES[package].settings)
    whole = {**chosen, **given, "spark.master": master.url, "spark.app.name": wish.name}
    near = tuple(jars) if master.kind is Kind.LOCAL else ()
    is_lean = wish.is_lean and is_known(spark, whole) and CLASS_PATH not in given
    place = ClassPath(spark, near, is_lean)
    options = [*log_options(log), *archive_options(java, place, wish.work)]
    settings = {**chosen, **_java_settings(wish, java, place, jars, options), **whole}
    say(f"starting Spark {spark.version} on {master.kind.value}{f' with {master.cores} cores' if master.cores else ''}")
    return Plan(place, settings, _environment(master, java))


def joined(chosen: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """Two packages may each have an extension: Spark takes a list of them."""
    if EXTENSIONS in chosen and EXTENSIONS in added:
        return {**added, EXTENSIONS: f"{chosen[EXTENSIONS]},{added[EXTENSIONS]}"}
    return dict(added)


def _java_settings(
    wish: Wish, java: Java, place: ClassPath, jars: Sequence[Path], more: Sequence[str]
) -> dict[str, str]:
    """Jars are on the class path if that suffices, and are shipped otherwise."""
    master, extra = wish.master, wish.given.get(EXTRA_OPTIONS, "")
    options = [*PATIENT_COMPILERS, ROOM_FOR_CLASSES, *more]
    if master.cores is not None and master.cores <= SMALL_CORES and "GC" not in extra:
        options.append(SMALL_COLLECTOR)
    found = {"spark.driver.defaultJavaOptions": option_text(options)}
    if place.jars:
        found["spark.driver.extraClassPath"] = ":".join(map(str, place.jars))
    elif jars:
        found["spark.jars"] = ",".join(map(str, jars))
    if master.kind is Kind.STANDALONE and master.is_near:
        near = archive_options(java, ClassPath(place.spark), records=False)
        found["spark.executor.defaultJavaOptions"] = option_text(near)
    return found


def _check_cluster(master: Master, given: Mapping[str, str]) -> None:
    if master.kind is Kind.KUBERNETES and IMAGE not in given:
        raise SparkStartError(f"Kubernetes must know which image to run: set {IMAGE}")
    if master.kind is Kind.STANDALONE:
        _check_reachable(master)


def _check_reachable(master: Master) -> None:
    """Spark would retry for a minute and then print a hundred lines."""
    problems: list[str] = []
    for host, port in master.addresses():
        try:
            socket.create_connection((host, port), REACH_SECONDS_MAX).close()
        except OSError as problem:
            problems.append(f"{host}:{port}: {problem.strerror or problem}")
        else:
            return
    raise SparkStartError(f"{master.url} cannot be reached ({', '.join(problems)}): is it running?")


def _environment(master: Master, java: Java) -> dict[str, str]:
    """The variables that Spark's scripts read."""
    is_local = master.kind is Kind.LOCAL
    program, found = python_of_workers() if is_local else (sys.executable, {})
    if is_local or is_ours(os.environ.get("PYSPARK_PYTHON", "")):
        found = {**found, "PYSPARK_PYTHON": program}
    if master.is_near:
        found = {**found, "SPARK_LOCAL_IP": HOST}
    return {**found, "JAVA_HOME": str(java.home), "PYSPARK_DRIVER_PYTHON": program}
