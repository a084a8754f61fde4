"""`python -m tests.pipelines.random.play FIRST [SEEDS] [SECONDS]` plays seeds one after the other in one Spark, for so
many seconds at most, and prints the story of each that went wrong. PostgreSQL is used where it is installed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import uuid
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TESTS))

import pytest  # noqa: E402

from conformance.recipes import running_postgresql  # noqa: E402
from conftest import Broker  # noqa: E402
from ottla.cli.pipelines import run as pipeline_run  # noqa: E402
from ottla.pipelines.spark.session import start_session  # noqa: E402
from pipelines.conftest import JAVA_OPTIONS  # noqa: E402
from pipelines.random.cases import make_case  # noqa: E402
from pipelines.random.places import World  # noqa: E402
from pipelines.random.playing import Player, WrongError  # noqa: E402


def play_seed(seed: int, folder: Path, broker: Any, spark: Any, postgres: str | None, tally: Counter[str]) -> None:
    """Raises WrongError."""
    case = make_case(seed, has_postgres=postgres is not None)
    name = f"case-{seed}-{uuid.uuid4().hex[:6]}"
    player = Player(case, World(name, broker.bootstrap, folder / name / "now", postgres), spark, broker)
    try:
        player.play()
    finally:
        tally.update(player.tally)
        if os.environ.get("OTTLA_RANDOM_STORY"):
            print("\n".join(player.story), flush=True)
    shutil.rmtree(folder / name)


def main(first: int, seeds: int = 1, seconds: float = 1e9) -> int:
    tally: Counter[str] = Counter()
    wrong, begun = 0, time.monotonic()
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="random-pipelines-"))
        broker = Broker(folder / "broker", {"group.initial.rebalance.delay.ms": "0"}).start()
        stack.callback(broker.discard)
        settings = {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.codegen.wholeStage": "false",
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        }
        spark = start_session("random", master="local[2]", settings=settings)
        stack.callback(spark.stop)
        pipeline_run._stop_spark = lambda _spark: None
        try:
            postgres: str | None = stack.enter_context(running_postgresql())
        except pytest.skip.Exception:
            postgres = None
        for seed in range(first, first + seeds):
            if time.monotonic() - begun > seconds:
                break
            before = time.monotonic()
            try:
                play_seed(seed, folder, broker, spark, postgres, tally)
            except WrongError as problem:
                wrong += 1
                print(f"{problem}\n{'=' * 100}", flush=True)
            tally["seeds"] += 1
            print(f"seed {seed}: {time.monotonic() - before:.1f} s", flush=True)
    print(f"{tally['seeds']} seeds, {wrong} wrong, {time.monotonic() - begun:.0f} s: {dict(sorted(tally.items()))}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*(int(each) for each in sys.argv[1:])))
