"""Every figure of the report, and its goal."""

from dataclasses import dataclass

from bench.options import SECTIONS

KAFKA, OTTLA, PHYSICAL = "kafka", "ottla", "physical"
TIMES = "\N{MULTIPLICATION SIGN}"
GROWTH_MAX = 1.2  # "does not grow", with room for noise


@dataclass(frozen=True)
class Goal:
    """A bound for ottla's own figure, or for its ratio to Apache Kafka's."""

    bound: float
    is_minimum: bool
    is_ratio: bool

    @property
    def text(self) -> str:
        return f"{'≥' if self.is_minimum else '≤'} {self.bound:g}{f' {TIMES} Kafka' if self.is_ratio else ''}"

    def is_met(self, value: float | None, ratio: float | None) -> bool | None:
        """None without figures."""
        judged = self._judged(value, ratio)
        if judged is None:
            return None
        return judged >= self.bound if self.is_minimum else judged <= self.bound

    def missed_by(self, value: float | None, ratio: float | None) -> float | None:
        """How far the figure is from its bound, as a share of the bound; None when the goal is met."""
        judged = self._judged(value, ratio)
        if judged is None or self.is_met(value, ratio):
            return None
        return abs(judged - self.bound) / self.bound

    def _judged(self, value: float | None, ratio: float | None) -> float | None:
        return ratio if self.is_ratio else value


@dataclass(frozen=True)
class Row:
    """One line of the table; paths are section.measurement.figure.

    With `share_of` the value is a share of another figure of the same system, or of the machine ("physical:path").
    """

    label: str
    path: str
    unit: str
    goal: Goal | None = None
    cpu: str | None = None
    share_of: str | None = None

    @property
    def section(self) -> str:
        return self.path.partition(".")[0]

    @property
    def cpu_path(self) -> str | None:
        return f"{self.path.rpartition('.')[0]}.{self.cpu}" if self.cpu else None


def at_least(bound: float) -> Goal:
    return Goal(bound, is_minimum=True, is_ratio=False)


def at_most(bound: float) -> Goal:
    return Goal(bound, is_minimum=False, is_ratio=False)


def at_least_kafka(times: float) -> Goal:
    return Goal(times, is_minimum=True, is_ratio=True)


def at_most_kafka(times: float) -> Goal:
    return Goal(times, is_minimum=False, is_ratio=True)


def rows() -> list[Row]:
    return [
        *_startup_rows(),
        *_request_rows(),
        *_raw_produce_rows(),
        *_raw_fetch_rows(),
        *_librdkafka_rows(),
        *_end_to_end_rows(),
        *_cold_rows(),
        *_scale_rows(),
        *_growth_rows(),
        *_restart_rows(),
        *_recovery_rows(),
        *_group_rows(),
        *_offset_rows(),
        *_spark_rows(),
        Row("longest callback of the event loop", "loop.all.longest_callback_ms", "ms", at_most(10)),
        Row("most work of its own in a callback over 10 ms", "loop.all.most_running_ms", "ms"),
        *_callback_rows(),
    ]


def section_titles() -> dict[str, str]:
    """Sections of the report in their order; memory is listed with start-up."""
    titles = {
        "startup": "Start and memory",
        "sync": "One request in flight",
        "small": "50 connections of small requests",
        "raw": "Large batches over raw sockets",
        "librdkafka": "librdkafka",
        "end_to_end": "End to end",
        "cold": "A reader of cold data and a concurrent writer",
        "scale": "Many connections and partitions",
        "partitions": "Cost of a request with many partitions and connections",
        "restart": "10,000 partitions",
        "recovery": "Recovery after kill -9",
        "groups": "Consumer groups and transactions",
        "offsets": "Many committed offsets",
        "spark": "Spark reads 100 B records",
        "loop": "Event loop",
    }
    assert set(SECTIONS) <= set(titles)
    return titles


def _startup_rows() -> list[Row]:
    return [
        Row("process start to first Metadata response", "startup.start.startup_s", "s", at_most(0.3)),
        Row("resident memory, idle", "startup.start.rss_mb", "MB", at_most(50)),
        Row("resident memory after the load", "memory.after_load.rss_mb", "MB", at_most(120)),
        Row("processor use, idle", "startup.start.idle_cpu_percent", "%"),
    ]


def _request_rows() -> list[Row]:
    cpu = "cpu_us_per_request"
    return [
        Row("one in flight, raw 100 B", "sync.raw.requests_per_s", "requests/s", at_least_kafka(2.2), cpu),
        Row("one in flight, raw 100 B, p50", "sync.raw.p50_ms", "ms"),
        Row("one in flight, raw 100 B, p99", "sync.raw.p99_ms", "ms", at_most(0.2)),
        Row(
            "one in flight, librdkafka 100 B", "sync.librdkafka.requests_per_s", "requests/s", at_least_kafka(1.5), cpu
        ),
        Row("50 connections, 1 in flight each", "small.depth_1.requests_per_s", "requests/s", at_least_kafka(1), cpu),
        Row("50 connections, 1 in flight each, p99", "small.depth_1.p99_ms", "ms"),
        Row("50 connections, 10 in flight each", "small.depth_10.requests_per_s", "requests/s", at_least_kafka(1), cpu),
    ]


def _raw_produce_rows() -> list[Row]:
    cpu = "cpu_s_per_gb"
    shapes = (
        ("64 KiB", "64k", {1: 1.5, 4: 1.5}),
        ("1 MiB", "1m", {1: 1.0, 4: 1.2}),
        ("1 MiB of 100 B records", "1m_of_100", {1: 1.0, 4: 1.0}),
    )
    found = [
        Row(
            f"produce {label}, {_connections(count)}",
            f"raw.produce_{name}_{count}.mb_per_s",
            "MB/s",
            at_least_kafka(times),
            cpu,
        )
        for label, name, goals in shapes
        for count, times in goals.items()
    ]
    copy = "physical:machine.socket_to_file.mb_per_s"
    share = "produce 1 MiB as a share of a socket→file copy"
    found += [
        Row(f"{share}, {_connections(count)}", f"raw.produce_1m_{count}.mb_per_s", "", at_least(0.7), share_of=copy)
        for count in (1, 4)
    ]
    return found


def _raw_fetch_rows() -> list[Row]:
    shapes = [(label, name, count) for label, name in (("1 MiB", "1m"), ("50 MiB", "50m")) for count in (1, 4)]
    found = [
        Row(
            f"fetch {label}, {_connections(count)}",
            f"raw.fetch_{name}_{count}.mb_per_s",
            "MB/s",
            at_least_kafka(1.2 if (name, count) == ("1m", 4) else 1),
            "cpu_s_per_gb",
        )
        for label, name, count in shapes
    ]
    found += [
        Row(
            f"fetch {label} as a share of sendfile, {_connections(count)}",
            f"raw.fetch_{name}_{count}.mb_per_s",
            "",
            at_least(0.9),
            share_of="physical:machine.sendfile_1.mb_per_s",
        )
        for label, name, count in shapes
    ]
    found += [
        Row(
            f"fetch {label} as a share of sendfile in answers of that size",
            f"raw.fetch_{name}_1.mb_per_s",
            "",
            share_of=f"physical:machine.sendfile_answers_{name}.mb_per_s",
        )
        for label, name in (("1 MiB", "1m"), ("50 MiB", "50m"))
    ]
    return found


def _librdkafka_rows() -> list[Row]:
    found = [
        Row(
            f"librdkafka {action} {size:,} B{', lz4' if codec == 'lz4' else ''}",
            f"librdkafka.{action}_{size}_{codec}.mb_per_s",
            "MB/s",
            at_least_kafka(1),
            "cpu_s_per_gb",
        )
        for codec in ("none", "lz4")
        for size in (100, 1000)
        for action in ("produce", "consume")
    ]
    cpu = "librdkafka.consume_1000_none.cpu_s_per_gb"
    return [*found, Row("librdkafka consume 1,000 B, CPU of the broker", cpu, "s/GB", at_most_kafka(0.6))]


def _end_to_end_rows() -> list[Row]:
    path = "end_to_end.rate_1000"
    return [
        Row("end to end at 1,000 messages/s, p50", f"{path}.p50_ms", "ms", at_most_kafka(1), "cpu_us_per_record"),
        Row("end to end at 1,000 messages/s, p99", f"{path}.p99_ms", "ms", at_most_kafka(1.2)),
        Row("end to end at 1,000 messages/s, CPU of the broker", f"{path}.cpu_us_per_record", "µs", at_most_kafka(0.5)),
    ]


def _cold_rows() -> list[Row]:
    return [
        Row("writer alone, 64 KiB", "cold.writer_alone.mb_per_s", "MB/s", cpu="cpu_s_per_gb"),
        Row(
            "writer with a cold reader at 100 MB/s, share of its rate alone",
            "cold.cold_reader.of_alone",
            "",
            at_least(0.8),
        ),
        Row("writer with a warm reader at 100 MB/s, share of its rate alone", "cold.warm_reader.of_alone", ""),
        Row("writer with an unpaced cold reader, share of its rate alone", "cold.cold_reader_unpaced.of_alone", ""),
        Row("what the unpaced cold reader gets", "cold.cold_reader_unpaced.reader_mb_per_s", "MB/s"),
    ]


def _scale_rows() -> list[Row]:
    many, open_ = "scale.partitions_2000", "scale.connections_1000"
    return [
        Row("1,000 connections answered", f"{open_}.seconds", "s", at_most(0.5)),
        Row("memory per idle connection", f"{open_}.kb_per_connection", "KB"),
        Row("2,000 partitions until each took a write", f"{many}.seconds", "s", at_most_kafka(0.5), "broker_cpu_s"),
        Row("memory per idle partition", f"{many}.kb_per_partition", "KB", at_most(20)),
        Row("open files per partition", f"{many}.files_per_partition", ""),
    ]


def _growth_rows() -> list[Row]:
    found = []
    for what, counts in (("partitions", (10, 1000, 10_000)), ("connections", (1, 100, 1000))):
        for kind in ("produce", "fetch"):
            paths = [f"partitions.{kind}_{what}_{count}.cpu_us_per_request" for count in counts]
            for count, path in zip(counts, paths, strict=True):
                noun = what if count > 1 else what.removesuffix("s")
                found.append(Row(f"CPU per {kind} with {count:,} {noun}", path, "µs"))
            for count, path in zip(counts[1:], paths[1:], strict=True):
                label = f"CPU per {kind}, {count:,} {what} against {counts[0]}"
                found.append(Row(label, path, "", at_most(GROWTH_MAX), share_of=paths[0]))
    return found


def _restart_rows() -> list[Row]:
    return [
        Row("Metadata of all 10,000 partitions, first answer", "restart.metadata_new.first_ms", "ms"),
        Row("Metadata of all 10,000 partitions, v12", "restart.metadata_new.later_ms", "ms", at_most(50)),
        Row("Metadata of all 10,000 partitions, v4", "restart.metadata_old.later_ms", "ms", at_most(50)),
        Row("start after a clean stop until all are served", "restart.clean.all_served_s", "s", at_most(5)),
        Row("clean stop", "restart.clean.stop_s", "s"),
        Row("memory after that start", "restart.clean.rss_mb", "MB"),
        Row("start after kill -9 until all are served", "restart.killed.all_served_s", "s", at_most_kafka(1)),
    ]


def _recovery_rows() -> list[Row]:
    found = []
    for name, label in (("64k", "2 GB in batches of 64 KiB"), ("4k", "0.4 GB in batches of 4 KiB")):
        path = f"recovery.{name}"
        found += [
            Row(f"{label} until all partitions serve", f"{path}.all_served_s", "s", at_most_kafka(1)),
            Row(f"{label}, a small partition serves after", f"{path}.small_served_s", "s", at_most_kafka(1)),
            Row(f"{label}, p99 of the small partition meanwhile", f"{path}.small_p99_ms", "ms"),
        ]
    return found


def _group_rows() -> list[Row]:
    cpu = "cpu_us_per_request"
    who = "1,000 members in 100 groups"
    return [
        Row(f"Heartbeat, {who}", "groups.heartbeat.requests_per_s", "requests/s", at_least_kafka(1), cpu),
        Row(f"OffsetCommit, {who}", "groups.commit.requests_per_s", "requests/s", at_least_kafka(1.5), cpu),
        Row("200 members join one group until it has settled", "groups.join_200.seconds", "s", at_most_kafka(1)),
        Row(
            "transactions, one in flight, raw",
            "groups.transactions_raw.requests_per_s",
            "transactions/s",
            at_least_kafka(2),
            cpu,
        ),
        Row(
            "transactions, one in flight, librdkafka",
            "groups.transactions_librdkafka.requests_per_s",
            "transactions/s",
            at_least_kafka(2),
            cpu,
        ),
    ]


def _offset_rows() -> list[Row]:
    return [
        Row("memory of 10,000 groups with 10 offsets each", "offsets.memory.more_mb", "MB", at_most(150)),
        Row("start with 1,000,000 offsets until all groups answer", "offsets.clean.all_loaded_s", "s", at_most(10)),
        Row("the same after kill -9", "offsets.killed.all_loaded_s", "s"),
        Row("memory with 1,000,000 offsets", "offsets.clean.rss_mb", "MB"),
    ]


def _spark_rows() -> list[Row]:
    queries = {"thrown": "rows thrown away", "used": "every column used"}
    jvm = [
        Row(
            f"Spark's own connector, {label}",
            f"spark.jvm_{query}.records_per_s",
            "rows/s",
            at_least_kafka(1),
            "cpu_us_per_record",
        )
        for query, label in queries.items()
    ]
    ours = [
        Row(f"data source ottla, {label}", f"spark.ottla_{query}.records_per_s", "rows/s", None, "cpu_us_per_record")
        for query, label in queries.items()
    ]
    shares = [
        Row(
            f"data source ottla as a share of the connector, {label}",
            f"spark.ottla_{query}.records_per_s",
            "",
            at_least(0.8),
            share_of=f"spark.jvm_{query}.records_per_s",
        )
        for query, label in queries.items()
    ]
    return [*jvm, *ours, *shares]


def _callback_rows() -> list[Row]:
    """The broker reports the longest callback since its start: the figure jumps where it occurred."""
    return [
        Row(f"longest callback so far, after {section}", f"loop.{section}.longest_callback_ms", "ms")
        for section in SECTIONS
    ]


def _connections(count: int) -> str:
    return "1 connection" if count == 1 else f"{count} connections"
