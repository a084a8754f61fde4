"""`make wheels`: compiled, the same from a used clone as from a new one, and enough for the first five minutes.

With OTTLA_TEST_WHEEL=dist/ottla-*.whl the tests of installed wheels take that file instead of building one.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.conftest import free_port
from tests.pipelines.running import produce, read_all

from ottla import __version__

pytestmark = [pytest.mark.faults, pytest.mark.needs_ottla]

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src", "tools")
LEFT_BEHIND = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
BUILD_SECONDS_MAX = 1800.0
SECONDS_MAX = 120.0
GIVEN = os.environ.get("OTTLA_TEST_WHEEL", "")
# To look into every file takes a while, and how well they are compiled is not what is looked at here.
QUICKLY = {"MYPYC_OPT_LEVEL": "0"}
IS_COMPILED = (
    "from ottla.storage import log; from ottla.network import connection; print(log.__file__, connection.__file__)"
)


def clone(folder: Path) -> Path:
    folder.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=LEFT_BEHIND)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def used_clone(folder: Path) -> Path:
    """With what builds, checks and installations of former times leave behind."""
    clone(folder)
    tag = f"cpython-{sys.version_info.major}{sys.version_info.minor}"
    for left in (
        f"build/lib.linux-x86_64-{tag}/ottla/gone.py",
        f"build/lib.linux-x86_64-{tag}/ottla/base/gone.{tag}-x86_64-linux-gnu.so",
        "build/lib/ottla/gone.py",
        f"src/ottla/base/clock.{tag}-x86_64-linux-gnu.so",
        ".mypy_cache/3.11/cache.db",
        "src/ottla.egg-info/SOURCES.txt",
    ):
        (folder / left).parent.mkdir(parents=True, exist_ok=True)
        (folder / left).write_text("src/ottla/gone.py\n")
    return folder


def plain_environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("OTTLA_PURE", "PYTHONPATH")}
    return {**kept, **more}


def run(*words: object, environment: dict[str, str], seconds_max: float = SECONDS_MAX, **more: object) -> str:
    command = [str(word) for word in words]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=seconds_max, check=False, **more
    )  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}: {(done.stdout + done.stderr)[-3000:]}"
    return str(done.stdout)


def contents(wheel: Path) -> dict[str, bytes]:
    """Files of a wheel; of what is compiled only the name, for it has the folder in it where that was done."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith(("/", "/RECORD", "/WHEEL"))]
        return {name: b"" if name.endswith(".so") else archive.read(name) for name in names}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make wheels` makes in a new clone, for this Python."""
    folder = tmp_path_factory.mktemp("wheels")
    run(
        *(sys.executable, clone(folder / "clone") / "tools/wheels.py"),
        *("--out", folder / "dist", "--python", getattr(sys, "_base_executable", sys.executable)),
        environment=plain_environment(**QUICKLY),
        seconds_max=BUILD_SECONDS_MAX,
    )
    return folder / "dist"


def test_there_is_an_sdist_and_a_wheel_that_runs_on_other_systems(built: Path) -> None:
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    (wheel,) = built.glob("*.whl")
    assert wheel.name.startswith(f"ottla-{__version__}-{tag}-{tag}-manylinux")
    assert (built / f"ottla-{__version__}.tar.gz").exists()


def test_a_used_clone_gives_the_same_wheel(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    used = used_clone(tmp_path / "used")
    run(
        *(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path / "dist", used),
        environment=plain_environment(**QUICKLY),
        seconds_max=BUILD_SECONDS_MAX,
    )
    (other,) = (tmp_path / "dist").glob("*.whl")
    expected, found = contents(wheel), contents(other)
    assert sorted(found) == sorted(expected)
    assert [name for name in found if found[name] != expected[name]] == []


def test_a_build_that_must_be_compiled_fails_without_a_compiler(tmp_path: Path) -> None:
    environment = plain_environment(**QUICKLY, OTTLA_COMPILED="1", CC="/bin/false")
    words = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path, clone(tmp_path / "clone"))
    done = subprocess.run(
        [*map(str, words)], env=environment, capture_output=True, timeout=BUILD_SECONDS_MAX, check=False
    )
    assert done.returncode != 0
    assert not list(tmp_path.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(request: pytest.FixtureRequest) -> Path:
    if GIVEN:
        return Path(GIVEN).resolve()
    (found,) = request.getfixturevalue("built").glob("*.whl")
    return Path(found)


def install(wheel: Path, extras: str, venv: Path) -> dict[str, str]:
    """An environment with nothing but the wheel and what it needs; there is no compiler on its PATH."""
    run(sys.executable, "-m", "venv", venv, environment=plain_environment())
    environment = plain_environment(PATH=str(venv / "bin"), CC="/bin/false")
    # PySpark has no wheels on PyPI.
    words = ("--quiet", "--only-binary", ":all:", "--no-binary", "pyspark", f"{wheel}{extras}")
    run(venv / "bin/python", "-m", "pip", "install", *words, environment=environment, seconds_max=BUILD_SECONDS_MAX)
    return {**environment, "VENV": str(venv)}


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return install(wheel, "[cli]", tmp_path_factory.mktemp("installed") / "venv")


def test_the_hot_files_are_compiled_without_a_compiler(installed: dict[str, str]) -> None:
    files = run(f"{installed['VENV']}/bin/python", "-c", IS_COMPILED, environment=installed, cwd="/").split()
    assert [Path(file).suffix for file in files] == [".so", ".so"]
    assert all(file.startswith(installed["VENV"]) for file in files)


@pytest.fixture
def server(installed: dict[str, str], tmp_path: Path) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    words = ["broker", "--override", f"listeners=PLAINTEXT://{address}", "--override", f"log.dirs={tmp_path}/data"]
    log = tmp_path / "broker.log"
    with log.open("wb") as output:
        broker = subprocess.Popen(
            [f"{installed['VENV']}/bin/ottla", *words, "--stop-on-eof"],
            env=installed,
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
        )
        try:
            assert broker.stdout is not None
            assert b"ready on" in broker.stdout.readline(), log.read_text()
            assert "plain Python" not in log.read_text()
            yield address
        finally:
            broker.communicate(timeout=SECONDS_MAX)


def test_the_first_five_minutes_of_the_readme(installed: dict[str, str], server: str) -> None:
    environment = {**installed, "OTTLA_BOOTSTRAP_SERVER": server}

    def ottla(*words: str, given: str = "") -> str:
        return run(f"{installed['VENV']}/bin/{words[0]}", *words[1:], environment=environment, input=given)

    assert ottla("ottla", "topics", "create", "orders", "--partitions", "3") == "Created topic orders (3 partitions).\n"
    ottla("ottla", "produce", "orders", given="a first order\n")
    assert ottla("ottla", "consume", "orders", "--from-beginning", "--max-messages", "1") == "a first order\n"
    old = ("--bootstrap-server", server)
    created = ottla("kafka-topics.sh", *old, "--create", "--topic", "greetings", "--partitions", "1")
    assert created == "Created topic greetings.\n"
    ottla("kafka-console-producer.sh", *old, "--topic", "greetings", given="hello\n")
    words = ("--topic", "greetings", "--from-beginning", "--max-messages", "1")
    assert ottla("kafka-console-consumer.sh", *old, *words).splitlines()[0] == "hello"


@contextmanager
def up(environment: dict[str, str], folder: Path) -> Iterator[str]:
    """`ottla up` of this environment; the address of its broker."""
    port, output = free_port(), folder / "up.log"
    words = ["up", "--port", str(port), "--data", str(folder / "data"), "--no-console", "--no-registry"]
    with output.open("wb") as log:
        command = subprocess.Popen(
            [f"{environment['VENV']}/bin/ottla", *words], env=environment, cwd=folder, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + SECONDS_MAX
        while f"127.0.0.1:{port}" not in output.read_text():
            assert command.poll() is None, output.read_text()
            assert time.monotonic() < deadline, output.read_text()
            time.sleep(0.02)
        yield f"127.0.0.1:{port}"
        command.send_signal(signal.SIGINT)
        assert command.wait(SECONDS_MAX) == 0, output.read_text()
        assert "Traceback" not in output.read_text()
    finally:
        command.kill()
        command.wait()


def test_ottla_up_from_a_wheel_without_extras(wheel: Path, tmp_path: Path) -> None:
    with up(install(wheel, "", tmp_path / "venv"), tmp_path) as bootstrap:
        produce(bootstrap, "orders", [{"n": n} for n in range(10)])
        assert [message.json["n"] for message in read_all(bootstrap, "orders")] == list(range(10))


PIPELINE = """\
name: doubled
bootstrap.servers: {bootstrap}
from: {{topic: numbers}}
steps:
  - parse: {{format: json, schema: {{n: long}}}}
  - select: {{n: n * 2}}
to: {{topic: doubled}}
"""


def test_a_pipeline_from_a_wheel_with_its_extra(wheel: Path, tmp_path: Path) -> None:
    environment = install(wheel, "[pipelines]", tmp_path / "venv")
    environment["PATH"] += ":/usr/bin:/bin"  # Spark's start script is one for bash
    with up(environment, tmp_path) as bootstrap:
        produce(bootstrap, "numbers", [{"n": n} for n in range(10)])
        (tmp_path / "doubled.yaml").write_text(PIPELINE.format(bootstrap=bootstrap))
        words = ("pipeline", "run", tmp_path / "doubled.yaml", "--once", "--state", tmp_path / "state")
        run(f"{environment['VENV']}/bin/ottla", *words, environment=environment, seconds_max=BUILD_SECONDS_MAX)
        assert sorted(message.json["n"] for message in read_all(bootstrap, "doubled")) == list(range(0, 20, 2))
