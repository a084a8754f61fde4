"""Limits of Spark's streaming queries: hints for unsupported queries, and the choice of the output mode."""

from __future__ import annotations

import re
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

CURES = {  # for operations that a streaming query does not support
    "Window function is not supported": "leave EMIT CHANGES out, or use the step top of a pipeline",
    "Streaming query is not allowed in subquery": "join the tables instead, or leave EMIT CHANGES out",
    "Sorting is not supported": "leave ORDER BY or EMIT CHANGES out",
    "Distinct aggregations": "write size(collect_set(column)), or leave EMIT CHANGES out",
    "without watermark on streaming": (
        "declare event_time in the table and group by a window of it, or leave EMIT CHANGES out"
    ),
    "without a watermark in the join keys": (
        "declare event_time in both tables and bound one time by the other in ON, or leave EMIT CHANGES out"
    ),
    "Except on a streaming": "leave EMIT CHANGES out",
    "Intersect of streaming": "leave EMIT CHANGES out",
}
OTHER_WAY = re.compile(r", or leave EMIT CHANGES out| or EMIT CHANGES|leave EMIT CHANGES out(, or )?")
ABOUT_MODES = ("Invalid streaming output mode", "only in Append output mode")


def with_cure(words: str, is_pipeline: bool = False) -> str:
    """Add a hint to Spark's error about a streaming query. A pipeline has no EMIT CHANGES to leave out."""
    cure = next((cure for text, cure in CURES.items() if text in words), "")
    cure = OTHER_WAY.sub("", cure) if is_pipeline else cure
    return f"{words}: {cure}" if cure else words


def output_mode(rows: DataFrame, wanted: str) -> str:
    """Return the wanted output mode, or another one that the query supports. Raises AnalysisException; prefers an
    error about the query over one that says that a mode does not fit."""
    java: Any = rows.sparkSession._jvm
    check = java.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming
    modes = java.org.apache.spark.sql.streaming.OutputMode
    problems: list[AnalysisException] = []
    for name in dict.fromkeys((wanted, "append", "update")):
        try:
            check(rows._jdf.queryExecution().analyzed(), modes.Append() if name == "append" else modes.Update())
        except AnalysisException as refused:
            problems.append(refused)
        else:
            return name
    raise next((each for each in problems if not any(words in str(each) for words in ABOUT_MODES)), problems[0])
