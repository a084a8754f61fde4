"""Spark settings: our settings for streams, and those that a pipeline file may contain.

A pipeline file may come from another source. Many Spark settings load classes, start programs or read files, so a file
may only contain settings that are known to be harmless; all others belong on the command line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from ottla.pipelines.spark.masters import Kind, Master
from ottla.pipelines.spark.places import cache_folder
from ottla.pipelines.spark.zone import UTC, ZONE

HOST = "127.0.0.1"
GIB = 1 << 30
MEMORY_PART = 8  # fraction of the machine's memory for the driver, within the following bounds
MEMORY_MIN = GIB
MEMORY_MAX = 4 * GIB
PARTITIONS_LOCAL_MIN = 2
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
PARTITIONS_OF_SPARK = "200"
# Spark would substitute environment variables in SQL with ${env:NAME}, after our checks.
SUBSTITUTION = "spark.sql.variable.substitute"
# Without it a failing expression gives null or a wrong number, and no row would ever be dead (steps/failing_values.py).
ANSI = "spark.sql.ansi.enabled"
DELTA_PARTITIONS = "spark.databricks.delta.snapshotPartitions"  # partitions for reading Delta's log; the default is 50
PARTITIONS_OF_CLUSTER = 16  # if the number of cores is unknown; the default 200 makes small batches slow
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

# Settings that a stream needs everywhere, including sessions of Spark Connect.
STREAMING = {
    "spark.sql.session.timeZone": "UTC",
    SUBSTITUTION: "false",
    ANSI: "true",
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Spark would write INT96, which has no zone, and which pandas and Arrow read as nanoseconds: 9999-12-31 as 1816.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}

# For a checkpoint in a local folder. Otherwise Spark runs the program readlink twice per published file, 40 ms each:
# for each batch and each part of its state. The published files are the same.
LOCAL_CHECKPOINT = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}

# Settings that must be set before Spark starts.
STARTING = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.ui.explainMode": "simple",  # no UI shows the description of every batch
    "spark.python.worker.reuse": "true",
    f"spark.executorEnv.{ZONE}": UTC,  # for Python workers, regardless of the parent process (zone.py)
    # PySpark would send the Python location of each column to Java in a dozen calls: two thirds of all calls of a plan.
    # It is not used: errors name the step in the file.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.log.structuredLogging.enabled": "false",
    "spark.log.level": "INFO",  # for the log file; otherwise Spark would set WARN and print it
}

# Allowed in a file: numbers, sizes, times and Booleans.
HARMLESS = re.compile(
    r"spark\.("
    r"sql\.(shuffle\.partitions|session\.timeZone|ansi\.enabled|caseSensitive|codegen\.\w+|adaptive\.[\w.]+|files\.max\w+|"
    r"autoBroadcastJoinThreshold|broadcastTimeout|execution\.arrow\.[\w.]+|parquet\.compression\.codec|"
    r"streaming\.(stateStore\.(rocksdb\.[\w.]+|minDeltasForSnapshot|maintenanceInterval)|"
    r"minBatchesToRetain|noDataMicroBatches\.enabled|multipleWatermarkPolicy|numRecentProgressUpdates|"
    r"pollingDelay|stopTimeout|realTimeMode\.[\w.]+))|"
    r"(driver|executor)\.(memory|memoryOverhead|memoryOverheadFactor|cores)|executor\.instances|cores\.max|"
    r"task\.(cpus|maxFailures)|default\.parallelism|locality\.wait[\w.]*|speculation[\w.]*|"
    r"memory\.(fraction|storageFraction|offHeap\.(enabled|size))|network\.timeout|rpc\.askTimeout|"
    r"python\.worker\.(memory|reuse)|scheduler\.mode|dynamicAllocation\.(enabled|\w+Executors|\w+Timeout)|"
    r"kafka\.(consumer|producer)\.cache\.[\w.]+)"
)

NEVER = re.compile(r"[cC]lass|allowlistCheck")  # class names among harmless settings

OWN = {"spark.master": "--master", "spark.remote": "--master", "spark.app.name": "name:"}

# Reasons for rejecting the rest; the first match is reported.
DANGERS = (
    (re.compile(r"JavaOptions$|javaOptions"), "it gives options to Java, which can run any code"),
    (re.compile(r"ClassPath|LibraryPath|spark\.jars|pyFiles|spark\.files|archives|metastore\.jars"), "it loads code"),
    (re.compile(r"plugins|[lL]isteners|extensions|\.catalog\.|[cC]lass(Name)?$|filters|serializer|registrator|\.manager$|codec$"),
     "it names classes that Spark loads and runs"),
    (re.compile(r"pyspark\.python|driver\.python|daemon|\.module|[sS]cript|\.command"), "it names a program to run"),
    (re.compile(r"executorEnv|appMasterEnv|driverEnv"), "it sets environment variables, which can run any code"),
    (re.compile(r"hadoop"), "it reaches file systems and their credentials"),
    (re.compile(r"kubernetes|yarn|container"), "it controls the cluster's processes and users"),
    (re.compile(r"(dir|Dir|path|Path|File|file|location|log4j)"), "it names places on the disk"),
    (re.compile(r"authenticate|ssl|secret|acls|password|credential|proxy|allowlistCheck"), "it weakens a protection"),
)  # fmt: skip


def check_setting(key: str, value: str = "") -> str | None:
    """Why a pipeline file may not contain this setting; None if it may."""
    if not key.startswith("spark."):
        return f"{key} is not a setting of Spark: they begin with spark."
    if key in OWN:
        return f"{key} is given by {OWN[key]}"
    if key == ANSI and value.strip().lower() != "true":
        return f"{key} cannot be changed: `on_error` says what becomes of a row with which an expression fails"
    if "${" in value or "\n" in value:
        return f"{key}: a value of a file may not refer to variables"
    if HARMLESS.fullmatch(key) and not NEVER.search(key):
        return None
    reason = next((words for pattern, words in DANGERS if pattern.search(key)), "it is not known to be harmless")
    return f"a pipeline file may not set {key}: {reason}; if you want it, give it on the command line"


def default_settings(master: Master, given: Mapping[str, str], memory_bytes: int) -> dict[str, str]:
    """The defaults; `given` are explicit settings."""
    if master.kind is Kind.CONNECT:  # the server's operator has chosen the rest
        return dict(STREAMING)
    chosen = {**STREAMING, **STARTING, SHUFFLE_PARTITIONS: str(shuffle_partitions(master, given))}
    if master.is_near:
        chosen |= {"spark.driver.host": HOST, "spark.driver.bindAddress": HOST}
        chosen["spark.sql.warehouse.dir"] = str(cache_folder() / "spark" / "warehouse")  # not in the working directory
    if master.kind is Kind.LOCAL:
        # per batch; 50 partitions would take five sixths of its work
        chosen[DELTA_PARTITIONS] = chosen[SHUFFLE_PARTITIONS]
        chosen["spark.driver.memory"] = f"{driver_memory(memory_bytes) >> 20}m"
    return chosen


def shuffle_partitions(master: Master, given: Mapping[str, str]) -> int:
    """One per core: each costs a task per batch. A checkpoint keeps its initial number."""
    if master.cores is not None:
        return max(master.cores, PARTITIONS_LOCAL_MIN)
    executors = _number(given, "spark.executor.instances") * max(_number(given, "spark.executor.cores"), 1)
    return _number(given, "spark.cores.max") or executors or PARTITIONS_OF_CLUSTER


def driver_memory(memory_bytes: int) -> int:
    return min(max(memory_bytes // MEMORY_PART, MEMORY_MIN), MEMORY_MAX)


def machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _number(given: Mapping[str, str], key: str) -> int:
    value = str(given.get(key, ""))
    return int(value) if value.isdecimal() else 0
