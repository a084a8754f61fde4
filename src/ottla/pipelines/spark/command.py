"""The command that starts Java for a local session.

Spark's own scripts determine it with a shell and a separate Java, and the started program then resolves what to run:
most of a second each time. For the supported Spark version, on this machine alone, and without settings for those
scripts, it is built here.

Rules:
1. Java's options are those of Spark's launcher: a test compares the two.
2. PySpark passes all settings to Java when it creates the context; they are not on the command line, where other users
   could see them.
3. Any uncertain case uses Spark's script.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from ottla.pipelines.spark.class_path import ClassPath, settings_folder
from ottla.pipelines.spark.masters import Kind, parse_master
from ottla.pipelines.spark.places import Installed

KNOWN = "4.2."
SUBMIT = "org.apache.spark.deploy.SparkSubmit"
LAUNCHER = "org.apache.spark.launcher.Main"
# The class that SparkSubmit runs for PySpark, and the settings that it would pass.
GATEWAY = ("-Dspark.submit.deployMode=client", "-DSPARK_SUBMIT=true", "org.apache.spark.api.python.PythonGatewayServer")
SHELL = "pyspark-shell"
# Java modules that Spark opens: JavaModuleOptions in its launcher.
OPENED = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
)  # fmt: skip
MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
MEMORY, CLASS_PATH = "spark.driver.memory", "spark.driver.extraClassPath"
JAVA_OPTIONS = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
# Read by Spark's scripts and its launcher.
SCRIPT_FILES = ("spark-env.sh", "spark-defaults.conf", "java-opts")
SCRIPT_VARIABLES = (
    "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH", "SPARK_SUBMIT_OPTS", "SPARK_PREPEND_CLASSES",
    "SPARK_SQL_TESTING", "SPARK_TESTING", "SPARK_PRINT_LAUNCH_COMMAND",
)  # fmt: skip
OTHER_SETTINGS = ("spark.driver.extraLibraryPath", "spark.jars", "spark.submit.deployMode")


def script_command(spark: Installed, settings: Mapping[str, str]) -> list[str]:
    words = (word for key, value in settings.items() for word in ("--conf", f"{key}={value}"))
    return [str(spark.home / "bin" / "spark-submit"), *words, SHELL]


def direct_command(place: ClassPath, java_home: Path, settings: Mapping[str, str]) -> list[str] | None:
    """None if Spark's script must be used."""
    jars = ":".join(map(str, place.jars))
    if not is_known(place.spark, settings) or settings.get(CLASS_PATH, "") != jars:
        return None
    options = [word for key in JAVA_OPTIONS for word in shlex.split(settings.get(key, ""))]
    places = ["-cp", place.text(), f"-Xmx{settings[MEMORY]}"]
    return [str(java_home / "bin" / "java"), *places, *options, *MODULE_OPTIONS, *GATEWAY]


def script_variables(spark: Installed) -> dict[str, str]:
    """The variables that Spark's scripts would set."""
    found = {"SPARK_HOME": str(spark.home), "SPARK_CONF_DIR": str(settings_folder(spark))}
    return {**found, "SPARK_SCALA_VERSION": spark.scala, "SPARK_ENV_LOADED": "1", "PYTHONHASHSEED": "0"}


def is_known(spark: Installed, settings: Mapping[str, str]) -> bool:
    """Whether no other setting can influence the command."""
    if not spark.version.startswith(KNOWN) or MEMORY not in settings:
        return False
    if parse_master(settings["spark.master"]).kind is not Kind.LOCAL:
        return False
    folder = settings_folder(spark)
    return not (
        any((folder / name).exists() for name in SCRIPT_FILES)
        or any(os.environ.get(name) for name in SCRIPT_VARIABLES)
        or any(settings.get(name) for name in OTHER_SETTINGS)
    )
