"""The container image: built on a base of Debian packages with buildah, and started.

Needs root, buildah and mmdebstrap (Debian: apt-get install buildah mmdebstrap), and the network that builds need. The
libraries of the console's pages are in the clone by then (`make pages`), so that npm is not asked again.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import free_port

pytestmark = [
    pytest.mark.faults,
    pytest.mark.needs_ottla,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("buildah") is None or shutil.which("mmdebstrap") is None,
        reason="needs root, buildah and mmdebstrap",
    ),
]

ROOT = Path(__file__).parents[2]
BUILD_SECONDS_MAX = 3600.0
SECONDS_MAX = 60.0
PACKAGES = "python3,python3-venv,python3-dev,python-is-python3,ca-certificates"
SUITE = "bookworm"
SOURCES = "/etc/apt/sources.list.d/debian.sources"
# What this machine trusts, the builder trusts, too: a proxy of a company, say.
TRUSTED = ("/etc/ssl/certs", "/etc/pip.conf")
LOOKS_COMPILED = "from ottla.storage import log; print(log.__file__)"


class Buildah:
    """With a store of its own. Processes run in a chroot, and on the network of this machine."""

    def __init__(self, folder: Path) -> None:
        self._words = ["buildah", "--root", str(folder / "root"), "--runroot", str(folder / "run")]
        self._words += ["--storage-driver", "vfs"]

    def command(self, *words: object) -> list[str]:
        return [*self._words, *map(str, words)]

    def __call__(self, *words: object, seconds_max: float = SECONDS_MAX) -> str:
        command = self.command(*words)
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds_max, check=False)
        assert done.returncode == 0, f"{command}: {(done.stdout + done.stderr)[-3000:]}"
        return done.stdout.strip()


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    folder = tmp_path_factory.mktemp("image")
    tool = Buildah(folder)
    base = folder / "base"
    base.mkdir()
    sources = [SOURCES] if Path(SOURCES).exists() else []
    words = ["mmdebstrap", "--quiet", "--variant=apt", f"--include={PACKAGES}", SUITE, str(base / "base.tar"), *sources]
    done = subprocess.run(words, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (base / "Dockerfile").write_text("FROM scratch\nADD base.tar /\n")
    tool("build", "--isolation", "chroot", "--tag", "localhost/base", base, seconds_max=BUILD_SECONDS_MAX)
    yield tool
    tool("rm", "--all")
    tool("rmi", "--all", "--force")


@pytest.fixture(scope="module")
def container(buildah: Buildah) -> str:
    """The image that the Dockerfile makes, as a container."""
    volumes = [f"--volume={path}:{path}:ro" for path in TRUSTED if Path(path).exists()]
    arguments = ("--build-arg=BASE=localhost/base", "--build-arg=EXTRAS=cli")
    buildah(
        *("build", "--isolation", "chroot", *volumes, *arguments, "--tag", "localhost/ottla", ROOT),
        seconds_max=BUILD_SECONDS_MAX,
    )
    return buildah("from", "--isolation", "chroot", "localhost/ottla", seconds_max=BUILD_SECONDS_MAX)


def test_the_image_is_compiled_and_has_no_compiler(buildah: Buildah, container: str) -> None:
    file = buildah("run", container, "--", "/opt/ottla/bin/python", "-c", LOOKS_COMPILED)
    assert file.endswith(".so")
    assert buildah("run", container, "--", "sh", "-c", "command -v gcc || echo none") == "none"


def test_the_image_starts_as_its_own_user_and_serves(buildah: Buildah, container: str, tmp_path: Path) -> None:
    """The entry point as the image has it: `buildah run` does not take it by itself."""
    address = f"127.0.0.1:{free_port()}"  # it is this machine's network
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    entry = json.loads(next(line for line in lines if line.startswith("ENTRYPOINT ")).removeprefix("ENTRYPOINT "))
    listeners = (
        "--env",
        f"KAFKA_LISTENERS=PLAINTEXT://{address}",
        "--env",
        f"KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://{address}",
    )
    command = buildah.command("run", *listeners, container, "--", *entry)
    log = tmp_path / "broker.log"
    with log.open("wb") as output:
        broker = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + SECONDS_MAX
        while "ready on" not in log.read_text():
            assert broker.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        assert "plain Python" not in log.read_text()
        assert buildah("run", container, "--", "id", "-un") == "ottla"
        server = ("--bootstrap-server", address)
        created = buildah(
            "run", container, "--", "/opt/kafka/bin/kafka-topics.sh", *server, "--create", "--topic", "orders"
        )
        assert created == "Created topic orders."
        assert buildah("run", container, "--", "ottla", "topics", "list", *server) == "orders"
    finally:
        broker.terminate()
        broker.wait(SECONDS_MAX)
