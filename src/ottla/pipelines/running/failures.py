"""The reason why a query ended, as one readable line."""

from __future__ import annotations

import re

from pyspark.errors import AnalysisException

from ottla.pipelines.model.problems import Path, Problem
from ottla.pipelines.running.checkpoint import FRESH
from ottla.pipelines.running.spark_advice import with_advice
from ottla.pipelines.source.data_loss import LOSS_HINT as SPARKS_CURE

LINE_LENGTH_MAX = 400
OWN = ("SinkError", "SourceError", "DataLossError", "RuntimeError")  # their messages are complete
RAISED = "[USER_RAISED_EXCEPTION] "  # raised by our own expressions
CALLED = "An error occurred while calling"  # Py4J's prefix of Java messages
WORDS = r"((?:.+:\n(?!\s))?.+)$"  # a line that ends with a colon continues
PYTHON_ERROR = re.compile(rf"^(?:: )?(?:[\w.]*\.)?(\w*(?:Error|Exception|Loss|Missing)\w*): {WORDS}", re.MULTILINE)
AWAITED = "Exception thrown in awaitResult:"  # from another thread, reported by its cause
PLAN = "=== Streaming Query ==="  # the rest may contain arbitrary text
CAUSE = re.compile(rf"^Caused by: [\w.$]+: (?!Exception thrown in awaitResult){WORDS}", re.MULTILINE)
# Machine errors: Spark's message names the operation, not the cause.
REFUSALS = ("No space left on device", "Disk quota exceeded", "Read-only file system")
REFUSED = re.compile(rf"^Caused by: .*({'|'.join(REFUSALS)})", re.MULTILINE)
ROOM = "free disk space; the next run continues where this one ended"
STATE = re.compile(r"\[CANNOT_LOAD_STATE_STORE[\w.]*\] (?:An error occurred during loading state\. )?(.+)")
GONE = re.compile(r"(\S+) does not exist")
UNFIT_CALL = re.compile(r'Cannot resolve the runtime replaceable expression "(.+)"\. The replacement is unresolved')
UNFIT_WORDS = "has an argument that the function does not take in Spark's SQL"
FRAMES = re.compile(r"^\s+(at |File |\^|\.\.\. \d+ more)")
CURES = (
    *((refusal, ROOM) for refusal in REFUSALS[:2]),
    (
        "failOnDataLoss",
        "if this is intended, set fail_on_data_loss: false to continue with what is available, or run --fresh",
    ),
    ("UnknownTopicOrPartition", "create the topic, or correct its name"),
    ("CHECKPOINT", "the checkpoint belongs to another version of this pipeline: run with --fresh to begin a new one"),
    ("STATE_STORE_INVALID_CONFIG", "the checkpoint depends on it: restore it, or use --fresh"),
    (
        "STATE_STORE_",
        "a step with state gets other columns or types than in the checkpoint: revert the change, or use --fresh",
    ),
    (
        "Number of partitions",
        "the checkpoint has another number of partitions: keep spark.sql.shuffle.partitions",
    ),
)


def plain_failure(error: BaseException, path: Path) -> Problem:
    """One line: the innermost actionable cause."""
    text = _text(error)
    if isinstance(error, AnalysisException):  # the plan follows, with all options of the sources
        text = text.strip().partition("\n")[0]
    state = STATE.search(text)
    if state is not None:
        return Problem(path, f"the state of a step {_lost(state[1])}", FRESH)
    cure = next((cure for word, cure in CURES if word in text), "")
    said = text.replace(f". {SPARKS_CURE}", "")  # the hint uses the pipeline file's terms
    return Problem(path, first_cause(said), cure)


def _text(error: BaseException) -> str:
    """Without the plan. An error awaited from another thread is reported by its cause alone."""
    said = str(error).partition(PLAN)[0]
    cause = getattr(error, "_cause", None)
    return _text(cause) if said.strip().endswith(AWAITED) and cause is not None else said


def _lost(words: str) -> str:
    file = GONE.search(words)
    return f"is not whole: {file[1]} is gone" if file else f"cannot be read: {_shortened(words)}"


def first_cause(text: str) -> str:
    """The last Python error in a stack of Java and Python frames, or the Java message in a Py4J error, else the
    first line."""
    refused = REFUSED.search(text)
    told = _first_cause(text)
    return told if refused is None or refused[1] in told else _shortened(f"{told.rstrip('.')}: {refused[1]}")


def _first_cause(text: str) -> str:
    unfit = UNFIT_CALL.search(text)
    if unfit is not None:  # "unexpected" has no meaning to the author of the query
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
