"""What ended a query, in words for its owner."""

from __future__ import annotations

import re

from pyspark.errors import AnalysisException

from ottla.pipelines.model.problems import Path, Problem
from ottla.pipelines.running.checkpoint import FRESH
from ottla.pipelines.running.spark_advice import with_advice
from ottla.pipelines.source.losses import CURE as SPARKS_CURE

LINE_LENGTH_MAX = 400
OWN = ("SinkError", "SourceError", "DataLossError", "RuntimeError")  # their words say it all
RAISED = "[USER_RAISED_EXCEPTION] "  # by a column of ours
CALLED = "An error occurred while calling"  # Py4J's own words; those of Java follow
WORDS = r"((?:.+:\n(?!\s))?.+)$"  # a line that ends with a colon goes on
PYTHON_ERROR = re.compile(rf"^(?:: )?(?:[\w.]*\.)?(\w*(?:Error|Exception|Loss|Missing)\w*): {WORDS}", re.MULTILINE)
AWAITED = "Exception thrown in awaitResult:"  # of another thread, whose own words are told as the cause
PLAN = "=== Streaming Query ==="  # what follows may have words of anybody in it
CAUSE = re.compile(rf"^Caused by: [\w.$]+: (?!Exception thrown in awaitResult){WORDS}", re.MULTILINE)
# Of the machine: Spark's own sentence says what it was about to do, and not why it could not.
REFUSALS = ("No space left on device", "Disk quota exceeded", "Read-only file system")
REFUSED = re.compile(rf"^Caused by: .*({'|'.join(REFUSALS)})", re.MULTILINE)
ROOM = "make room there; the next run goes on where this one ended"
STATE = re.compile(r"\[CANNOT_LOAD_STATE_STORE[\w.]*\] (?:An error occurred during loading state\. )?(.+)")
GONE = re.compile(r"(\S+) does not exist")
UNFIT_CALL = re.compile(r'Cannot resolve the runtime replaceable expression "(.+)"\. The replacement is unresolved')
UNFIT_WORDS = "has an argument that the function does not take in Spark's SQL"
FRAMES = re.compile(r"^\s+(at |File |\^|\.\.\. \d+ more)")
CURES = (
    *((refusal, ROOM) for refusal in REFUSALS[:2]),
    ("failOnDataLoss", "if that was meant, set fail_on_data_loss: false to go on with what is there, or run --fresh"),
    ("UnknownTopicOrPartition", "create the topic, or correct its name"),
    ("CHECKPOINT", "the checkpoint belongs to another version of this pipeline: run with --fresh to begin a new one"),
    ("STATE_STORE_INVALID_CONFIG", "the checkpoint was made with it: set it back, or --fresh"),
    (
        "STATE_STORE_",
        "a step with state gets other columns or types than the checkpoint was made with: take it back, or --fresh",
    ),
    (
        "Number of partitions",
        "the checkpoint was made with another number of partitions: keep spark.sql.shuffle.partitions",
    ),
)


def plain_failure(error: BaseException, path: Path) -> Problem:
    """One line: the innermost cause that a person can do something about."""
    text = _text(error)
    if isinstance(error, AnalysisException):  # the plan follows, with all options of the sources in it
        text = text.strip().partition("\n")[0]
    state = STATE.search(text)
    if state is not None:
        return Problem(path, f"the state of a step {_lost(state[1])}", FRESH)
    cure = next((cure for word, cure in CURES if word in text), "")
    said = text.replace(f". {SPARKS_CURE}", "")  # the cure is told in the words of a pipeline's file
    return Problem(path, first_cause(said), cure)


def _text(error: BaseException) -> str:
    """Without the plan. What Spark has awaited of another thread is told by the cause alone."""
    said = str(error).partition(PLAN)[0]
    cause = getattr(error, "_cause", None)
    return _text(cause) if said.strip().endswith(AWAITED) and cause is not None else said


def _lost(words: str) -> str:
    file = GONE.search(words)
    return f"is not whole: {file[1]} is gone" if file else f"cannot be read: {_shortened(words)}"


def first_cause(text: str) -> str:
    """The last Python error in a stack of Java and Python frames, or what Java told Py4J, else the first line of the
    message."""
    refused = REFUSED.search(text)
    told = _first_cause(text)
    return told if refused is None or refused[1] in told else _shortened(f"{told.rstrip('.')}: {refused[1]}")


def _first_cause(text: str) -> str:
    unfit = UNFIT_CALL.search(text)
    if unfit is not None:  # that Spark did not expect it is of no use to who wrote it
        return _shortened(f"{unfit[1]} {UNFIT_WORDS}")
    found = PYTHON_ERROR.findall(text)
    if found:
        name, words = found[-1]
        if words.strip() == AWAITED and (causes := CAUSE.findall(text)):
            return _shortened(causes[-1])
        return _shortened(words if name in OWN or words.startswith(RAISED) else f"{name}: {words}")
    lines = [line for line in text.splitlines() if line.strip() and not FRAMES.match(line)]
    if len(lines) > 1 and lines[0].startswith(CALLED):
        del lines[0]
    told = lines[0].lstrip(": ").strip() if lines else ""
    if told.endswith(":") and len(lines) > 1:
        told = f"{told} {lines[1].strip()}"
    return _shortened(told if told and not told.endswith(":") else f"{told} Spark did not say why".strip())


def _shortened(line: str) -> str:
    line = " ".join(line.splitlines())
    line = with_advice(line.split(" SQLSTATE", maxsplit=1)[0].rstrip(";"))
    return line if len(line) <= LINE_LENGTH_MAX else f"{line[:LINE_LENGTH_MAX]}..."
