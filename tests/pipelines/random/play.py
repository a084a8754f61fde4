"""`python -m tests.pipelines.random.play FIRST [SEEDS] [--seconds N] [--jobs N]` plays seeds one after the other in one
Spark, or in several at the same time, for so many seconds at most, and prints the story of each that went wrong.
PostgreSQL and Redis are used where they are installed, Delta where its jars can be had.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import pytest
from bench.procfs import cpu_seconds
from confluent_kafka.admin import AdminClient
from tests.conformance.recipes import running_postgresql
from tests.conformance.redis_server import RedisServer
from tests.conftest import Broker
from tests.pipelines.conftest import SETTINGS
from tests.pipelines.random.making import make_case
from tests.pipelines.random.places import World
from tests.pipelines.random.playing import Player, WrongError

from ottla.cli.pipelines import run as pipeline_run
from ottla.pipelines.spark.places import SparkStartError
from ottla.pipelines.spark.session import start_session

# Every plan is run once or twice, over a few rows: compiling parts of it takes longer than that.
QUICK = {
    "spark.ui.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
SUM = re.compile(r"^(\d+) seeds, (\d+) wrong", re.MULTILINE)


class Stage:
    """The shared resources of all seeds of a process."""

    def __init__(self, stack: ExitStack) -> None:
        memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.folder = Path(tempfile.mkdtemp(prefix="random-pipelines-", dir=memory))
        stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.broker = Broker(self.folder / "broker", {"group.initial.rebalance.delay.ms": "0"}).start()
        stack.callback(self.broker.discard)
        self.admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        settings = SETTINGS | QUICK | {"spark.local.dir": str(self.folder / "spark")}
        self.has_delta = True
        try:
            self.spark = start_session("random", "local[2]", packages=["delta"], settings=settings)
        except SparkStartError:
            self.has_delta = False
            self.spark = start_session("random", "local[2]", settings=settings)
        stack.callback(self.spark.stop)
        pipeline_run._stop_spark = lambda _spark: None
        try:
            self.postgres: str | None = stack.enter_context(running_postgresql())
        except pytest.skip.Exception:
            self.postgres = None
        self.redis = (
            stack.enter_context(RedisServer(self.folder / "redis")).url if shutil.which("redis-server") else None
        )
        self.servers = tuple(name for name in ("postgres", "redis") if getattr(self, name) is not None)

    def play(self, seed: int, tally: Counter[str]) -> None:
        """Raises WrongError."""
        case = make_case(seed, self.servers, has_delta=self.has_delta)
        name = f"case-{seed}-{uuid.uuid4().hex[:6]}"
        world = World(name, self.broker.bootstrap, self.folder / name / "now", self.postgres, self.redis)
        player = Player(case, world, self.spark, self.broker)
        try:
            player.play()
        finally:
            world.server.close()
            tally.update(player.tally)
            if os.environ.get("OTTLA_RANDOM_STORY"):
                print("\n".join(player.story), flush=True)
        shutil.rmtree(self.folder / name)
        own = [topic for topic in self.admin.list_topics(timeout=20).topics if topic.startswith(name)]
        self.admin.delete_topics(own)  # without waiting; otherwise thousands would accumulate


def main(seeds: range, seconds: float) -> int:
    tally: Counter[str] = Counter()
    wrong, begun = 0, time.monotonic()
    with ExitStack() as stack:
        stage = Stage(stack)
        for seed in seeds:
            if time.monotonic() - begun > seconds:
                break
            before, used = time.monotonic(), cpu_seconds(os.getpid())
            try:
                stage.play(seed, tally)
            except WrongError as problem:
                wrong += 1
                print(f"{problem}\n{'=' * 100}", flush=True)
            except Exception as problem:  # noqa: BLE001 (the generator's own mistake must not end the others)
                wrong += 1
                print(f"seed {seed}: {type(problem).__name__}: {problem}\n{'=' * 100}", flush=True)
            tally["seeds"] += 1
            used = cpu_seconds(os.getpid()) - used
            print(f"seed {seed}: {time.monotonic() - before:.1f} s, {used:.1f} s of processor time", flush=True)
    print(f"{tally['seeds']} seeds, {wrong} wrong, {time.monotonic() - begun:.0f} s: {dict(sorted(tally.items()))}")
    return 1 if wrong else 0


def main_of_several(first: int, seeds: int, seconds: float, jobs: int) -> int:
    """Each job takes every so-manieth seed, with a Spark and a broker of its own."""
    command = [sys.executable, "-m", "tests.pipelines.random.play", "--seconds", str(seconds), "--stride", str(jobs)]
    words = [[*command, str(first + job), str(seeds - job)] for job in range(jobs)]
    processes = [subprocess.Popen(each, stdout=subprocess.PIPE, text=True) for each in words]
    told = [process.communicate()[0] for process in processes]
    print("".join(told))
    found = [match for text in told for match in SUM.findall(text)]
    print(f"together {sum(int(one) for one, _ in found)} seeds, {sum(int(two) for _, two in found)} wrong")
    return max(process.returncode for process in processes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("seeds", type=int, nargs="?", default=1)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--stride", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.jobs > 1:
        sys.exit(main_of_several(given.first, given.seeds, given.seconds, given.jobs))
    sys.exit(main(range(given.first, given.first + given.seeds, given.stride), given.seconds))
