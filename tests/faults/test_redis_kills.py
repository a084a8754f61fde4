"""Rows and positions in Redis, exactly once, although readers, drivers of Spark and Redis itself are killed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest
from tests.conformance.recipes import numbered, send
from tests.conformance.redis_server import RedisServer
from tests.conformance.waiting import eventually
from tests.faults.pipeline_rounds import PipelineRound, Victim, count_of, strike

pytestmark = pytest.mark.faults

READER = Path(__file__).with_name("redis_reader.py")
RECORDS = 30_000
KILLS = 6
DRIVER_KILLS = 4


@pytest.fixture
def topic() -> str:
    """Made by the first record, with one partition."""
    return f"redis-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("appendfsync", ["always", "everysec"])
def test_readers_and_redis_are_killed_and_every_result_is_there_once(
    bootstrap: str, topic: str, tmp_path: Path, appendfsync: str
) -> None:
    """A killed Redis has given to the system what it has answered, so everysec loses nothing here. A power cut may."""
    chance = random.Random(8)
    expected = numbered(RECORDS)
    send(bootstrap, topic, expected)
    with RedisServer(tmp_path, appendfsync=appendfsync) as server:
        command = [sys.executable, str(READER), bootstrap, topic, f"reader-{topic}", server.url]
        for number in range(KILLS):
            reader = subprocess.Popen(command)
            before = server.client().llen("results")
            assert eventually(lambda: server.client().llen("results") > before, 60)  # noqa: B023
            time.sleep(chance.uniform(0.0, 0.5))
            if number % 2:
                server.kill9()
                server.start()
                time.sleep(chance.uniform(0.0, 0.5))
            reader.kill()
            reader.wait()
        reader = subprocess.Popen(command)
        try:
            assert eventually(lambda: server.client().llen("results") >= RECORDS, 120)
        finally:
            reader.kill()
            reader.wait()
        found = server.client(decode_responses=False).lrange("results", 0, -1)
    assert found == expected  # one partition: in order, too


def test_redis_loses_result_and_offset_together_and_the_reader_repeats_them(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """As after a power cut with `appendfsync everysec`: the end of its file is missing, within a transaction."""
    expected = numbered(2000)
    send(bootstrap, topic, expected)
    server = RedisServer(tmp_path)
    command = [sys.executable, str(READER), bootstrap, topic, f"reader-{topic}", server.url]
    with server:
        for cut in (0, 1001, 20_003):
            server.kill9()
            file = next((tmp_path / "appendonlydir").glob("*.incr.aof"))
            with file.open("r+b") as opened:
                opened.truncate(max(0, file.stat().st_size - cut))
            server.start()
            reader = subprocess.Popen(command)
            try:
                assert eventually(lambda: server.client().llen("results") >= len(expected), 60)
            finally:
                reader.kill()
                reader.wait()
            assert server.client(decode_responses=False).lrange("results", 0, -1) == expected


def test_spark_drivers_and_redis_are_killed_and_every_row_is_there_once(bootstrap: str, tmp_path: Path) -> None:
    run = PipelineRound(bootstrap, tmp_path / "round", clicks=1000, seed=11, per_batch=100)
    chance = random.Random(11)
    victims: list[Victim] = ["group", "driver", "java"]
    with RedisServer(tmp_path / "redis") as server:
        text = (run.folder / "round.yaml").read_text()
        upsert = "mode: upsert, key: id, newest_by: amount, columns: [id, amount]"
        paid = f'{{redis: "{server.url}", table: {run.name}-paid, {upsert}}}'
        text = text.replace(f"      - {{topic: {run.name}-paid", f"      - {paid}\n      - {{topic: {run.name}-paid")
        counts = f'{{redis: "{server.url}", table: {run.name}-counts, type: list}}'
        text = text.replace("      - {parquet: counts}", f"      - {counts}\n      - {{parquet: counts}}")
        (run.folder / "round.yaml").write_text(text)
        for part in range(DRIVER_KILLS):
            run.feed(seconds=5, part=part, parts=DRIVER_KILLS)
            process = run.start()
            if part % 2:  # while it runs: the connection is opened again
                eventually(lambda: run.batches() > 0 or process.poll() is not None, 90)  # noqa: B023
                time.sleep(chance.uniform(0.0, 1.0))
                server.kill9()
                server.start()
            run.kill(process, chance.choice(victims), batches=chance.randrange(1, 4), delay_s=chance.uniform(0.0, 2.0))
            strike(process, "group")
        run.finish(runs=2)
        client = server.client()
        rows = [json.loads(text) for text in client.lrange(f"{run.name}-counts", 0, -1)]
        assert Counter(map(count_of, rows)) == run.expected_counts()
        stored = [client.hgetall(key) for key in client.scan_iter(f"{run.name}-paid:*")]
        assert Counter((int(row["id"]), int(row["amount"])) for row in stored) == run.expected_paid()
    assert len(run.deaths) >= DRIVER_KILLS - 1
    run.assert_exactly_once()
