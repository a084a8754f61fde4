"""Pipeline cases as pytest tests: `orders.test.yaml` beside `orders.yaml`, one test for each case.

Nothing is imported or started before such a file is found, and Spark not before a case runs: one Spark for all cases,
stopped at the end of the session. A file of that name without cases, or without a pipeline, is left to other plugins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.trials.cases import CaseFile, pipeline_beside, read_case_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.pipelines.running.loading import Loaded

CASES = re.compile(rb"^cases:", re.MULTILINE)
NAMES_PIPELINE = re.compile(rb"^pipeline:", re.MULTILINE)
PIPELINE = re.compile(rb"^(from|streams):|\bottla\b", re.MULTILINE)
SPARK = pytest.StashKey["SparkSession"]()


class CaseFailed(Exception):  # noqa: N818 (the name is never shown)
    """The text is the test report."""


class CaseModule(pytest.File):
    """A file with cases."""

    found: CaseFile
    loaded: Loaded

    def collect(self) -> Iterable[pytest.Item]:
        from ottla.pipelines.running.loading import load_pipeline  # noqa: PLC0415 (half a second)

        try:
            self.found = read_case_file(self.path)
            self.loaded = load_pipeline(self.found.pipeline)
            cases = self.found.cases(self.loaded.pipeline)
        except PipelineError as wrong:
            raise self.CollectError(str(wrong)) from None
        for case in cases:
            yield CaseItem.from_parent(self, name=case.name, case=case)


class CaseItem(pytest.Item):
    """One case."""

    def __init__(self, case: Any, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.case = case

    def runtest(self) -> None:
        from ottla.pipelines.trials.trial import run_case, session_of  # noqa: PLC0415 (a second)

        module = self.getparent(CaseModule)
        assert module is not None
        pipeline = module.loaded.pipeline
        try:
            outcome = run_case(session_of(_spark(self.config), pipeline), pipeline, self.case)
        except PipelineError as wrong:
            raise CaseFailed(str(module.loaded.placed(wrong))) from None
        if not outcome.is_passed:
            raise CaseFailed("\n".join([outcome.failure] if outcome.failure else outcome.differences))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *arguments: Any) -> Any:
        if isinstance(excinfo.value, CaseFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, *arguments)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        module = self.getparent(CaseModule)
        line = module.found.document.lines.get(self.case.path) if module else None
        return self.path, line - 1 if line else None, self.name


def collect(file: Path, parent: pytest.Collector) -> pytest.Collector | None:
    return CaseModule.from_parent(parent, path=file) if is_ours(file) else None


def is_ours(file: Path) -> bool:
    """Whether the file has cases, and names a pipeline or has one beside it."""
    try:
        text = file.read_bytes()
        beside = pipeline_beside(file)
        other = beside.read_bytes() if beside else b""
    except OSError:
        return False
    return bool(CASES.search(text) and (NAMES_PIPELINE.search(text) or PIPELINE.search(other)))


def _spark(config: pytest.Config) -> SparkSession:
    if SPARK not in config.stash:
        from ottla.pipelines.trials.trial import trial_spark  # noqa: PLC0415

        ending = ExitStack()
        config.stash[SPARK] = ending.enter_context(trial_spark({}))
        config.add_cleanup(ending.close)
    return config.stash[SPARK]
