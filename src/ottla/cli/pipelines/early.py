"""Starts Java before a pipeline's file is read and modules are imported: both take a second and can overlap.

The settings are a guess from the text: an ordinary pipeline on this machine, or SQL that returns rows. If the session
needs other settings it starts another Java; if there is no session, this one is stopped.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ottla.pipelines.spark.class_archive import Work
from ottla.pipelines.spark.session import end_early, start_early
from ottla.pipelines.spark.zone import in_utc
from ottla.pipelines.trials import settings as trials

NAME = re.compile(r"^name:[ \t]*([\w.-]+)[ \t]*$", re.MULTILINE)
OTHER = re.compile(r"\bspark\b|\bjvm\b|\bdelta\b|\brealtime\b|s3a:")  # other settings, or more jars
CODE = re.compile(r"\b(python|stateful|classifier|foreach_batch)\b")  # with unknown requirements of Spark
ASKS = re.compile(r"\bselect\b", re.IGNORECASE)
FILE_BYTES_MAX = 1 << 20
SQL_NAME = "ottla-sql"


class Guess(NamedTuple):
    """The session that will probably be requested."""

    name: str
    master: str | None
    settings: dict[str, str]
    is_lean: bool
    work: Work = "queries"


@contextmanager
def early_java(guess: Guess | None) -> Iterator[None]:
    with in_utc():
        if guess is not None:
            start_early(*guess)
        try:
            yield
        finally:
            end_early()


def likely_session(options: argparse.Namespace) -> Guess | None:
    """The session for the options of `pipeline`."""
    text = likely_text(options)
    name = NAME.search(text)
    if name is None:
        return None
    is_lean = not CODE.search(text)
    if options.command == "test":
        return Guess(trials.NAME, None, trials.ALL_SETTINGS, is_lean, "trials")
    return Guess(name[1], options.master, {}, is_lean, "streams" if options.command == "run" else "queries")


def sql_session(master: str | None, script: str | None) -> Guess | None:
    """The session of `sql`: always for a prompt, for a script only if it returns rows."""
    return Guess(SQL_NAME, master, {}, is_lean=True) if script is None or ASKS.search(script) else None


def likely_text(options: argparse.Namespace) -> str:
    """The file of the pipeline if it is an ordinary one."""
    given = vars(options)
    files = given.get("files") or [options.file]
    file = Path(files[0])
    words = (*options.set, given.get("checkpoint") or "", given.get("connector") or "")
    if options.env or len(files) > 1 or file.suffix not in (".yaml", ".yml"):
        return ""
    try:
        with file.open("rb") as opened:
            text = opened.read(FILE_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ""
    return "" if any(OTHER.search(each) for each in (text, *words)) else text
