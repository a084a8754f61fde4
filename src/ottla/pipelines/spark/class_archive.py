"""Faster starts: Java's archive of classes that were loaded before (application class data sharing).

Most of the time that Spark takes to start goes into reading thousands of classes from 250 jars. Java can write them to
a file when it ends, in the form in which it holds them in memory, and map that file when it starts the next time.

Rules:
1. An archive belongs to one Java, one Spark, one class path and one kind of work: all of them are in its name.
2. It is written by the first session that finds none for its work, after that work, when Java ends, which takes more
   than ten seconds of one core; nobody waits for its end. A stream that is started meanwhile waits: without an archive
   it would take as long, and Java would write another. If that Java is killed, the next session tries again.
3. A file under its final name has been mapped once by a Java that was told to fail if it could not.
4. Streams load nearly all that others load, but not the other way round: their archive serves everybody, and once it
   is there the others go. Java cannot add to an archive that it uses, so the first stream goes without that of others.
5. So it is kept only of a stream whose first batch has ended well: `note_work` then writes down beside it how many
   classes Java had loaded, and whose Java that is. A stream that has loaded many more (the first one had no state, say)
   makes it go, at most once an hour, and the next one writes another.
6. Without an archive everything works as well, but slower.
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
ARCHIVES_MAX = 3  # of some 160 MB each, with those that nobody has tried yet: the oldest go
QUIET_SECONDS = 30  # a file that was changed more recently may still be written
TRY_SECONDS_MAX = 60
WRITE_SECONDS_MAX = 15.0  # so long a stream waits for an archive that is being written
LOOK_SECONDS = 0.1
# So many times the classes that it was made of: it lacks too many. A stream with state loads 6 % more than one without;
# one that does the same again seems to load 3 % fewer.
POOR = 1.04
REMADE_SECONDS_MIN = 3600
SWITCH = "OTTLA_SPARK_CLASS_ARCHIVE"  # 0 = no archives
DISABLED = "0"
RECORDING = "-XX:ArchiveClassesAtExit="
USING = "-XX:SharedArchiveFile="
CRASHING = ("-XX:ErrorFile=/dev/null", "-XX:-CreateCoredumpOnCrash")  # over half an archive; nobody must hear of it
SILENT = ("-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")  # what Java says about archives is for nobody
# Else Java chooses another place each time, and writes to nearly all pages of the archive before it begins.
IN_PLACE = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")


def archive_options(java: Java, place: ClassPath, work: Work = "queries", *, records: bool = True) -> list[str]:
    """Options for Java: to use an archive that has what the work needs, or, if it `records`, to write one where there
    is none."""
    if os.environ.get(SWITCH) == DISABLED:
        return []
    folder = cache_folder() / "classes"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        base = base_archive(java, folder)
        if base is None:
            return []
        return _options(java, place, work, folder, base, records)
    except OSError:  # a cache that cannot be written is no reason not to start
        return []


def archive_name(java: Java, place: ClassPath, work: Work = "queries") -> str:
    """Changes with whatever would make the archive useless."""
    program, spark = java.program.resolve(), place.spark
    parts = [str(program), str(program.stat().st_mtime_ns), str(spark.jars), str(spark.jars.stat().st_mtime_ns)]
    parts += [*map(str, place.jars), *(["lean"] if place.is_lean else [])]
    mark = hashlib.sha256(":".join(parts).encode()).hexdigest()[:12]
    return f"spark-{spark.version}-java-{java.version}-{mark}-{work}"


def note_work(spark: SparkSession) -> None:
    """A stream has done its first batch in it."""
    java = getattr(spark, "_jvm", None)
    if java is not None:  # not far away, behind Spark Connect
        factory = java.java.lang.management.ManagementFactory
        arguments = [str(each) for each in factory.getRuntimeMXBean().getInputArguments()]
        classes = int(factory.getClassLoadingMXBean().getTotalLoadedClassCount())
        note_classes(arguments, classes, int(java.java.lang.ProcessHandle.current().pid()))


def note_classes(arguments: Sequence[str], classes: int, java: int, python: int | None = None) -> None:
    """`arguments` are those of a Java, the process `java` of ours, that has loaded so many classes."""
    with contextlib.suppress(OSError, ValueError):  # it is only about the speed of the next start
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
    """By the Java of a stream that has ended."""
    with contextlib.suppress(OSError, ValueError):
        _classes, java, python = map(int, _note(archive).read_text().split())
        command = Path(f"/proc/{java}/cmdline").read_bytes()  # the number may be somebody else's by now
        return os.fsencode(_unfinished(archive)) in command and not Path(f"/proc/{python}").exists()
    return False


def base_archive(java: Java, folder: Path) -> Path | None:
    """The archive of Java's own classes, on which ours builds; runtimes that come without one get one from us."""
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
                os.utime(archive)  # the archive that was used last is removed last
                # Nobody asks for these any more; an unfinished one is of a session that ran at the same time.
                for path in (*files[number + 1 :], *map(_unfinished, files[number:])):
                    path.unlink(missing_ok=True)
            return [*SILENT, *IN_PLACE, f"{USING}{base}:{archive}"]
    if records and not _unfinished(files[own]).exists() and not _is_being_written(files[own]):
        _remove_oldest(folder)
        _note(files[own]).unlink(missing_ok=True)  # of an archive that is gone
        return [*SILENT, f"{USING}{base}", f"{RECORDING}{_unfinished(files[own])}"]
    narrower = [archive for archive in files[own + 1 :] if archive.exists()]
    return [*SILENT, *IN_PLACE, f"{USING}{':'.join(map(str, (base, *narrower[:1])))}"]


def _unfinished(archive: Path) -> Path:
    return archive.with_suffix(".unfinished")


def _adopt(archive: Path, java: Java, place: ClassPath, base: Path, is_proven: bool) -> bool:
    """Try what an earlier session has left; what cannot be used is removed, unless it may still be written."""
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
