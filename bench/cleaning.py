"""What compaction costs: its speed, its memory, and what producers notice of it. ottla alone; a few minutes.

.venv/bin/python -m bench.cleaning                      # 1 GB of 1 kB records, 10 million keys
.venv/bin/python -m bench.cleaning --megabytes 200 --keys 1000000 --seconds 5
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from bench import wire
from bench.errors import BenchError
from bench.figures import Figures
from bench.loads import one_in_flight, produce
from bench.ottla_process import OttlaProcess
from bench.paths import cache_folder
from bench.raw_client import TOPIC_CONFIGS, Connection, Target, create_topic, new_topic_name
from bench.worker import run_apart
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import build_batch
from ottla.protocol.records import Record
from ottla.storage.cleaning.job import CleanedGroup, CleanFailure, CleanJob, CleanReport, SegmentInfo, decode_reply
from ottla.storage.cleaning.swap import SegmentSwap, swap_blocking
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.log import Log
from ottla.storage.log_dir import create_log

NOW_MS = 1_700_000_000_000
CLEANER = (sys.executable, "-m", "ottla.storage.cleaning.process")
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": str(64 << 20)}
BATCH_RECORDS = 16
TIMEOUT_S = 600.0


# A broker that looks for cleanable logs continuously.
EAGER = {"log.cleaner.backoff.ms": "100", "log.retention.check.interval.ms": "1000"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cleaning", description="What compaction costs.")
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the log for the speed")
    parser.add_argument("--keys", type=int, default=10_000_000, help="distinct keys for the memory")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each measurement of producers")
    options = parser.parse_args()
    cache_folder().mkdir(parents=True, exist_ok=True)
    figures = {
        "half of 1 kB records superseded": measure_speed(options.megabytes * 1000, options.megabytes * 500, 950),
        "all 1 kB records different": measure_speed(options.megabytes * 1000, options.megabytes * 1000, 950),
        f"{options.keys} keys": measure_speed(options.keys, options.keys, 10),
        "producers": measure_producers(options.megabytes, options.seconds),
    }
    print(json.dumps(figures, indent=2))
    return 0


# ---- the process alone


def measure_speed(records: int, keys: int, value_bytes: int) -> Figures:
    """Clean a log in as many rounds as it takes; bytes of the log per second of all of them."""
    with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        log = filled_log(f"{folder}/log", records, keys, value_bytes)
        log_bytes = log.size_bytes
        started = time.monotonic()
        reports = list(clean_rounds(log))
        seconds = time.monotonic() - started
        log.close_files()
    return {
        "log_mb": log_bytes / 1e6,
        "rounds": float(len(reports)),
        "seconds": seconds,
        "mb_per_s": log_bytes / 1e6 / seconds,
        "mb_per_s_read": sum(report.bytes_read for report in reports) / 1e6 / seconds,
        "left_share": reports[-1].records_kept / records,
        "process_mb_max": max(report.memory_bytes for report in reports) / 1e6,
    }


def filled_log(directory: str, records: int, keys: int, value_bytes: int) -> Log:
    settings = TopicSettings(cleanup_policy=frozenset({"compact"}), segment_bytes=64 << 20)
    log = create_log(TopicPartition("bench", 0), directory, settings, DescriptorPool(), None, NOW_MS, 10**12)
    value = bytes(range(256)) * (value_bytes // 256 + 1)
    value = value[:value_bytes]
    for start in range(0, records, BATCH_RECORDS):
        numbers = range(start, min(start + BATCH_RECORDS, records))
        batch = build_batch([Record(-1, NOW_MS, b"key-%d" % (number % keys), value) for number in numbers])
        log.append(memoryview(batch), 0, NOW_MS)
    log.roll(NOW_MS)
    return log


def clean_rounds(log: Log) -> Iterator[CleanReport]:
    process = subprocess.Popen(CLEANER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        log.cleaned_offset = 0
        while log.cleaned_offset < log.active.base_offset:
            process.stdin.write(job_for(log).encode())
            process.stdin.flush()
            report = take_replies(log, process.stdout)
            log.cleaned_offset = report.end_offset
            yield report
    finally:
        process.kill()
        process.wait()


def take_replies(log: Log, lines: Iterator[bytes]) -> CleanReport:
    by_base = {segment.base_offset: segment for segment in log.segments}
    for line in lines:
        reply = decode_reply(line)
        if isinstance(reply, CleanReport):
            return reply
        if isinstance(reply, CleanFailure):
            raise BenchError(reply.message)
        if isinstance(reply, CleanedGroup) and not reply.is_unchanged:
            old = [by_base[base_offset] for base_offset in reply.base_offsets]
            swap_blocking(SegmentSwap(log, log.directory, old, reply), NOW_MS)
            for path in log.take_due_deletions(NOW_MS * 2):
                Path(path).unlink(missing_ok=True)
    raise BenchError("the cleaner ended too early")


def job_for(log: Log) -> CleanJob:
    return CleanJob(
        topic="bench",
        partition=0,
        directory=log.directory,
        segments=[SegmentInfo(segment.base_offset, segment.size) for segment in log.segments[:-1]],
        first_dirty_offset=log.cleaned_offset,
        first_uncleanable_offset=log.active.base_offset,
        log_start_offset=0,
        end_offset=log.end_offset,
        now_ms=NOW_MS,
        segment_bytes=64 << 20,
    )


# ---- producers beside it


def measure_producers(megabytes: int, seconds: float) -> Figures:
    """Single requests and large batches, without and with a cleaner at work on another topic."""
    with OttlaProcess(cache_folder() / "cleaning-broker.log", settings=EAGER) as broker:
        topic = create_topic(broker.target, "single", 1)
        alone = run_apart(TIMEOUT_S, one_in_flight.produce, broker.target, topic, 1, 1000, 1.0, seconds)
        bulk_alone = write_bulk(broker.target, seconds)
        with cleaned_beside(broker, megabytes):
            beside = run_apart(TIMEOUT_S, one_in_flight.produce, broker.target, topic, 1, 1000, 1.0, seconds)
            bulk_beside = write_bulk(broker.target, seconds)
    return {
        "p99_ms_alone": alone["p99_ms"],
        "p99_ms_beside": beside["p99_ms"],
        "p99_ratio": beside["p99_ms"] / alone["p99_ms"],
        "p50_ratio": beside["p50_ms"] / alone["p50_ms"],
        "mb_per_s_alone": bulk_alone["mb_per_s"],
        "mb_per_s_beside": bulk_beside["mb_per_s"],
        "mb_per_s_ratio": bulk_beside["mb_per_s"] / bulk_alone["mb_per_s"],
    }


def write_bulk(target: Target, seconds: float) -> Figures:
    topic = create_topic(target, "bulk", 1)
    return dict(run_apart(TIMEOUT_S, produce.produce, target, topic, 1, 64 << 10, 1000, seconds, 2 << 30))


@contextmanager
def cleaned_beside(broker: OttlaProcess, megabytes: int) -> Iterator[None]:
    """Topics full of uncleaned records; cleaning starts now and must not finish before the measurement ends."""
    topics = [new_topic_name("dirty") for _ in range(4)]
    with Connection(broker.target) as connection:
        settings = {**TOPIC_CONFIGS, **COMPACTED, "min.compaction.lag.ms": "86400000"}
        connection.call(wire.create_topics_request(dict.fromkeys(topics, 1), settings))
        for topic in topics:
            fill_topic(connection, topic, megabytes // len(topics))
    let_clean(broker.target, topics)
    yield
    cleaned = sum(f"cleaned {topic}-0" in broker.log_text() for topic in topics)
    if cleaned == len(topics):
        raise BenchError("the cleaner was done too early: more --megabytes or fewer --seconds")


def let_clean(target: Target, topics: list[str]) -> None:
    """Reset the lag setting that has held the cleaner back."""
    client = AdminClient({"bootstrap.servers": target.bootstrap})
    no_lag = ConfigEntry("min.compaction.lag.ms", "0", incremental_operation=AlterConfigOpType.SET)
    resources = [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[no_lag]) for topic in topics]
    for future in client.incremental_alter_configs(resources).values():
        future.result(TIMEOUT_S)


def fill_topic(connection: Connection, topic: str, megabytes: int) -> None:
    value = bytes(950)
    for start in range(0, megabytes * 1000, BATCH_RECORDS):
        rows = [Record(-1, int(time.time() * 1000), b"key-%d" % (start + n), value) for n in range(BATCH_RECORDS)]
        request = wire.produce_request(topic, 0, bytes(build_batch(rows)))
        connection.produce_first(request, topic)


if __name__ == "__main__":
    sys.exit(main())
