"""Starts the Java process of a session, and finds the reason if it does not start.

Rules:
1. Spark logs to a file of bounded size, and the standard error of Java and Python workers goes to one beside it: the
   terminal is reserved for the pipeline.
2. On failure, the decisive line is extracted from exceptions and files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.pipelines.spark.gateway import StartingJava, end
from ottla.pipelines.spark.places import SparkStartError, cache_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_BYTES_MAX = 10 << 20
LOGS_MAX = 20
TAIL_BYTES = 16_000
CAUSE_CHARACTERS_MAX = 400
THROWN = re.compile(
    r"^(?:Caused by: |Exception in thread \S+ |: )?[\w.$]+(?:Exception|Error): +(?P<words>\S.*)$", re.MULTILINE
)
SAID = re.compile(r"^(?:Error|ERROR)\b[^:\n]*: +(?P<words>\S.*)$", re.MULTILINE)

# Warnings only for the state store: at each commit Spark would format all RocksDB metrics into one line, and inspect
# its own classes the first time: a sixth of the task time of the first batch.
LOG_SETTINGS = f"""\
status = error
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${{sys:ottla.spark.log}}
appender.file.filePattern = ${{sys:ottla.spark.log}}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = {LOG_BYTES_MAX}
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
logger.state.name = org.apache.spark.sql.execution.streaming.state
logger.state.level = warn
"""


def launch(java: StartingJava, log: Path, on_java: Callable[[], None]) -> SparkSession:
    """A session in this Java; `on_java` is called when Java is ready. Raises SparkStartError."""
    from py4j.protocol import Py4JError, Py4JNetworkError  # # noqa: PLC0415 (slow import, not needed to check a file)
    from pyspark.conf import SparkConf  # noqa: PLC0415
    from pyspark.core.context import SparkContext  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    conf = SparkConf(loadDefaults=False)
    for key, value in java.settings.items():
        conf.set(key, value)
    errors = error_file(log)
    try:
        gateway = java.connect()
        on_java()
        try:
            return SparkSession(SparkContext(conf=conf, gateway=gateway))
        except BaseException:
            end_java()
            end(gateway)  # PySpark may not own it yet
            raise
    except (SparkStartError, Py4JError, Py4JNetworkError, PySparkException, ValueError, OSError) as problem:
        words = _tail(errors) if isinstance(problem, SparkStartError) else str(problem)
        cause = cause_in(words) or cause_in(str(problem))
        raise SparkStartError(f"Spark did not start: {cause} (all of it is in {log} and {errors.name})") from None


def error_file(log: Path) -> Path:
    """The file for Java's output before and beside its log."""
    return log.with_suffix(".err")


def log_options(log: Path) -> list[str]:
    """Java options for logging to this file; fatal messages also go to standard error."""
    settings = f"-Dlog4j2.configurationFile={log_settings_file()}"
    return ["-XX:+DisplayVMOutputToStderr", settings, f"-Dottla.spark.log={log}"]


def log_settings_file() -> Path:
    """Our log4j settings, in the cache folder."""
    file = cache_folder() / "spark" / "log4j2.properties"
    if not file.exists() or file.read_text(encoding="utf-8") != LOG_SETTINGS:
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(f".{os.getpid()}")
        unfinished.write_text(LOG_SETTINGS, encoding="utf-8")
        unfinished.replace(file)
    return file


def default_log_file(name: str) -> Path:
    """In the cache folder, one per session; the oldest are removed."""
    folder = cache_folder() / "spark" / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.iterdir(), key=_changed)[:-LOGS_MAX]:
        old.unlink(missing_ok=True)
    safe_name = re.sub(r"[^\w.-]", "-", name)[:80]
    return folder / f"{safe_name}-{os.getpid()}.log"


def _changed(path: Path) -> float:
    """Another session may be removing the same file."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def cause_in(text: str) -> str:
    """The decisive line of a Java stack trace or program output; empty if there is none."""
    thrown = [match["words"] for match in THROWN.finditer(text)]
    said = [match["words"] for match in SAID.finditer(text)]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("WARNING: ")]
    found = (thrown[-1:] or said[-1:] or lines[-1:] or [""])[0]
    return found[:CAUSE_CHARACTERS_MAX]


def end_java() -> None:
    """End the Java process of an earlier session of this Python process: its memory and class path cannot change."""
    from pyspark.core.context import SparkContext  # noqa: PLC0415

    gateway = SparkContext._gateway
    if gateway is not None and SparkContext._active_spark_context is None:
        SparkContext._gateway = None
        SparkContext._jvm = None
        end(gateway)


def abandon_java() -> None:
    """The Java process of the session has exited: PySpark must not use it any more."""
    from pyspark.core.context import SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    if gateway is not None:
        with suppress(Exception):  # it has already exited
            end(gateway)


def _tail(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - TAIL_BYTES))
            return opened.read().decode("utf-8", "replace")
    except OSError:
        return ""
