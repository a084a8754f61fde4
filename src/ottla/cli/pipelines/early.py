"""Java, started before the pipeline's file is read and all is imported: both take a second, and can go side by side.

It is a guess, made from a look at the text: an ordinary pipeline on this machine. What the file says later decides: if
its session needs other settings, it gets another Java, and if there is no session at all, this one ends at once.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla.pipelines.spark.session import end_early, start_early

NAME = re.compile(r"^name:[ \t]*([\w.-]+)[ \t]*$", re.MULTILINE)
OTHER = re.compile(r"\bspark\b|\bjvm\b|\bdelta\b|\brealtime\b|s3a:")  # other settings, or more jars
FILE_BYTES_MAX = 1 << 20


@contextmanager
def early_java(options: argparse.Namespace) -> Iterator[None]:
    name = likely_name(options)
    if name is not None:
        start_early(name, options.master)
    try:
        yield
    finally:
        end_early()


def likely_name(options: argparse.Namespace) -> str | None:
    """The name of the session that these options lead to, if it is an ordinary one."""
    file = Path(options.files[0])
    words = (*options.set, options.checkpoint or "", options.connector or "")
    if options.env or len(options.files) > 1 or file.suffix not in (".yaml", ".yml"):
        return None
    try:
        with file.open("rb") as opened:
            text = opened.read(FILE_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return None
    found = NAME.search(text)
    return found[1] if found and not any(OTHER.search(each) for each in (text, *words)) else None
