"""Fetches jars with Apache Ivy, which is among PySpark's own jars.

Ivy knows Maven Central, verifies downloads, and supports a settings file for mirrors: OTTLA_IVY_SETTINGS names one.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from ottla.pipelines.spark.places import Installed, SparkStartError, cache_folder

SETTINGS_VARIABLE = "OTTLA_IVY_SETTINGS"
FETCH_SECONDS_MAX = 600
NOT_FOUND = re.compile(r":: (\S+)#(\S+);(\S+): not found")
UNREACHABLE = re.compile(r"Server access error|Host \S+ not found")


class Module(NamedTuple):
    """A jar in Maven coordinates; `revision` may be a range, [4.2.0,4.2.1], of which the newest is used."""

    organisation: str
    name: str
    revision: str
    is_override: bool = False  # not requested: the revision to use if another module requires it

    def __str__(self) -> str:
        return f"{self.organisation}:{self.name}:{self.revision}"


class NotFoundError(Exception):
    """The repository answered, and has no requested revision of one of the modules."""


class UnreachableError(Exception):
    """The repository did not answer."""


def fetch(spark: Installed, java: Path, modules: Sequence[Module], folder: Path) -> None:
    """Put the jars of these modules, and their dependencies that Spark lacks, into the folder. Raises NotFoundError,
    UnreachableError, SparkStartError."""
    request = folder / "ivy.xml"
    request.write_text(request_text(modules, spark.artifacts()), encoding="utf-8")
    command = command_line(spark, java, request, folder)
    try:
        done = subprocess.run(  # # noqa: S603 (our own command line)
            command, capture_output=True, text=True, errors="replace", check=False, timeout=FETCH_SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        raise UnreachableError(f"no answer in {FETCH_SECONDS_MAX} s") from None
    finally:
        request.unlink(missing_ok=True)
    judge(done.returncode, done.stdout + done.stderr)


def request_text(modules: Sequence[Module], excluded: Collection[str]) -> str:
    """An ivy.xml: the modules, and the names to exclude because Spark has them."""
    lines = ['<ivy-module version="2.0">', '<info organisation="ottla" module="jars"/>']
    lines += ['<configurations><conf name="default"/></configurations>', "<dependencies>"]
    lines += [_dependency_text(module) for module in modules if not module.is_override]
    lines += [f"<exclude module={quoteattr(name)}/>" for name in sorted(excluded)]
    lines += [_dependency_text(module) for module in modules if module.is_override]
    return "\n".join([*lines, "</dependencies>", "</ivy-module>", ""])


def command_line(spark: Installed, java: Path, request: Path, folder: Path) -> list[str]:
    ivy = next(iter(sorted(spark.jars.glob("ivy-*.jar"))), None)
    if ivy is None:
        raise SparkStartError(f"{spark.jars} lacks Apache Ivy, with which jars are fetched: install PySpark again")
    settings = os.environ.get(SETTINGS_VARIABLE)
    if settings and not Path(settings).is_file():
        raise SparkStartError(f"{SETTINGS_VARIABLE}={settings}: there is no such file")
    return [
        str(java),
        *proxy_options(os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy") or ""),
        "-cp",
        str(ivy),
        "org.apache.ivy.Main",
        *(["-settings", settings] if settings else []),
        *("-cache", str(cache_folder() / "ivy")),
        *("-ivy", str(request)),
        *("-confs", "default"),
        *("-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"),
        "-warn",
    ]


def proxy_options(proxy: str) -> list[str]:
    """Java ignores the proxy variable of the environment."""
    found = urlsplit(proxy)
    if not found.hostname:
        return []
    return [f"-Dhttps.proxyHost={found.hostname}", f"-Dhttps.proxyPort={found.port or 80}"]


def judge(code: int, output: str) -> None:
    """Ivy reports errors only as text. Raises for any error."""
    if code == 0 and "UNRESOLVED DEPENDENCIES" not in output and "FAILED DOWNLOADS" not in output:
        return
    if UNREACHABLE.search(output):
        raise UnreachableError(_first_line(output, UNREACHABLE))
    missing = NOT_FOUND.search(output)
    if missing:
        raise NotFoundError(f"{missing[1]}:{missing[2]}:{missing[3]}")
    raise UnreachableError(f"Apache Ivy failed: {' '.join(output.split())[-300:]}")


def _dependency_text(module: Module) -> str:
    organisation, name, revision = map(quoteattr, (module.organisation, module.name, module.revision))
    if module.is_override:
        return f"<override org={organisation} module={name} rev={revision}/>"
    where = f"org={organisation} name={name} rev={revision}"
    return f'<dependency {where} conf="default->default"/>'


def _first_line(output: str, pattern: re.Pattern[str]) -> str:
    return next((line.strip() for line in output.splitlines() if pattern.search(line)), "")[:200]
