"""Java's command line without Spark's scripts, compared with theirs."""

import os
import subprocess
from pathlib import Path

import pytest

from ottla.base.java import Java
from ottla.pipelines.spark.class_path import ClassPath
from ottla.pipelines.spark.command import GATEWAY, LAUNCHER, SUBMIT, direct_command, script_command, script_variables
from ottla.pipelines.spark.java import find_java
from ottla.pipelines.spark.places import find_spark

SETTINGS = {
    "spark.master": "local[2,4]",
    "spark.driver.memory": "1g",
    "spark.driver.defaultJavaOptions": '-Da=b "-Dplace=/a folder/x" -XX:+UseSerialGC',
    "spark.driver.extraJavaOptions": "-Dc=d",
    "spark.driver.extraClassPath": "/jars/one.jar:/jars/two.jar",
    "spark.app.name": "views",
}


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_CONF_DIR", "SPARK_HOME", "HADOOP_CONF_DIR", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def place() -> ClassPath:
    return ClassPath(find_spark(), (Path("/jars/one.jar"), Path("/jars/two.jar")))


@pytest.fixture
def java() -> Java:
    return find_java()


def test_javas_options_are_those_of_sparks_launcher(place: ClassPath, java: Java) -> None:
    words = script_command(place.spark, SETTINGS)[1:]
    done = subprocess.run(
        [str(java.program), "-cp", str(place.spark.jars / "*"), LAUNCHER, SUBMIT, *words],
        env=os.environ | script_variables(place.spark) | {"JAVA_HOME": str(java.home)},
        capture_output=True,
        check=True,
    )
    made = done.stdout.decode().lstrip("\n\0").rstrip("\0").split("\0")
    ours = direct_command(place, java.home, SETTINGS)
    assert ours is not None
    assert ours[: -len(GATEWAY)] == made[: made.index(SUBMIT)]
    assert not any("views" in word for word in ours)  # settings are sent later, and may be secret


def test_where_there_are_settings_for_sparks_scripts_these_are_used(
    place: ClassPath, java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert direct_command(place, java.home, SETTINGS) is not None
    (tmp_path / "spark-defaults.conf").touch()
    assert direct_command(place, java.home, SETTINGS) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"spark.master": "spark://127.0.0.1:7077"},
        {"spark.jars": "/x.jar"},
        {"spark.driver.extraLibraryPath": "/x"},
        {"spark.driver.extraClassPath": "/of/the/user.jar"},
    ],
)
def test_unknown_settings_use_the_script(place: ClassPath, java: Java, changed: dict[str, str]) -> None:
    assert direct_command(place, java.home, SETTINGS | changed) is None


def test_another_spark_is_not_known(place: ClassPath, java: Java) -> None:
    assert direct_command(place._replace(spark=place.spark._replace(version="4.3.0")), java.home, SETTINGS) is None


def test_a_lean_class_path_omits_unused_jars(place: ClassPath) -> None:
    names = [Path(each).name for each in place._replace(is_lean=True).text().split(":")]
    assert names[:2] == ["one.jar", "two.jar"]
    assert not [name for name in names if name.startswith(("spark-mllib", "spark-hive", "kubernetes"))]
    needed = ("spark-sql_", "spark-core_", "hive-storage-api-", "orc-core-", "rocksdbjni-", "spark-connect_")
    assert all(any(name.startswith(each) for name in names) for each in needed)
