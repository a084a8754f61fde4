"""Folders on S3: a small server that speaks its protocol (s3proxy, by Maven), and Hadoop's way to it (700 MB)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest
from tests.pipelines.running import produce, wait_for

from ottla.pipelines.spark.java import find_java
from ottla.pipelines.spark.places import cache_folder

pytestmark = pytest.mark.faults

ARTIFACT = "org.gaul:s3proxy:4.1.0:jar:jar-with-dependencies"
FILE = """\
name: {name}
bootstrap.servers: {bootstrap}
dead_letters: false
from: {{topic: {name}}}
steps:
  - parse: {{format: json, schema: {{n: long}}}}
to: {{parquet: "s3a://bucket/{name}"}}
spark: {{spark.sql.shuffle.partitions: 2}}
"""


class Store(NamedTuple):
    url: str
    folder: Path  # in which its buckets are


def find_server() -> Path:
    folder = cache_folder() / "s3proxy"
    found = next(iter(folder.glob("*.jar")), None)
    if found is not None:
        return found
    maven = shutil.which("mvn")
    assert maven, "s3proxy is needed once: install Maven (Debian: apt-get install maven) and try again"
    command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={folder}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"Maven could not fetch s3proxy:\n{done.stdout[-3000:]}"
    return next(iter(folder.glob("*.jar")))


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("s3")
    (folder / "data" / "bucket").mkdir(parents=True)
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    (folder / "s3proxy.conf").write_text(
        f"s3proxy.authorization=none\ns3proxy.endpoint=http://127.0.0.1:{port}\njclouds.provider=filesystem-nio2\n"
        f"jclouds.identity=me\njclouds.credential=secret\njclouds.filesystem.basedir={folder}/data\n"
    )
    words = [str(find_java().program), "-Xmx256m", "-jar", str(find_server())]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen([*words, "--properties", str(folder / "s3proxy.conf")], stdout=log, stderr=log)
    try:
        wait_for(lambda: is_listening(port), "s3proxy")
        yield Store(f"http://127.0.0.1:{port}", folder / "data")
    finally:
        server.terminate()
        server.wait()


def test_batches_lie_on_s3_once_and_a_new_checkpoint_overwrites_none(
    bootstrap: str, store: Store, tmp_path: Path
) -> None:
    name = f"s3-{uuid.uuid4().hex[:8]}"
    (tmp_path / "p.yaml").write_text(FILE.format(name=name, bootstrap=bootstrap))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        settings = {"endpoint": store.url, "path.style.access": "true", "endpoint.region": "eu-central-1"}
        given = [f"--set=spark.hadoop.fs.s3a.{key}={value}" for key, value in settings.items()]
        command = [sys.executable, "-m", "ottla.cli.main", "pipeline", "run", "p.yaml", "--once", "--state", "state"]
        keys = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "secret"}
        environment = {**os.environ, **keys}
        return subprocess.run(
            [*command, "--master", "local[2]", *given, *words],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=environment,
        )

    def numbers() -> list[int]:
        files = sorted((store.folder / "bucket" / name).glob("ottla_batch=*/part-*.parquet"))
        return sorted(number for file in files for number in pq.read_table(file)["n"].to_pylist())

    for first in (0, 100):
        produce(bootstrap, name, [{"n": number} for number in range(first, first + 100)])
        done = run()
        assert done.returncode == 0, done.stdout + done.stderr
    assert numbers() == list(range(200))
    shutil.rmtree(tmp_path / "state")
    done = run()
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"folder s3a://bucket/{name}" in done.stdout + done.stderr
    assert numbers() == list(range(200))
