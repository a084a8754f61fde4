"""`python -m bench.pipelines [PART ...]`: durations that users of pipelines experience, with their commands.

start: from `ottla pipeline run` to the first batch in a table, the first and the second time; `check`.
trial: `ottla pipeline test` with three cases.  sql: `ottla sql` on a terminal, until its prompt and its first row.
once: rows a second from topic to topic, exactly once and at least once, in turn.
source: a topic read by our source and by the official connector, as a batch and as a stream, in one session of Spark.
"""

import argparse
import json
import os
import pty
import select
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.errors import BenchError
from bench.procfs import cpu_seconds
from ottla.testing.broker import Broker

OTTLA = str(Path(sys.executable).with_name("ottla"))
SECONDS_MAX = 300.0
RECORDS = 1_000_000
COPIED = 2_000_000
FILL = b'{"page":"/p%d","user":"u%d","at":"2026-01-01T10:%02d:%02dZ"}'
VIEWS = """
name: views
from: {topic: views}
steps:
  - parse: {format: json, schema: {page: string, user: string, at: timestamp}, required: [page, at]}
  - watermark: {time: at, delay: 10 seconds}
  - window: {size: 1 minute, by: [page], count: views}
output: update
to: {sqlite: views.db, table: views, mode: upsert, key: [window_start, page]}
"""
CASES = """
cases:
  one:
    given: {views: [{page: /a, user: ann, at: 2026-01-01T10:00:01Z}]}
    expect: {views: [{window_start: 2026-01-01T10:00:00Z, window_end: 2026-01-01T10:01:00Z, page: /a, views: 1}]}
  two:
    given: {views: [{page: /a, at: 2026-01-01T10:00:01Z}, {page: /b, at: 2026-01-01T10:00:02Z}]}
    expect:
      views:
        - {window_start: 2026-01-01T10:00:00Z, window_end: 2026-01-01T10:01:00Z, page: /a, views: 1}
        - {window_start: 2026-01-01T10:00:00Z, window_end: 2026-01-01T10:01:00Z, page: /b, views: 1}
  none:
    given: {views: [hello]}
    expect: {views: []}
    dead_letters: [{value: hello, step: main 1 parse}]
"""
COPY = """
name: copy-{delivery}-{round}
from: {{topic: copied, max_per_batch: 500000}}
to: {{topic: copy-{delivery}-{round}, format: raw, delivery: {delivery}}}
"""


def main() -> int:
    parts: dict[str, Callable[[Broker, Path], None]] = {
        "start": measure_start,
        "trial": measure_trial,
        "sql": measure_sql,
        "once": measure_once,
        "source": measure_source,
    }
    parser = argparse.ArgumentParser(prog="python -m bench.pipelines", description=__doc__)
    parser.add_argument("part", nargs="*", help=f"{', '.join(parts)} (default: all)")
    wanted = parser.parse_args().part or list(parts)
    if unknown := set(wanted) - parts.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(parts)}")
    with Broker() as broker, TemporaryDirectory(prefix="ottla-bench-") as folder:
        os.environ["OTTLA_BOOTSTRAP_SERVER"] = broker.bootstrap_servers
        for name in wanted:
            parts[name](broker, Path(folder))
    return 0


def tell(what: str, seconds: float, goal: float | None = None) -> None:
    print(f"{what:70} {seconds:8.2f}" + ("" if goal is None else f"   goal {goal:g}"), flush=True)


# ---- waiting


def measure_start(broker: Broker, folder: Path) -> None:
    fill(broker, "views", 1_000, 1)
    (folder / "views.yaml").write_text(VIEWS)
    for round_name in ("first", "second", "third"):
        for left_over in folder.glob("views.db*"):
            left_over.unlink()
        with timed_command(folder, "pipeline", "run", "views.yaml", "--state", f"state-{round_name}") as process:
            began = time.monotonic()
            wait_for(lambda: has_rows(folder / "views.db"), process)
            tell(f"pipeline run, {round_name} start: first batch in the table, s", time.monotonic() - began, 8)
            tell("  processor time of its processes so far, s", cpu_seconds(process.pid))
    for _ in range(2):
        began = time.monotonic()
        subprocess.run([OTTLA, "pipeline", "check", "views.yaml"], cwd=folder, check=True, capture_output=True)
        tell("pipeline check, s", time.monotonic() - began, 1)


def measure_trial(_broker: Broker, folder: Path) -> None:
    (folder / "views.yaml").write_text(VIEWS)
    (folder / "views.test.yaml").write_text(CASES)
    for _ in range(2):
        began = time.monotonic()
        run(folder, "pipeline", "test", "views.yaml")
        tell("pipeline test, three cases, s", time.monotonic() - began, 10)


def measure_sql(broker: Broker, folder: Path) -> None:
    fill(broker, "many", RECORDS, 4)
    for _ in range(2):
        master, slave = pty.openpty()
        began = time.monotonic()
        process = subprocess.Popen([OTTLA, "sql"], cwd=folder, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        try:
            read_until(master, b"ottla> ")
            tell("sql: prompt, s", time.monotonic() - began, 6)
            asked = time.monotonic()
            os.write(master, b"SELECT page, user FROM many LIMIT 1;\n")
            read_until(master, b"(1 row)")
            tell("sql: first row after the prompt, Spark still starting, s", time.monotonic() - asked)
            for words, goal in (("", 2.0), (" WHERE user = 'u7'", None)):
                asked = time.monotonic()
                os.write(master, b"SELECT page, user FROM many" + words.encode() + b" LIMIT 1;\n")
                read_until(master, b"(1 row)")
                tell(f"sql: first row over 1,000,000 records{words}, s", time.monotonic() - asked, goal)
        finally:
            process.kill()
            process.wait()
            os.close(master)


def measure_once(broker: Broker, folder: Path) -> None:
    fill(broker, "copied", COPIED, 4)
    rates: dict[str, list[float]] = {"exactly-once": [], "at-least-once": []}
    for round_number in range(2):
        for delivery, seen in rates.items():
            (folder / "copy.yaml").write_text(COPY.format(delivery=delivery, round=round_number))
            seconds = batch_seconds(run(folder, "pipeline", "run", "copy.yaml", "--once", "--json", "--state", "state"))
            seen.append(COPIED / seconds)
            tell(f"topic to topic, {delivery}, rows/s", COPIED / seconds)
    tell(
        "exactly once against at least once",
        statistics.mean(rates["exactly-once"]) / statistics.mean(rates["at-least-once"]),
        0.6,
    )


def batch_seconds(lines: str) -> float:
    """Time spent in batches, as reported by the run."""
    return sum(found.get("batch_ms", 0) for found in map(json.loads, lines.splitlines())) / 1000


# ---- the source


def measure_source(broker: Broker, _folder: Path) -> None:
    from bench.loads.spark import FORMATS, USED  # noqa: PLC0415 (Spark is wanted by this part only)
    from ottla.pipelines.source import register  # noqa: PLC0415
    from ottla.pipelines.spark.session import start_session  # noqa: PLC0415

    for size, count in ((100, 3_000_000), (1_000, 600_000)):
        fill_plain(broker, f"plain-{size}", count, size)
    spark = start_session("bench", "local[*]", connector="jvm", settings={"spark.ui.enabled": "false"})
    register(spark)
    for size, count in ((100, 3_000_000), (1_000, 600_000)):
        for is_stream in (False, True):
            rates: dict[str, list[float]] = {name: [] for name in FORMATS}
            for _ in range(4):
                for name, kind in FORMATS.items():
                    rates[name].append(count / read_once(spark, kind, broker, f"plain-{size}", USED, is_stream))
            best = {name: max(found) for name, found in rates.items()}
            how = "stream" if is_stream else "batch"
            tell(
                f"source, {size} B, {how}: {best['ottla']:,.0f}/s, JVM {best['jvm']:,.0f}/s, ratio",
                best["ottla"] / best["jvm"],
                1.5,
            )
    spark.stop()


def read_once(spark: Any, kind: str, broker: Broker, topic: str, used: tuple[str, ...], is_stream: bool) -> float:
    reader = spark.readStream if is_stream else spark.read
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    rows = reader.format(kind).options(**options).load()
    began = time.monotonic()
    if is_stream:
        with TemporaryDirectory() as place:
            writer = rows.selectExpr(*used).writeStream.outputMode("complete").format("noop")
            writer.option("checkpointLocation", place).trigger(availableNow=True).start().awaitTermination()
    else:
        rows.selectExpr(*used).collect()
    return time.monotonic() - began


# ---- help


def run(folder: Path, *words: str) -> str:
    done = subprocess.run([OTTLA, *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(done.stdout[-2000:] + done.stderr[-2000:])
    return done.stdout


def fill(broker: Broker, topic: str, count: int, partitions: int) -> None:
    written(broker, topic, partitions, (FILL % (n % 1000, n % 5000, n // 60 % 60, n % 60) for n in range(count)))


def fill_plain(broker: Broker, topic: str, count: int, size: int) -> None:
    written(broker, topic, 4, (b"%0*d" % (size, n) for n in range(count)))


def written(broker: Broker, topic: str, partitions: int, values: Iterator[bytes]) -> None:
    from confluent_kafka import Producer  # noqa: PLC0415

    broker.create_topic(topic, partitions)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50, "queue.buffering.max.messages": 10**7}
    )
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()


@contextmanager
def timed_command(folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([OTTLA, *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def wait_for(is_there: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_there():
        if process.poll() is not None or time.monotonic() > deadline:
            raise BenchError(f"nothing came; exit code {process.returncode}")
        time.sleep(0.02)


def has_rows(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
            return bool(connection.execute("SELECT count(*) FROM views").fetchone()[0])
    except sqlite3.OperationalError:
        return False


def read_until(terminal: int, wanted: bytes) -> None:
    seen = b""
    deadline = time.monotonic() + SECONDS_MAX
    while wanted not in seen:
        if time.monotonic() > deadline or not select.select([terminal], [], [], 1)[0]:
            if time.monotonic() > deadline:
                raise BenchError(seen[-2000:].decode(errors="replace"))
            continue
        seen += os.read(terminal, 65536)


if __name__ == "__main__":
    sys.exit(main())
