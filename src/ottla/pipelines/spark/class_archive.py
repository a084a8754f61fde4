"""Faster starts with Java's archive of loaded classes (application class data sharing).

Most of Spark's start time is spent reading thousands of classes from 250 jars. Java can write them to a file at exit,
in their in-memory form, and map that file at the next start.

Rules:
1. An archive is specific to one Java, one Spark, one class path and one kind of work: its name contains all of them.
2. It is written by the first session without an archive for its work, when its Java exits. That takes more than ten
   seconds of one core in the background. A stream that starts meanwhile waits: without an archive it would take as
   long, and its Java would write another. If that Java is killed, the next session tries again.
3. A file under its final name has been mapped once by a Java that was started with mandatory sharing.
4. Streams load nearly all classes of other work, but not vice versa: their archive serves all work and replaces the
   others. Java cannot extend an archive that it uses, so the first stream runs without one.
5. An archive is kept only of a stream whose first batch succeeded: `note_work` stores the number of loaded classes and
   the process of that Java beside it. A stream that has loaded many more (because the first one had no state, for
   example) removes the archive, at most once an hour, and the next one writes a new one.
6. Without an archive everything works, but more slowly.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ottla.base.java import Java
from ottla.pipelines.spark.class_path import ClassPath
from ottla.pipelines.spark.places import cache_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Work = Literal["streams", "trials", "queries"]
WIDEST_FIRST: tuple[Work, ...] = ("streams", "trials", "queries")
ARCHIVES_MAX = 3  # about 160 MB each, including untested ones: the oldest are removed
QUIET_SECONDS = 30  # a more recently changed file may still be written
TRY_SECONDS_MAX = 60
WRITE_SECONDS_MAX = 15.0  # maximum time that a stream waits for an archive in progress
LOOK_SECONDS = 0.1
# Replace the archive if a stream loads this many times its classes. A stream with state loads 6 % more than one
# without; a repetition seems to load 3 % fewer.
POOR = 1.04
REMADE_SECONDS_MIN = 3600
SWITCH = "OTTLA_SPARK_CLASS_ARCHIVE"  # 0 = no archives
DISABLED = "0"
RECORDING = "-XX:ArchiveClassesAtExit="
USING = "-XX:SharedArchiveFile="
# Java may crash on a partial archive; suppress its crash reports
CRASHING = ("-XX:ErrorFile=/dev/null", "-XX:-CreateCoredumpOnCrash")
SILENT = ("-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")  # suppress Java's messages about archives
# Otherwise Java maps the archive at a random address and relocates nearly all of its pages first.
IN_PLACE = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")


def archive_options(java: Java, place: ClassPath, work: Work = "queries", *, records: bool = True) -> list[str]:
    """Java options to use an archive that fits the work, or, if it `records`, to write a missing one."""
    if os.environ.get(SWITCH) == DISABLED:
        return []
    folder = cache_folder() / "classes"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        base = base_archive(java, folder)
        if base is None:
            return []
        return _options(java, place, work, folder, base, records)
    except OSError:  # a read-only cache must not prevent the start
        return []


def archive_name(java: Java, place: ClassPath, work: Work = "queries") -> str:
    """Changes with everything that would invalidate the archive."""
    program, spark = java.program.resolve(), place.spark
    parts = [str(program), str(program.stat().st_mtime_ns), str(spark.jars), str(spark.jars.stat().st_mtime_ns)]
    parts += [*map(str, place.jars), *(["lean"] if place.is_lean else [])]
    mark = hashlib.sha256(":".join(parts).encode()).hexdigest()[:12]
    return f"spark-{spark.version}-java-{java.version}-{mark}-{work}"


def note_work(spark: SparkSession) -> None:
    """Called after the first batch of a stream in this session."""
    java = getattr(spark, "_jvm", None)
    if java is not None:  # None behind Spark Connect
        factory = java.java.lang.management.ManagementFactory
        arguments = [str(each) for each in factory.getRuntimeMXBean().getInputArguments()]
        classes = int(factory.getClassLoadingMXBean().getTotalLoadedClassCount())
        note_classes(arguments, classes, int(java.java.lang.ProcessHandle.current().pid()))


def note_classes(arguments: Sequence[str], classes: int, java: int, python: int | None = None) -> None:
    """`arguments` are those of a Java, our process `java`, that has loaded this many classes."""
    with contextlib.suppress(OSError, ValueError):  # affects only the speed of the next start
        written = next((each.removeprefix(RECORDING) for each in arguments if each.startswith(RECORDING)), "")
        used = next((each.rpartition(":")[2] for each in arguments if each.startswith(USING)), "")
        archive = Path(written or used)
        if archive.stem.endswith(f"-{WIDEST_FIRST[0]}"):
            if written or not _note(archive).exists():
                _note(archive).write_text(f"{classes} {java} {python or os.getpid()}")
            elif _is_poor(_note(archive), classes):
                archive.unlink(missing_ok=True)


def _note(archive: Path) -> Path:
    return archive.with_suffix(".classes")


def _is_poor(note: Path, classes: int) -> bool:
    is_old = time.time() - note.stat().st_mtime >= REMADE_SECONDS_MIN
    return is_old and classes > POOR * int(note.read_text().split()[0])


def _is_being_written(archive: Path) -> bool:
    """Whether the Java of an ended stream is writing it."""
    with contextlib.suppress(OSError, ValueError):
        _classes, java, python = map(int, _note(archive).read_text().split())
        command = Path(f"/proc/{java}/cmdline").read_bytes()  # the process id may be reused
        return os.fsencode(_unfinished(archive)) in command and not Path(f"/proc/{python}").exists()
    return False


def base_archive(java: Java, folder: Path) -> Path | None:
    """The archive of Java's own classes, on which ours builds; created for runtimes without one."""
    own = java.library / "server" / "classes.jsa"
    if own.exists():
        return own
    made = folder / f"java-{java.version}-{hashlib.sha256(str(own).encode()).hexdigest()[:12]}.jsa"
    if not made.exists():
        unfinished = made.with_suffix(f".{os.getpid()}")
        _run([str(java.program), "-Xshare:dump", "-Xlog:disable", f"{USING}{unfinished}"])
        with contextlib.suppress(FileNotFoundError):
            unfinished.replace(made)
    return made if made.exists() else None


def _options(java: Java, place: ClassPath, work: Work, folder: Path, base: Path, records: bool) -> list[str]:
    files = [folder / f"{archive_name(java, place, each)}.jsa" for each in WIDEST_FIRST]
    own = WIDEST_FIRST.index(work)
    for number, archive in enumerate(files[: own + 1]):
        is_proven = number > 0 or _note(archive).exists()
        deadline = time.monotonic() + (WRITE_SECONDS_MAX if own == 0 else 0)
        while not (is_there := archive.exists() or _adopt(archive, java, place, base, is_proven)):
            if not _is_being_written(archive) or time.monotonic() >= deadline:
                break
            time.sleep(LOOK_SECONDS)
        if is_there:
            with contextlib.suppress(OSError):
                os.utime(archive)  # marks the archive as used: the least recently used one is removed first
                # Archives of earlier names are unused; an unfinished one belongs to a concurrent session.
                for path in (*files[number + 1 :], *map(_unfinished, files[number:])):
                    path.unlink(missing_ok=True)
            return [*SILENT, *IN_PLACE, f"{USING}{base}:{archive}"]
    if records and not _unfinished(files[own]).exists() and not _is_being_written(files[own]):
        _remove_oldest(folder)
        _note(files[own]).unlink(missing_ok=True)  # of a removed archive
        return [*SILENT, f"{USING}{base}", f"{RECORDING}{_unfinished(files[own])}"]
    narrower = [archive for archive in files[own + 1 :] if archive.exists()]
    return [*SILENT, *IN_PLACE, f"{USING}{':'.join(map(str, (base, *narrower[:1])))}"]


def _unfinished(archive: Path) -> Path:
    return archive.with_suffix(".unfinished")


def _adopt(archive: Path, java: Java, place: ClassPath, base: Path, is_proven: bool) -> bool:
    """Test the archive of an earlier session; remove an unusable one, unless it may still be written."""
    unfinished = _unfinished(archive)
    with contextlib.suppress(FileNotFoundError):
        may_grow = time.time() - unfinished.stat().st_mtime < QUIET_SECONDS
        sharing = ["-Xshare:on", "-XX:+VerifySharedSpaces", *CRASHING, f"{USING}{base}:{unfinished}"]
        if is_proven and _run([str(java.program), *sharing, "-Xlog:disable", "-cp", place.text(), "-version"]):
            unfinished.replace(archive)
            _remove_oldest(archive.parent)
            return True
        if not may_grow:
            unfinished.unlink()
    return False


def _remove_oldest(folder: Path) -> None:
    changed = {path: path.stat().st_mtime for path in folder.glob("spark-*") if path != _note(path)}
    for path in sorted(changed, key=changed.__getitem__)[:-ARCHIVES_MAX]:
        if time.time() - changed[path] >= QUIET_SECONDS:
            path.unlink(missing_ok=True)
            _note(path).unlink(missing_ok=True)


def _run(command: Sequence[str]) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=TRY_SECONDS_MAX)  # noqa: S603
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
