"""The sections to measure and their duration, from the command line."""

import argparse
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.kafka_process import missing_tools
from bench.paths import cache_folder
from bench.procfs import meminfo_mb

SECTIONS = (
    "startup",
    "sync",
    "small",
    "raw",
    "librdkafka",
    "end_to_end",
    "cold",
    "scale",
    "partitions",
    "restart",
    "recovery",
    "groups",
    "offsets",
    "spark",
)
ONCE = frozenset(("cold", "scale", "partitions", "restart", "recovery", "groups", "offsets", "spark"))  # minutes
SYSTEMS = ("kafka", "ottla")
WRITE_BYTES_MAX = 4_000_000_000
MEMORY_SHARE = 12  # the kernel writes dirty pages back beyond a tenth of the memory, and soon makes writers wait for it


@dataclass(frozen=True)
class Options:
    """All times in seconds. The amounts are the same for both systems and every round."""

    sections: tuple[str, ...]
    systems: tuple[str, ...]
    rounds: int
    seconds: float
    warmup_s: float
    idle_s: float
    quiet_s_max: float  # how long to wait until a broker has finished what it still does on its own
    end_to_end_s: float
    is_non_blocking: bool
    fills_page_cache: bool
    write_bytes_max: int  # of one measurement: stays below where the kernel makes writers wait for the disk
    fetch_partition_bytes: int
    cold_bytes: int
    partition_counts: tuple[int, ...]
    connection_counts: tuple[int, ...]
    restart_partitions: int
    recovery_bytes: int
    offset_groups: int  # of a hundred offsets each
    output: Path
    source: Path | None

    def sections_of(self, round_index: int) -> tuple[str, ...]:
        """The sections of this round: the long ones only in the first."""
        return tuple(name for name in self.sections if round_index == 0 or name not in ONCE)

    @property
    def timeout_s(self) -> float:
        """The limit for a single measurement."""
        return 240 + 10 * (self.seconds + self.warmup_s + self.end_to_end_s)

    def for_json(self) -> dict[str, Any]:
        return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}


def read_options(arguments: list[str] | None = None) -> Options:
    parsed = _parser().parse_args(arguments)
    quick = parsed.quick
    seconds = parsed.seconds or (1.0 if quick else 1.5)
    return Options(
        sections=_chosen(parsed.only, SECTIONS),
        systems=_systems(parsed),
        rounds=parsed.rounds or (1 if quick else 3),
        seconds=seconds,
        warmup_s=1.5 if quick else 3.0,
        idle_s=2.0 if quick else 3.0,
        quiet_s_max=4.0 if quick else 10.0,
        end_to_end_s=3.0 if quick else max(6.0, seconds),
        is_non_blocking=quick,
        fills_page_cache=parsed.fill,
        write_bytes_max=min(WRITE_BYTES_MAX, (meminfo_mb("MemTotal") << 20) // MEMORY_SHARE),
        fetch_partition_bytes=(128 if quick else 256) << 20,
        cold_bytes=(256 if quick else 1024) << 20,
        partition_counts=(10, 1000 if quick else 10_000),
        connection_counts=(1, 100 if quick else 1000),
        restart_partitions=1000 if quick else 10_000,
        recovery_bytes=1_000_000_000 if quick else 2_000_000_000,
        offset_groups=1000 if quick else 10_000,
        output=parsed.output or cache_folder() / "results" / time.strftime("%Y%m%d-%H%M%S"),
        source=parsed.source,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures ottla beside Apache Kafka.")
    parser.add_argument("--only", metavar="SECTIONS", help="comma separated: " + ",".join(SECTIONS))
    parser.add_argument("--systems", metavar="SYSTEMS", help="comma separated: " + ",".join(SYSTEMS))
    parser.add_argument("--no-kafka", action="store_true", help="measure ottla alone (no Java needed)")
    parser.add_argument(
        "--rounds", type=_positive, help="how often each system is measured (3; quick: 1); long sections once"
    )
    parser.add_argument("--seconds", type=float, help="length of one measurement (1.5; quick: 1)")
    parser.add_argument(
        "--quick", action="store_true", help="a few minutes: short, one round, at most 1,000 partitions"
    )
    parser.add_argument("--no-fill", dest="fill", action="store_false", help="leave the page cache as it is")
    parser.add_argument("--output", type=Path, metavar="DIR", help="where results.json, report, plots and logs go")
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="FILE", help="no measuring: report on this results.json"
    )
    return parser


def _systems(parsed: argparse.Namespace) -> tuple[str, ...]:
    systems = _chosen("ottla" if parsed.no_kafka else parsed.systems, SYSTEMS)
    missing = missing_tools() if "kafka" in systems and not parsed.source else []
    if missing:
        raise BenchError(f"Apache Kafka needs {' and '.join(missing)}: install it, or use --no-kafka")
    return systems


def _chosen(text: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    """The named ones in their usual order; all without names."""
    names = {name for name in text.split(",") if name} if text else set(known)
    if unknown := names - set(known):
        raise BenchError(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(known)}")
    return tuple(name for name in known if name in names)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
