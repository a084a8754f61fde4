"""Errors of SQL statements, in words for the user."""

from __future__ import annotations

from ottla.cli.terminal import EXIT_FAILED, EXIT_USAGE
from ottla.pipelines.expressions.problems import SqlError
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.sql.catalog import Catalog
from ottla.pipelines.sql.execution import QueryFailedError
from ottla.pipelines.sql.other_words import column_cure


class StatementError(Exception):
    """A message, the place in the statement if it is known, and the exit code, which distinguishes a wrong statement
    from a failure during its execution.
    """

    def __init__(self, words: str, at: int | None = None, code: int = EXIT_USAGE) -> None:
        super().__init__(words)
        self.at = at
        self.code = code


def exit_code_of(problem: QueryFailedError) -> int:
    return EXIT_USAGE if problem.is_of_text else EXIT_FAILED


def unknown_table(catalog: Catalog, name: str, problem: SqlError) -> SqlError:
    """A message that suggests the nearest name."""
    better = SqlError(f"reads {name}, but only tables and topics can be read")
    if "." not in name:
        try:
            catalog.table(name.strip("`"))
        except SqlError as found:
            better = found
    better.at = problem.at
    return better


def words_of(wrong: PipelineError) -> str:
    told = (f"{problem.cause}{'; ' if problem.cure else ''}{problem.cure}" for problem in wrong.problems)
    return column_cure("; ".join(told))
