"""The sections of the benchmark, and which of them share one broker process.

Sections that load a broker share one, whose memory is looked at afterwards. Those that count memory per partition get a
fresh one. Thousands of partitions are made once: what they cost, and how long a start with them takes.
"""

from collections.abc import Callable

from bench.context import Context
from bench.sections import (
    cold,
    end_to_end,
    groups,
    librdkafka,
    offsets,
    partitions,
    raw,
    recovery,
    restart,
    scale,
    small,
    spark,
    startup,
    sync,
)

RUN: dict[str, Callable[[Context], None]] = {
    "startup": startup.run,
    "sync": sync.run,
    "small": small.run,
    "raw": raw.run,
    "librdkafka": librdkafka.run,
    "end_to_end": end_to_end.run,
    "cold": cold.run,
    "scale": scale.run,
    "partitions": partitions.run,
    "restart": restart.run,
    "recovery": recovery.run,
    "groups": groups.run,
    "offsets": offsets.run,
    "spark": spark.run,
}
# What is asked of these has nothing to do with how many requests a broker has served before.
NEED_NO_WARM_UP = frozenset(("startup", "scale", "restart", "recovery", "offsets", "spark"))
LOADS = frozenset(("sync", "small", "raw", "librdkafka", "end_to_end", "cold"))
GROUPS: tuple[tuple[str, ...], ...] = (
    ("startup", "sync", "small", "raw", "librdkafka", "end_to_end", "cold"),
    ("scale",),
    ("partitions", "restart"),
    ("recovery",),
    ("groups",),
    ("offsets",),
    ("spark",),
)
