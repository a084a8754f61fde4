"""The Java process behind a session: where its words go, and why it did not start.

Rules:
1. What Spark logs goes to a file of bounded size, what Java and Python workers say on standard error to one beside it:
   the terminal belongs to the pipeline.
2. No Java is left behind, whenever the start is interrupted: it ends with its standard input, and until it reads that
   it is killed.
3. When something fails, the one line that says why is picked out of exceptions and files.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.pipelines.spark.places import SparkStartError, cache_folder

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark.conf import SparkConf
    from pyspark.sql import SparkSession

LOG_BYTES_MAX = 10 << 20
LOGS_MAX = 20
TAIL_BYTES = 16_000
CAUSE_CHARACTERS_MAX = 400
DIED = "JAVA_GATEWAY_EXITED"  # PySpark knows no more than this; the rest is in the file
THROWN = re.compile(
    r"^(?:Caused by: |Exception in thread \S+ |: )?[\w.$]+(?:Exception|Error): +(?P<words>\S.*)$", re.MULTILINE
)
SAID = re.compile(r"^(?:Error|ERROR)\b[^:\n]*: +(?P<words>\S.*)$", re.MULTILINE)

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
"""


def launch(settings: Mapping[str, str], log: Path, quiet: bool) -> SparkSession:
    """A session in a Java process of its own. Raises SparkStartError."""
    from py4j.protocol import Py4JError, Py4JNetworkError  # noqa: PLC0415 (takes time; those who check a file go without)
    from pyspark.conf import SparkConf  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    end_java()
    conf = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        conf.set(key, value)
    errors = log.with_suffix(".err")
    try:
        return _launch(conf, errors if quiet else None)
    except (Py4JError, Py4JNetworkError, PySparkException, ValueError, OSError) as problem:
        words = _tail(errors) if DIED in str(problem) else str(problem)
        cause = cause_in(words) or cause_in(str(problem))
        raise SparkStartError(f"Spark did not start: {cause} (all of it is in {log} and {errors.name})") from None


def log_options(log: Path) -> list[str]:
    """For Java: log as our settings say, to this file; its own last words go to standard error, too."""
    settings = f"-Dlog4j2.configurationFile={log_settings_file()}"
    return ["-XX:+DisplayVMOutputToStderr", settings, f"-Dottla.spark.log={log}"]


def log_settings_file() -> Path:
    """Our settings of log4j, in the cache folder."""
    file = cache_folder() / "spark" / "log4j2.properties"
    if not file.exists() or file.read_text(encoding="utf-8") != LOG_SETTINGS:
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(f".{os.getpid()}")
        unfinished.write_text(LOG_SETTINGS, encoding="utf-8")
        unfinished.replace(file)
    return file


def default_log_file(name: str) -> Path:
    """In the cache folder, one for each session; the oldest are removed."""
    folder = cache_folder() / "spark" / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)[:-LOGS_MAX]:
        old.unlink(missing_ok=True)
    safe_name = re.sub(r"[^\w.-]", "-", name)[:80]
    return folder / f"{safe_name}-{os.getpid()}.log"


def cause_in(text: str) -> str:
    """Of a Java stack trace or a program's last words the line that says why; nothing if there is none."""
    thrown = [match["words"] for match in THROWN.finditer(text)]
    said = [match["words"] for match in SAID.finditer(text)]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("WARNING: ")]
    found = (thrown[-1:] or said[-1:] or lines[-1:] or [""])[0]
    return found[:CAUSE_CHARACTERS_MAX]


def end_java() -> None:
    """End the Java process of an earlier session of this Python process: its memory and class path are fixed."""
    from pyspark.core.context import SparkContext  # noqa: PLC0415

    gateway = SparkContext._gateway
    if gateway is not None and SparkContext._active_spark_context is None:
        SparkContext._gateway = None
        SparkContext._jvm = None
        _end(gateway)


def abandon_java() -> None:
    """The Java process of the session has ended by itself: PySpark must not ask it any more."""
    from pyspark.core.context import SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    if gateway is not None:
        with suppress(Exception):  # it is gone already
            _end(gateway)


def _launch(conf: SparkConf, errors: Path | None) -> SparkSession:
    from pyspark.core.context import SparkContext  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    with _ending_new_children():
        if errors is None:
            gateway = launch_gateway(conf)  # type: ignore[no-untyped-call]
        else:
            with errors.open("ab") as file:
                gateway = launch_gateway(conf, {"stderr": file})  # type: ignore[no-untyped-call]
    try:
        return SparkSession(SparkContext(conf=conf, gateway=gateway))
    except BaseException:
        end_java()
        _end(gateway)  # it may not be Spark's yet
        raise


@contextmanager
def _ending_new_children() -> Iterator[None]:
    """Whoever is interrupted in here ends what was started: a Java that cannot tell PySpark its port never ends."""
    from ottla.pipelines.spark.processes import children_of  # noqa: PLC0415 (it needs this file)

    before = children_of(os.getpid())
    try:
        yield
    except BaseException:
        for child in children_of(os.getpid()):
            if child not in before:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        raise


def _end(gateway: JavaGateway) -> None:
    """Java ends when its standard input does; writing an archive of classes may take it some seconds, without us."""
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None and process.stdin is not None:
        process.stdin.close()


def _tail(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - TAIL_BYTES))
            return opened.read().decode("utf-8", "replace")
    except OSError:
        return ""
