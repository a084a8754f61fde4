"""Maps errors of Spark and of steps to the place in the pipeline file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyspark.errors import AnalysisException, ParseException, PySparkException

from ottla.pipelines.model.problems import Path, PipelineError, Problem
from ottla.pipelines.running.spark_advice import with_advice
from ottla.pipelines.steps.step import StepError

PARSE_PLACE = re.compile(r"\(line 1, pos (\d+)\)\s+== SQL ==\n(.*)\n")


class ProblemLocation:
    """Converts errors of Spark and of a step to a problem with its place."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StepError):
            path = (*self.path, error.field) if error.field else self.path
            raise PipelineError([Problem(path, error.cause, error.cure)]) from error
        if isinstance(error, AnalysisException | ParseException):
            raise PipelineError([Problem(self.path, *plain_words(error))]) from error


def plain_words(error: AnalysisException) -> tuple[str, str]:
    """Cause and fix in one line each, without Spark's error class, position and plan."""
    parameters = error.getMessageParameters() or {}
    condition = error.getCondition() or ""
    if condition.startswith("UNRESOLVED_COLUMN"):
        name = str(parameters.get("objectName", "?")).replace("`", "")
        proposal = str(parameters.get("proposal", "")).replace("`", "").split(", ")
        known = ", ".join(each for each in proposal if not each.startswith("_"))  # hidden columns are internal
        return f"there is no column {name!r}", f"there are: {known}" if known else "there are no columns at all"
    if condition == "UNRESOLVED_ROUTINE":
        name = str(parameters.get("routineName", "?")).replace("`", "")
        return f"there is no function {name!r}", "those of Spark's SQL can be used"
    message = str(error).strip().splitlines()[0]  # parse errors start with an empty line
    return with_advice(message.split(" SQLSTATE")[0]).rstrip(".;"), ""


def spark_places(problem: PySparkException) -> Iterator[tuple[str, int]]:
    """Spark's text of the query and the position in it; PySpark reports only a fragment."""
    for context in problem.getQueryContext() or ():
        text = getattr(getattr(context, "_q", None), "sqlText", None)
        found = text() if text is not None else None
        if found is not None and found.isDefined():
            yield str(found.get()), context.startIndex()
    parsing = PARSE_PLACE.search(str(problem))
    if parsing:
        yield parsing[2], int(parsing[1])
