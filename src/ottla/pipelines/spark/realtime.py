"""The limits of Spark's real-time mode, in which a row does not wait for a batch; verified on Spark 4.2.

Its tasks run for a whole checkpoint interval, one per partition of a topic, and pass each row on at once. So (1) there
is no shuffle, hence no state; (2) no Python inside the plan; (3) source and sink are Spark's own Kafka connector, at
least once, in update mode; (4) there must be a free core for each partition: Spark starts as many tasks as there are
cores and silently does not read the other partitions. Filters, projections, from_json and from_csv, explode,
watermarks, a join with a table that fits into memory, and row counts (observe) are permitted. Unknown steps are
rejected here; Spark rejects the rest.
"""

from __future__ import annotations

OUTPUT_MODE = "update"
INTERVAL_SECONDS_MIN = 5  # Spark's lower bound

NEEDS_STATE = "keeps state between rows, which needs a shuffle"
NEEDS_PYTHON = "runs Python for each row"

STEPS_ALLOWED = frozenset(
    {
        *("parse", "filter", "rule", "select", "rename", "drop", "cast", "derive", "mask", "flatten", "explode"),
        *("sample", "union", "watermark", "join"),
    }
)
STEPS_REFUSED = {
    "window": NEEDS_STATE,
    "deduplicate": NEEDS_STATE,
    "top": NEEDS_STATE,
    "anomalies": NEEDS_STATE,
    "associations": NEEDS_STATE,
    "order": NEEDS_STATE,
    "pattern": NEEDS_STATE,
    "stateful": NEEDS_STATE,
    "sql": "may need a shuffle, which its text does not show",
    "python": NEEDS_PYTHON,
    "outliers": NEEDS_PYTHON,
    "enrich": NEEDS_PYTHON,
}
PARSED_IN_JAVA = frozenset({"json", "csv", "text"})  # other formats are decoded in Python


def trigger_arguments(interval_seconds: int = INTERVAL_SECONDS_MIN) -> dict[str, str]:
    """For `DataStreamWriter.trigger`: the checkpoint interval, not the latency of rows."""
    return {"realTime": f"{max(interval_seconds, INTERVAL_SECONDS_MIN)} seconds"}


def step_problem(name: str, spec: object = None) -> str | None:
    """Why a step cannot be used in real-time mode; None if it can. `spec` is the step as written."""
    if name == "parse" and getattr(spec, "format", "json") not in PARSED_IN_JAVA:
        return f"parse {getattr(spec, 'format', '')}: {NEEDS_PYTHON}"
    if name == "filter" and getattr(spec, "classifier", None):
        return f"filter by a classifier: {NEEDS_PYTHON}"
    if name == "join" and getattr(spec, "with_stream", None):
        return f"join with a stream: {NEEDS_STATE}"
    if name in STEPS_ALLOWED:
        return None
    return f"{name}: {STEPS_REFUSED.get(name, 'not known to work in real-time mode')}"


def sink_problem(sink: object) -> str | None:
    """The same for a sink, as written."""
    if getattr(sink, "topic", None) is None:
        return "real-time mode writes to topics only"
    if getattr(sink, "delivery", "exactly-once") != "at-least-once":
        return "real-time mode delivers at least once: write delivery: at-least-once"
    return f"a topic in Avro: {NEEDS_PYTHON}" if getattr(sink, "format", "json") == "avro" else None


def cores_problem(partitions: int, cores: int | None) -> str | None:
    """With too few cores, partitions without a task would silently never be read."""
    if cores is None or partitions <= cores:
        return None
    return (
        f"real-time mode needs a core for each partition: {partitions} partitions, {cores} cores; "
        f"use --master 'local[{partitions}]' (more than the machine has is allowed) or a larger cluster"
    )
