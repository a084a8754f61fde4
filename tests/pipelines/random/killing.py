"""Runs of a random pipeline in processes of their own, ended with kill -9 at random moments; the last may finish."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import yaml
from tests.faults.pipeline_rounds import strike
from tests.pipelines.random.making import make_case
from tests.pipelines.random.places import World
from tests.pipelines.random.playing import Player

START_SECONDS_MAX = 120.0
KILLS = 3
SHORT_LIVED = (
    "--set=spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "--set=spark.sql.codegen.wholeStage=false",
    "--set=spark.sql.shuffle.partitions=2",
)


def kill_and_compare(seed: int, broker: Any, spark: Any, folder: Path) -> list[str]:
    """What happened. Raises WrongError when something is lost, there twice, or wrong."""
    case = make_case(seed, has_accidents=False)
    case.per_batch = 10
    chance = Random(seed)
    name = f"killed-{seed}-{uuid.uuid4().hex[:6]}"
    player = Player(case, World(name, broker.bootstrap, folder / name / "now"), spark, broker)
    player.prepare()
    for each in case.rounds:
        player.add(each)
        for _ in range(chance.randrange(KILLS)):
            player.story.append(f"  {killed_run(player, chance)}")
    player.finish()
    return player.story


def killed_run(player: Player, chance: Random) -> str:
    """From a moment after it has told of the wanted event it is dead."""
    player.file.write_text(yaml.safe_dump(player.document, sort_keys=False, allow_unicode=True))
    out = player.world.folder / "killed.out"
    command = [sys.executable, "-m", "ottla.cli.main", "pipeline", "run", str(player.file), "--once", "--json"]
    command += ["--state", str(player.world.folder / "state"), "--master", "local[2]", *SHORT_LIVED]
    with out.open("wb") as opened:
        process = subprocess.Popen(command, stdout=opened, stderr=opened, start_new_session=True)
    word = chance.choice((b'"running"', b'"running"', b'"event": "batch"'))
    delay_s = chance.random() * 4
    deadline = time.monotonic() + START_SECONDS_MAX
    while word not in out.read_bytes() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    with suppress(subprocess.TimeoutExpired):
        process.wait(delay_s)
    told = f"killed {delay_s:.2f} s after {word.decode()}" if process.poll() is None else f"ended: {process.poll()}"
    strike(process, "group")
    return told
