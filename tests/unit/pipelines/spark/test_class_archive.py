"""When a class archive is used, written, or left alone."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.java import Java
from ottla.pipelines.spark import class_archive
from ottla.pipelines.spark.class_archive import (
    ARCHIVES_MAX,
    WIDEST_FIRST,
    Work,
    archive_name,
    archive_options,
    note_classes,
)
from ottla.pipelines.spark.class_path import ClassPath
from ottla.pipelines.spark.places import Installed

LONG_AGO = 3600


@pytest.fixture
def java(tmp_path: Path) -> Java:
    """A fake Java that accepts every archive that is not marked as broken."""
    home = tmp_path / "java"
    for folder in ("bin", "lib/server"):
        (home / folder).mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").write_bytes(b"base")
    program = home / "bin" / "java"
    program.write_text(
        '#!/bin/sh\nfor w in "$@"; do case $w in -XX:SharedArchiveFile=*) f=${w##*:};; esac; done\n'
        '! grep -q broken "$f"\n'
    )
    program.chmod(0o755)
    return Java(home, 17, "PATH")


@pytest.fixture
def spark(tmp_path: Path) -> Installed:
    (tmp_path / "pyspark" / "jars").mkdir(parents=True)
    return Installed(tmp_path / "pyspark", "4.2.1", "2.13")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("OTTLA_SPARK_CLASS_ARCHIVE", raising=False)
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    return tmp_path / "cache" / "ottla" / "classes"


def left_behind(
    folder: Path, java: Java, spark: Installed, content: bytes, age_seconds: float, work: Work = "queries"
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{archive_name(java, ClassPath(spark), work)}.unfinished"
    file.write_bytes(content)
    os.utime(file, (time.time() - age_seconds,) * 2)
    if work == "streams":
        note_classes([f"-XX:ArchiveClassesAtExit={file}"], 20_000, ended_process())
    return file


def ended_process() -> int:
    ended = subprocess.Popen(["true"])
    ended.wait()
    return ended.pid


def test_the_first_session_writes_an_archive(java: Java, spark: Installed, folder: Path) -> None:
    options = archive_options(java, ClassPath(spark))
    assert options[-1] == f"-XX:ArchiveClassesAtExit={folder / archive_name(java, ClassPath(spark))}.unfinished"


def test_the_next_one_uses_it(java: Java, spark: Installed, folder: Path) -> None:
    left_behind(folder, java, spark, b"good", LONG_AGO)
    archive = folder / f"{archive_name(java, ClassPath(spark))}.jsa"
    assert archive_options(java, ClassPath(spark))[-1].endswith(f"classes.jsa:{archive}")
    assert [path.name for path in folder.iterdir()] == [archive.name]


def test_an_unusable_archive_is_removed_and_written_again(java: Java, spark: Installed, folder: Path) -> None:
    file = left_behind(folder, java, spark, b"broken", LONG_AGO)
    assert archive_options(java, ClassPath(spark))[-1] == f"-XX:ArchiveClassesAtExit={file}"
    assert not file.exists()


def test_one_that_is_whole_is_used_at_once(java: Java, spark: Installed, folder: Path) -> None:
    left_behind(folder, java, spark, b"good", 0)
    assert archive_options(java, ClassPath(spark))[-1].endswith(f"{archive_name(java, ClassPath(spark))}.jsa")


def test_what_is_being_written_is_left_alone(java: Java, spark: Installed, folder: Path) -> None:
    file = left_behind(folder, java, spark, b"broken: half of it", 0)
    assert not any("ArchiveClassesAtExit" in option for option in archive_options(java, ClassPath(spark)))
    assert file.exists()


@pytest.fixture
def writing(java: Java, spark: Installed, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The Java of an ended stream; it ends with its standard input and then writes an archive."""
    folder.mkdir(parents=True)
    file = folder / f"{archive_name(java, ClassPath(spark), 'streams')}.unfinished"
    command = ["sh", "-c", f"cat; echo good > {file}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        while not Path(f"/proc/{process.pid}/cmdline").read_bytes():  # briefly empty after exec()
            os.sched_yield()
        note_classes([f"-XX:ArchiveClassesAtExit={file}"], 20_000, process.pid, ended_process())
        yield process


def test_a_stream_waits_for_what_the_java_of_another_is_writing(
    java: Java, spark: Installed, writing: subprocess.Popen[bytes]
) -> None:
    assert writing.stdin is not None
    writing.stdin.close()
    assert used(archive_options(java, ClassPath(spark), "streams")).endswith("streams.jsa")


def test_it_does_not_wait_for_ever_and_writes_no_other(
    java: Java, spark: Installed, writing: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_archive, "WRITE_SECONDS_MAX", 0.0)
    options = archive_options(java, ClassPath(spark), "streams")
    assert used(options) == ""
    assert not any("ArchiveClassesAtExit" in option for option in options)
    assert writing.poll() is None


def test_a_stream_does_not_wait_for_a_running_one(
    java: Java, spark: Installed, folder: Path, writing: subprocess.Popen[bytes]
) -> None:
    file = folder / f"{archive_name(java, ClassPath(spark), 'streams')}.unfinished"
    note_classes([f"-XX:ArchiveClassesAtExit={file}"], 20_000, writing.pid)  # of this process
    assert archive_options(java, ClassPath(spark), "streams")[-1] == f"-XX:ArchiveClassesAtExit={file}"


def used(options: list[str]) -> str:
    """The archive besides Java's own, or ""."""
    return next(option for option in options if "SharedArchiveFile" in option).partition("classes.jsa")[2].lstrip(":")


def test_streams_are_not_content_with_what_queries_have_loaded(java: Java, spark: Installed, folder: Path) -> None:
    left_behind(folder, java, spark, b"good", LONG_AGO)
    archive_options(java, ClassPath(spark))
    options = archive_options(java, ClassPath(spark), "streams")
    assert options[-1].endswith(f"{archive_name(java, ClassPath(spark), 'streams')}.unfinished")
    assert used(options) == ""  # Java would refuse to write one


def test_the_archive_of_streams_serves_all_work(java: Java, spark: Installed, folder: Path) -> None:
    for work in WIDEST_FIRST:
        left_behind(folder, java, spark, b"good", LONG_AGO, work)
    archive = folder / f"{archive_name(java, ClassPath(spark), 'streams')}.jsa"
    for work in reversed(WIDEST_FIRST):
        assert used(archive_options(java, ClassPath(spark), work)) == str(archive)
    assert sorted(folder.iterdir()) == [archive.with_suffix(".classes"), archive]


def test_that_of_a_stream_which_did_no_batch_is_not_kept(java: Java, spark: Installed, folder: Path) -> None:
    file = left_behind(folder, java, spark, b"good", LONG_AGO, "streams")
    file.with_suffix(".classes").unlink()
    assert used(archive_options(java, ClassPath(spark))) == ""
    assert not file.exists()
    left_behind(folder, java, spark, b"good", LONG_AGO, "streams")  # the note of a removed archive
    file.unlink()
    assert archive_options(java, ClassPath(spark), "streams")[-1].endswith(".unfinished")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("classes", "age_seconds", "stays"), [(20_700, LONG_AGO, 1), (21_100, 0, 1), (21_100, LONG_AGO, 0)]
)
def test_an_archive_that_lacks_many_classes_is_replaced_after_a_while(
    java: Java, spark: Installed, folder: Path, classes: int, age_seconds: float, stays: int
) -> None:
    left_behind(folder, java, spark, b"good", LONG_AGO, "streams")
    arguments = archive_options(java, ClassPath(spark), "streams")
    (note,) = folder.glob("*.classes")
    os.utime(note, (time.time() - age_seconds,) * 2)
    note_classes(arguments, classes, ended_process())
    assert len(list(folder.glob("*.jsa"))) == stays
    assert any("ArchiveClassesAtExit" in each for each in archive_options(java, ClassPath(spark), "streams")) != bool(
        stays
    )


def test_while_another_writes_that_of_streams_any_is_better_than_none(
    java: Java, spark: Installed, folder: Path
) -> None:
    left_behind(folder, java, spark, b"good", LONG_AGO)
    archive_options(java, ClassPath(spark))
    writing = left_behind(folder, java, spark, b"broken: half of it", 0, "streams")
    options = archive_options(java, ClassPath(spark), "streams")
    assert used(options) == str(folder / f"{archive_name(java, ClassPath(spark))}.jsa")
    assert not any("ArchiveClassesAtExit" in option for option in options)
    assert writing.exists()


def test_a_session_that_does_not_record_uses_an_existing_archive(java: Java, spark: Installed, folder: Path) -> None:
    assert used(archive_options(java, ClassPath(spark), records=False)) == ""
    left_behind(folder, java, spark, b"good", LONG_AGO, "trials")
    assert used(archive_options(java, ClassPath(spark), records=False)).endswith("trials.jsa")


def test_other_jars_need_another_archive(java: Java, spark: Installed, tmp_path: Path) -> None:
    assert archive_name(java, ClassPath(spark)) != archive_name(java, ClassPath(spark, (tmp_path / "more.jar",)))


def test_old_archives_are_removed(java: Java, spark: Installed, folder: Path) -> None:
    folder.mkdir(parents=True)
    for number in range(5):
        (folder / f"spark-old-{number}.jsa").write_bytes(b"x")
        os.utime(folder / f"spark-old-{number}.jsa", (number, number))
    left_behind(folder, java, spark, b"good", LONG_AGO)
    archive_options(java, ClassPath(spark))
    assert len(list(folder.iterdir())) == ARCHIVES_MAX


def test_abandoned_archives_are_removed(java: Java, spark: Installed, folder: Path) -> None:
    folder.mkdir(parents=True)
    for number in range(5):
        (folder / f"spark-old-{number}.unfinished").write_bytes(b"x")
        os.utime(folder / f"spark-old-{number}.unfinished", (number, number))
    archive_options(java, ClassPath(spark))
    assert len(list(folder.iterdir())) == ARCHIVES_MAX


def test_archives_can_be_switched_off(java: Java, spark: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_SPARK_CLASS_ARCHIVE", "0")
    assert archive_options(java, ClassPath(spark)) == []


def test_the_class_path_is_that_of_sparks_launcher(spark: Installed) -> None:
    assert ClassPath(spark, (Path("/a.jar"),)).text() == f"/a.jar:{spark.home}/conf:{spark.home}/jars/*"
