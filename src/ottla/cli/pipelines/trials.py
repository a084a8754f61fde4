"""`ottla pipeline test`: runs the test cases of a pipeline on Spark, without a broker.

Prints one line per case, and the differences of failed ones. Exit code 1 if a case fails, 2 if the pipeline or the file
with the cases is invalid; then no case is run.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.arguments import closest_match
from ottla.cli.pipelines.files import load, tell
from ottla.cli.terminal import EXIT_FAILED, ToolError, UsageError, print_line
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.trials.cases import (
    Case,
    CaseFile,
    cases_beside,
    is_case_file,
    read_case_file,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.pipelines.running.loading import Loaded
    from ottla.pipelines.trials.trial import Outcome


def run_test(options: argparse.Namespace) -> int:
    started = time.monotonic()
    loaded: Loaded | None = None
    try:
        files = case_files(options)
        loaded = load(options)
        chosen = [case for file in files for case in chosen_cases(options, file, loaded)]
    except PipelineError as wrong:
        return tell(wrong)
    _check_names(options, files)
    outcomes: list[Outcome] = []
    try:
        with trial_session(loaded) as spark:
            from ottla.pipelines.trials.trial import run_cases  # noqa: PLC0415 (a second)

            for outcome in run_cases(spark, loaded.pipeline, chosen):
                outcomes.append(outcome)
                _tell(options, outcome)
    except PipelineError as wrong:
        return tell(loaded.placed(wrong))
    failed = sum(not outcome.is_passed for outcome in outcomes)
    _tell_sum(options, len(outcomes) - failed, failed, time.monotonic() - started)
    return EXIT_FAILED if failed else 0


def case_files(options: argparse.Namespace) -> list[CaseFile]:
    """The named files, else the one next to the pipeline. FILE itself may be one, because it names the pipeline. Raises
    PipelineError, UsageError.
    """
    file = Path(options.file)
    if is_case_file(file):
        found = read_case_file(file)
        options.file = str(found.pipeline)
        return [found]
    named = [Path(word) for word in options.cases if is_case_file(Path(word))]
    if not named:
        beside = cases_beside(file)
        if beside is None:
            wanted = file.with_name(f"{file.stem}.test.yaml")
            raise UsageError(f"there are no cases for {file}: write them to {wanted}")
        named = [beside]
    return [read_case_file(each) for each in named]


def chosen_cases(options: argparse.Namespace, file: CaseFile, loaded: Loaded) -> list[Case]:
    wanted = [word for word in options.cases if not is_case_file(Path(word))]
    return [case for case in file.cases(loaded.pipeline) if not wanted or case.name in wanted]


@contextmanager
def trial_session(loaded: Loaded) -> Iterator[SparkSession]:
    """Raises ToolError."""
    from ottla.cli.pipelines.run import silence_pyspark  # noqa: PLC0415 (a second)
    from ottla.pipelines.running.own_code import has_own_code  # noqa: PLC0415
    from ottla.pipelines.spark.places import SparkStartError  # noqa: PLC0415
    from ottla.pipelines.trials.trial import session_of, trial_spark  # noqa: PLC0415

    silence_pyspark()
    try:
        with trial_spark(loaded.pipeline.fields.spark, not has_own_code(loaded.pipeline)) as spark:
            yield session_of(spark, loaded.pipeline)
    except SparkStartError as problem:
        raise ToolError(str(problem)) from None


def _check_names(options: argparse.Namespace, files: Sequence[CaseFile]) -> None:
    known = [name for file in files for name in file.names]
    for word in options.cases:
        if not is_case_file(Path(word)) and word not in known:
            guess = closest_match(word, known)
            raise UsageError(
                f"unknown case {word!r}" + (f"; did you mean {guess!r}?" if guess else f"; known: {', '.join(known)}")
            )


def _tell(options: argparse.Namespace, outcome: Outcome) -> None:
    lines = [outcome.failure] if outcome.failure else outcome.differences
    if options.json:
        values = {
            "case": outcome.case.name,
            "passed": outcome.is_passed,
            "seconds": round(outcome.seconds, 3),
            "differences": lines,
        }
        print(json.dumps(values, ensure_ascii=False), flush=True)
        return
    print_line(f"{'ok  ' if outcome.is_passed else 'FAIL'}  {outcome.case.name}  {outcome.seconds:.1f} s")
    for line in lines:
        print_line(f"      {line}")


def _tell_sum(options: argparse.Namespace, passed: int, failed: int, seconds: float) -> None:
    if options.json:
        print(json.dumps({"passed": passed, "failed": failed, "seconds": round(seconds, 3)}), flush=True)
    else:
        parts = [f"{passed} passed"] if passed or not failed else []
        print_line(f"{', '.join([*([f'{failed} failed'] if failed else []), *parts])} in {seconds:.1f} s")
