"""The reason why a query ended, in one line with a hint."""

from __future__ import annotations

from pyspark.errors import AnalysisException

from ottla.pipelines.running.failures import first_cause, plain_failure

PLAN = "\n+- ~StreamingRelationV2 ottla, ottla, [failOnDataLoss=true, subscribe=orders], [key, value]"


def test_the_plan_of_a_query_is_no_part_of_its_failure() -> None:
    problem = plain_failure(AnalysisException(f"Distinct aggregations are not supported.;{PLAN}"), ())
    assert (problem.cause, problem.cure) == ("Distinct aggregations are not supported.", "")


def test_lost_records_have_their_cure() -> None:
    problem = plain_failure(RuntimeError("Some data may have been lost, see\nfailOnDataLoss"), ())
    assert "fail_on_data_loss: false" in problem.cure


STATE = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "java_gateway.py", line 1362, in __call__
    raise Py4JJavaError(
py4j.protocol.Py4JJavaError: An error occurred while calling o3684.parquet.
: org.apache.spark.SparkException: {}
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.failed(QueryExecutionErrors.scala:2297)
Caused by: java.io.FileNotFoundException: File file:/state/0/1/2.changelog does not exist
"""


def test_state_that_is_gone_is_named() -> None:
    """Spark's message if a sink runs the plan in its own call."""
    gone = "Error reading streaming state file of file:/state/0/1/2.changelog does not exist. If the stream job …"
    label = "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE] An error occurred during loading state."
    problem = plain_failure(RuntimeError(STATE.format(f"{label} {gone} SQLSTATE: 58030")), ())
    assert problem.cause == "the state of a step is not whole: file:/state/0/1/2.changelog is gone"
    assert "--fresh" in problem.cure
    odd = "[CANNOT_LOAD_STATE_STORE.UNEXPECTED_VERSION] An error occurred during loading state. Version cannot be -1"
    assert plain_failure(RuntimeError(STATE.format(odd)), ()).cause == (
        "the state of a step cannot be read: Version cannot be -1"
    )


def test_the_java_message_is_reported_without_the_call() -> None:
    assert first_cause(STATE.format("no space is left")) == "SparkException: no space is left"


def test_a_full_or_read_only_disk_is_named() -> None:
    """Spark's message names the operation, and the last of its causes the reason."""
    label = "[TASK_WRITE_FAILED] Task failed while writing rows to file:/rows/1. SQLSTATE: 58030"
    full = STATE.replace("FileNotFoundException: File file:/state/0/1/2.changelog does not exist", "IOException: {}")
    problem = plain_failure(RuntimeError(full.format(label, "No space left on device")), ())
    assert problem.cause == "Task failed while writing rows to file:/rows/1: No space left on device"
    assert problem.cure == "free disk space; the next run continues where this one ended"
    words = "a/b: Read-only file system"
    assert first_cause(full.format(label, words)).endswith("file:/rows/1: Read-only file system")
    assert first_cause("OSError: [Errno 28] No space left on device") == ("OSError: [Errno 28] No space left on device")


def test_a_message_over_several_lines_is_complete() -> None:
    text = "[INCONSISTENT] You may get a different result:\nAll such patterns are unsupported. SQLSTATE: 42K0B"
    assert first_cause(text) == "You may get a different result: All such patterns are unsupported."
    cut = (
        "You may get a different result due to the upgrading to Spark >= 3.0:\nAll week-based patterns are unsupported."
    )
    for text in (
        STATE.format(f"[INCONSISTENT] {cut} SQLSTATE: 42K0B"),
        STATE.replace(
            "java.io.FileNotFoundException: File file:/state/0/1/2.changelog does not exist", "a.B: [INCONSISTENT] {}"
        ).format("Exception thrown in awaitResult: ", cut),
    ):
        assert first_cause(text) == (
            "All week-based patterns are unsupported; write yyyy for the year, and EXTRACT(WEEK FROM time) for the week"
        )
    assert first_cause("It failed:") == "It failed: Spark did not say why"


def test_a_call_that_does_not_fit_is_no_internal_error() -> None:
    call = 'Cannot resolve the runtime replaceable expression "to_timestamp_ltz(1, 3)". The replacement is unresolved'
    text = f': org.apache.spark.SparkException: [INTERNAL_ERROR] {call}: "gettimestamp(1, 3)". SQLSTATE: XX000'
    assert first_cause(text).startswith("to_timestamp_ltz(1, 3) has an argument that the function does not take")


class CapturedError(Exception):
    """PySpark's form of Java errors: the cause is a separate attribute."""

    def __init__(self, words: str, cause: Exception | None = None) -> None:
        super().__init__(words)
        self._cause = cause


def test_the_error_of_another_thread_is_reported_without_the_wait() -> None:
    met = CapturedError("java.io.FileNotFoundException: File file:/staged/rows.parquet does not exist")
    awaited = CapturedError("org.apache.spark.SparkException: Exception thrown in awaitResult: ", met)
    error = CapturedError(
        f"Exception thrown in awaitResult: \n=== Streaming Query ===\nIdentifier: a\nLogical Plan:{PLAN}", awaited
    )
    assert "File file:/staged/rows.parquet does not exist" in plain_failure(error, ()).cause
