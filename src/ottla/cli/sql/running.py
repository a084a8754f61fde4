"""Runs the statements of a script or of an interactive session."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ottla.cli.arguments import bootstrap_of
from ottla.cli.client_settings import command_properties
from ottla.cli.pipelines.early import SQL_NAME
from ottla.cli.pipelines.files import state_of
from ottla.cli.pipelines.life import SPARK_GONE
from ottla.cli.pipelines.run import silence_pyspark
from ottla.cli.sql.output import choose_output
from ottla.cli.sql.problems import StatementError
from ottla.cli.sql.session import Session
from ottla.cli.terminal import EXIT_FAILED, ToolError, UsageError, exit_on_sigterm, fail, warn
from ottla.pipelines.running.source_options import starting_options
from ottla.pipelines.spark.masters import Kind, parse_master
from ottla.pipelines.spark.places import SparkStartError
from ottla.pipelines.spark.session import start_session
from ottla.pipelines.sql.documents import Head
from ottla.pipelines.sql.statements import Part, place_of, split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOOL = "ottla sql"


def run_script(options: argparse.Namespace, text: str, file: str) -> int:
    """Run statements up to the first one that fails."""
    parts, rest = split(text)
    with _session(options) as session:
        for part in [*parts, *([rest] if rest.text.strip() else [])]:
            try:
                session.run(part.text)
            except StatementError as problem:
                return fail(TOOL, _placed(problem, text, part, file), problem.code)
            if session.is_ended:
                break
        return EXIT_FAILED if session.has_losses else 0


def run_shell(options: argparse.Namespace) -> int:
    from ottla.cli.sql.shell import Shell  # noqa: PLC0415 (readline changes what input() does)

    with _session(options) as session:
        session.begin(is_warming=True)
        Shell(session, tell).run()
    return 0


def tell(problem: StatementError, text: str, part: Part) -> None:
    warn(_placed(problem, text, part, ""))


@contextmanager
def _session(options: argparse.Namespace) -> Iterator[Session]:
    if options.starting is not None:
        try:
            starting_options(options.starting)
        except ValueError as wrong:
            raise UsageError(f"--from: {wrong}") from None
    config = getattr(options, "command_config", None)
    head = Head(bootstrap_of(options), command_properties(config))
    start = lambda: _start(options.master)  # noqa: E731
    exit_on_sigterm()
    session = Session(head, choose_output(options.json), start, state_of(options), options.starting)
    session.roots = tuple(options.root)
    try:
        yield session
    finally:
        spark = session.started
        if spark is not None:
            stop_spark(spark)


def _start(master: str | None) -> SparkSession:
    silence_pyspark()
    if master and parse_master(master).kind is Kind.CONNECT:
        raise UsageError("ottla sql does not support Spark Connect: use another --master")
    try:
        return start_session(SQL_NAME, master, is_lean=True)
    except SparkStartError as problem:
        raise ToolError(str(problem)) from None


def stop_spark(spark: SparkSession) -> None:
    with suppress(*SPARK_GONE):
        spark.stop()


def _placed(problem: StatementError, text: str, part: Part, file: str) -> str:
    """The place as file:3:14, as compilers write it, or as line and column in words."""
    lead = len(part.text) - len(part.text.lstrip())
    line, column = place_of(text, part.start + (lead if problem.at is None else problem.at))
    if file:
        return f"{file}:{line}:{column}: {problem}"
    return f"line {line}, column {column}: {problem}"
