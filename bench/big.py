"""`python -m bench.big [PART ...]`: the figures behind each claim about size.

billion: a topic of 1,000,000,000 records on the disk: written, read by offset and by time in the middle, also
  after a clean stop and after kill -9, read by Spark, shortened by retention, compacted; whatever is read is compared.
offsets: the same with more than 2^32 records, in compressed batches.
connections: 10,000 of them, 100 busy, beside Apache Kafka.
partitions: 20,000 in one broker, 50 MB/s flowing, a start after a clean stop and after kill -9, beside Apache Kafka.
`--share 0.01` makes all of it a hundred times smaller, to try it.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from bench.broker_process import BrokerProcess
from bench.cleaning import EAGER
from bench.errors import BenchError
from bench.figures import Figures
from bench.kafka_process import KafkaProcess
from bench.loads import flow, many, numbered
from bench.loads import spark as spark_load
from bench.loads.serving import Watch
from bench.ottla_process import OttlaProcess
from bench.paths import cache_folder
from bench.procfs import memory, wait_until_quiet
from bench.raw_client import create_topic, create_topics, produce_one
from bench.worker import run_apart
from ottla.broker.startup import raise_file_limit

TOPIC = "numbered"
TIMEOUT_S = 3600.0
START_SECONDS_MAX = 600.0
SETTLE_SECONDS = 20.0
LOOKS = 200
BILLION = 1_000_000_000
BEYOND_32_BITS = 4_400_000_000
CONNECTIONS, BUSY = 10_000, 100
TOPICS, TOPIC_PARTITIONS, TOPICS_AT_ONCE = 2000, 10, 100
FLOW_MB_PER_S = 50.0
SECONDS = 10.0
Results = dict[str, Figures]


def main() -> int:
    parts: dict[str, Callable[[argparse.Namespace], dict[str, Results]]] = {
        "billion": lambda options: {"ottla": large_topic(int(BILLION * options.share), 8, is_compressed=False)},
        "offsets": lambda options: {"ottla": large_topic(int(BEYOND_32_BITS * options.share), 0, is_compressed=True)},
        "connections": lambda options: on_both(options, connections),
        "partitions": lambda options: on_both(options, partitions),
    }
    parser = argparse.ArgumentParser(prog="python -m bench.big", description=__doc__)
    parser.add_argument("part", nargs="*", choices=[*parts, []], help="which of them (default: all)")
    parser.add_argument("--share", type=float, default=1.0, help="of the sizes (default: 1)")
    parser.add_argument("--no-kafka", action="store_true", help="ottla alone")
    parser.add_argument("--output", type=Path, help="write the figures to a file, too")
    options = parser.parse_args()
    raise_file_limit()  # inherited: one per connection, on both sides; Apache Kafka opens three per partition
    found = {name: parts[name](options) for name in options.part or parts}
    text = json.dumps(found, indent=1)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n")
    return 0


def on_both(options: argparse.Namespace, measure: Callable[[BrokerProcess, float], Results]) -> dict[str, Results]:
    kinds: list[type[BrokerProcess]] = [OttlaProcess] if options.no_kafka else [OttlaProcess, KafkaProcess]
    found = {}
    for kind in kinds:
        with kind(log_of(kind.system)) as broker:
            found[kind.system] = measure(broker, options.share)
    return found


def log_of(system: str) -> Path:
    return cache_folder() / "results" / f"big-{system}.log"


# ---- a large topic


def large_topic(records: int, value_bytes: int, *, is_compressed: bool) -> Results:
    log = log_of("ottla")
    log.unlink(missing_ok=True)
    with OttlaProcess(log, settings=EAGER) as broker:
        found: Results = {}

        def keep(name: str, figures: Figures) -> Figures:
            print(f"{name}: {json.dumps({key: round(value, 3) for key, value in figures.items()})}", flush=True)
            found[name] = figures
            return figures

        produce_one(broker.target, create_topic(broker.target, "small", 1), b"first")
        written = keep(
            "written", run_apart(TIMEOUT_S, numbered.write, broker.target, TOPIC, records, value_bytes, is_compressed)
        )
        keep("broker", {"rss_mb": memory(broker.target.pid).rss_mb, "disk_gb": disk_gb(broker)})
        batch_records, end = int(written["batch_records"]), int(written["records"])
        look(broker, keep, "", batch_records, 0, end)
        for name, by_force in (("clean stop", False), ("kill -9", True)):
            keep(f"start after a {name}", start_again(broker, by_force))
            look(broker, keep, f" after a {name}", batch_records, 0, end)
        middle = end // 2
        keep("spark", run_apart(TIMEOUT_S, spark_load.read_slice, broker.target, TOPIC, middle, middle + 1_000_000))
        first = keep("retention", shorten(broker, int(written["segment_bytes"])))["first_offset"]
        look(broker, keep, " after retention", batch_records, int(first), end)
        keep("compaction", compact(broker, batch_records, end))
    return found


def look(
    broker: BrokerProcess, keep: Callable[[str, Figures], Figures], when: str, batch_records: int, first: int, end: int
) -> None:
    words = (broker.target, TOPIC, batch_records, first, end, LOOKS)
    keep(f"by offset{when}", run_apart(TIMEOUT_S, numbered.read_by_offset, *words))
    keep(f"by time{when}", run_apart(TIMEOUT_S, numbered.read_by_time, *words))


def start_again(broker: BrokerProcess, by_force: bool) -> Figures:
    stopped_s = broker.end(START_SECONDS_MAX, by_force=by_force)
    started = broker.launch()
    small = next(broker.data_folder.glob("bench-small-*")).name.rpartition("-")[0]
    watch = Watch(broker.target, started, lambda: broker.check_alive(started, START_SECONDS_MAX))
    return watch.run({TOPIC: 1}, small) | {"stop_s": stopped_s}


def shorten(broker: BrokerProcess, segment_bytes: int) -> Figures:
    """Keep a tenth of the bytes, in whole segments: the duration, and the new start offset."""
    kept = int(disk_gb(broker) * 1e9) // 10
    began = time.perf_counter()
    alter(broker, {"retention.bytes": str(kept)})
    while disk_gb(broker) * 1e9 > kept + 2 * segment_bytes:
        broker.check_alive(began, START_SECONDS_MAX)
        time.sleep(0.2)
    first, _ = numbered.watermarks(broker.target, TOPIC)
    return {"seconds": time.perf_counter() - began, "first_offset": float(first), "disk_gb": disk_gb(broker)}


def compact(broker: BrokerProcess, batch_records: int, end: int) -> Figures:
    """Every batch has the same keys: all but the newest record of each, and the active segment, may be removed."""
    before = disk_gb(broker)
    began = time.perf_counter()
    alter(broker, {"cleanup.policy": "compact", "retention.bytes": "-1", "min.cleanable.dirty.ratio": "0.01"})
    while "cleaned numbered-0" not in broker.log_text():
        broker.check_alive(began, START_SECONDS_MAX)
        time.sleep(0.5)
    seconds = time.perf_counter() - began
    time.sleep(SETTLE_SECONDS)
    found = run_apart(TIMEOUT_S, numbered.read_all, broker.target, TOPIC, end)
    for offset, key in found:
        if key != b"%d" % (offset % batch_records):
            raise BenchError(f"at offset {offset} stands {key!r} after compaction")
    if len({key for _, key in found}) != batch_records:
        raise BenchError("a key is gone")
    return {"seconds": seconds, "gb_before": before, "gb_after": disk_gb(broker), "records_left": float(len(found))}


def alter(broker: BrokerProcess, settings: dict[str, str]) -> None:
    client = AdminClient({"bootstrap.servers": broker.target.bootstrap})
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()]
    resources = [ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=entries)]
    for future in client.incremental_alter_configs(resources).values():
        future.result(60)


def disk_gb(broker: BrokerProcess) -> float:
    return sum(path.stat().st_size for path in broker.data_folder.glob(f"{TOPIC}-0/*.log")) / 1e9


# ---- many of something


def connections(broker: BrokerProcess, share: float) -> Results:
    topic = create_topic(broker.target, "busy", BUSY)
    idle = int(CONNECTIONS * share) - BUSY
    return {"connections": run_apart(TIMEOUT_S, many.busy_beside_idle, broker.target, topic, BUSY, idle, SECONDS)}


def partitions(broker: BrokerProcess, share: float) -> Results:
    topics = {f"many-{number}": TOPIC_PARTITIONS for number in range(int(TOPICS * share))}
    small = "small"
    began = time.perf_counter()
    create_topics(broker.target, {small: 1})
    run_apart(TIMEOUT_S, many.make_partitions, broker.target, topics, TOPICS_AT_ONCE)
    produce_one(broker.target, small, b"first")
    found: Results = {"created": {"seconds": time.perf_counter() - began}}
    wait_until_quiet(broker.target.pid, SETTLE_SECONDS)
    found["idle"] = {"rss_mb": memory(broker.target.pid).rss_mb}
    found["flow"] = run_apart(TIMEOUT_S, flow.beside_flow, broker.target, topics, small, FLOW_MB_PER_S, 2.0, SECONDS)
    for name, by_force in (("clean stop", False), ("kill -9", True)):
        stop_s = broker.end(START_SECONDS_MAX, by_force=by_force)
        started = broker.launch()
        watch = Watch(broker.target, started, lambda begin=started: broker.check_alive(begin, START_SECONDS_MAX))
        found[f"start after a {name}"] = watch.run(topics, small) | {"stop_s": stop_s}
    print(broker.system, json.dumps(found), flush=True)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
