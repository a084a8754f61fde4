"""Settings that a pipeline file may contain, and the defaults."""

import pytest

from ottla.pipelines.spark.masters import Kind, Master, parse_master
from ottla.pipelines.spark.settings import check_setting, default_settings, driver_memory

GIB = 1 << 30


@pytest.mark.parametrize(
    "key",
    [
        "spark.sql.shuffle.partitions",
        "spark.executor.memory",
        "spark.driver.memory",
        "spark.executor.instances",
        "spark.sql.session.timeZone",
        "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB",
        "spark.sql.adaptive.enabled",
        "spark.sql.execution.arrow.maxRecordsPerBatch",
        "spark.task.maxFailures",
    ],
)
def test_numbers_sizes_and_switches_may_stand_in_a_file(key: str) -> None:
    assert check_setting(key, "4") is None


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("spark.driver.extraJavaOptions", "options to Java"),
        ("spark.executor.defaultJavaOptions", "options to Java"),
        ("spark.yarn.am.extraJavaOptions", "options to Java"),
        ("spark.driver.extraClassPath", "loads code"),
        ("spark.executor.extraLibraryPath", "loads code"),
        ("spark.jars", "loads code"),
        ("spark.jars.packages", "loads code"),
        ("spark.jars.ivySettings", "loads code"),
        ("spark.submit.pyFiles", "loads code"),
        ("spark.archives", "loads code"),
        ("spark.sql.hive.metastore.jars", "loads code"),
        ("spark.plugins", "names classes"),
        ("spark.extraListeners", "names classes"),
        ("spark.sql.queryExecutionListeners", "names classes"),
        ("spark.sql.streaming.streamingQueryListeners", "names classes"),
        ("spark.sql.extensions", "names classes"),
        ("spark.sql.catalog.mine", "names classes"),
        ("spark.sql.adaptive.customCostEvaluatorClass", "names classes"),
        ("spark.sql.streaming.stateStore.providerClass", "names classes"),
        ("spark.sql.sources.commitProtocolClass", "names classes"),
        ("spark.shuffle.manager", "names classes"),
        ("spark.io.compression.codec", "names classes"),
        ("spark.serializer", "names classes"),
        ("spark.ui.filters", "names classes"),
        ("spark.pyspark.python", "program to run"),
        ("spark.python.daemon.module", "program to run"),
        ("spark.driver.resource.gpu.discoveryScript", "program to run"),
        ("spark.executorEnv.LD_PRELOAD", "environment variables"),
        ("spark.kubernetes.driverEnv.PYTHONPATH", "environment variables"),
        ("spark.hadoop.fs.s3a.secret.key", "file systems"),
        ("spark.kubernetes.container.image", "the cluster's processes"),
        ("spark.eventLog.dir", "places on the disk"),
        ("spark.local.dir", "places on the disk"),
        ("spark.sql.streaming.realTimeMode.allowlistCheck", "protection"),
        ("spark.authenticate", "protection"),
        ("spark.whatever.comes.next", "not known to be harmless"),
    ],
)
def test_settings_that_could_run_code_are_refused_with_the_reason(key: str, reason: str) -> None:
    problem = check_setting(key, "x")
    assert problem is not None
    assert problem.startswith(f"a pipeline file may not set {key}: ")
    assert reason in problem
    assert "command line" in problem


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("spark.master", "local", "--master"),
        ("spark.app.name", "x", "name:"),
        ("kafka.bootstrap.servers", "x", "not a setting of Spark"),
        ("spark.sql.session.timeZone", "${env:SECRET}", "may not refer to variables"),
        ("spark.sql.session.timeZone", "UTC\nspark.jars=x", "may not refer to variables"),
        ("spark.sql.shuffle.partitions.x", "1", "not known"),
        ("spark.sql.ansi.enabled", "false", "cannot be changed"),
    ],
)
def test_settings_with_their_own_field_or_hidden_effects_are_refused(key: str, value: str, words: str) -> None:
    assert words in str(check_setting(key, value))


def test_a_stream_on_this_machine_has_few_partitions_its_own_time_zone_and_no_open_port() -> None:
    chosen = default_settings(parse_master("local[3]"), {}, 16 * GIB)
    assert chosen["spark.sql.shuffle.partitions"] == "3"
    assert chosen["spark.databricks.delta.snapshotPartitions"] == "3"
    assert chosen["spark.sql.session.timeZone"] == "UTC"
    assert chosen["spark.driver.bindAddress"] == chosen["spark.driver.host"] == "127.0.0.1"
    assert chosen["spark.ui.enabled"] == "false"
    assert chosen["spark.driver.memory"] == "2048m"
    assert chosen["spark.sql.streaming.stateStore.providerClass"].endswith("RocksDBStateStoreProvider")


def test_a_cluster_keeps_its_own_addresses_and_memory() -> None:
    chosen = default_settings(Master(Kind.STANDALONE, "spark://far:7077"), {"spark.cores.max": "12"}, 16 * GIB)
    assert chosen["spark.sql.shuffle.partitions"] == "12"
    assert not {"spark.driver.host", "spark.driver.bindAddress", "spark.driver.memory"} & set(chosen)


def test_the_partitions_of_a_cluster_follow_its_executors() -> None:
    given = {"spark.executor.instances": "3", "spark.executor.cores": "4"}
    assert default_settings(Master(Kind.YARN, "yarn"), given, GIB)["spark.sql.shuffle.partitions"] == "12"
    assert default_settings(Master(Kind.YARN, "yarn"), {}, GIB)["spark.sql.shuffle.partitions"] == "16"


def test_a_session_of_spark_connect_is_only_given_what_can_be_changed() -> None:
    assert all(key.startswith("spark.sql.") for key in default_settings(Master(Kind.CONNECT, "sc://host"), {}, GIB))


@pytest.mark.parametrize(("machine", "driver"), [(GIB, GIB), (16 * GIB, 2 * GIB), (512 * GIB, 4 * GIB)])
def test_the_driver_gets_a_part_of_the_memory_within_bounds(machine: int, driver: int) -> None:
    assert driver_memory(machine) == driver
