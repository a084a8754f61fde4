"""Prepared batches in and stored batches out, with 1 and 4 connections: how fast bytes move through the broker."""

from typing import NamedTuple

from bench.context import Context
from bench.loads import fetch, produce

CONNECTIONS = (1, 4)
PARTITIONS = 4
STORED_BATCH_BYTES = 64 << 10
RECORD_BYTES = 1000


class Shape(NamedTuple):
    """What the Produce requests of a measurement hold."""

    name: str
    batch_bytes: int
    record_bytes: int


SHAPES = (
    Shape("64k", 64 << 10, RECORD_BYTES),
    Shape("1m", 1 << 20, RECORD_BYTES),
    Shape("1m_of_100", 1 << 20, 100),
)
FETCHES = {"1m": 1 << 20, "50m": 50 << 20}


def run(context: Context) -> None:
    _warm_up(context)
    for connections in CONNECTIONS:
        for shape in SHAPES:
            _produce(context, shape, connections)
    _fetch(context)


def _warm_up(context: Context) -> None:
    options = context.options
    context.progress.say("warms up")
    with context.topic("warm", PARTITIONS, fill_cache=True) as topic:
        arguments = (PARTITIONS, STORED_BATCH_BYTES, RECORD_BYTES, options.warmup_s, options.write_bytes_max)
        context.apart(produce.produce, topic, *arguments)


def _produce(context: Context, shape: Shape, connections: int) -> None:
    options = context.options
    with context.topic("raw", PARTITIONS, fill_cache=True) as topic:
        name = f"produce_{shape.name}_{connections}"
        amount = (options.seconds, options.write_bytes_max)
        context.measure(name, produce.produce, topic, connections, shape.batch_bytes, shape.record_bytes, *amount)


def _fetch(context: Context) -> None:
    options = context.options
    with context.topic("fetch", PARTITIONS, fill_cache=True) as topic:
        shape = (PARTITIONS, STORED_BATCH_BYTES, RECORD_BYTES, options.fetch_partition_bytes)
        batch_bytes = context.apart(produce.fill, topic, *shape)
        context.apart(fetch.fetch, topic, PARTITIONS, 1 << 20, batch_bytes, options.warmup_s)
        for connections in CONNECTIONS:
            for name, bytes_max in FETCHES.items():
                arguments = (topic, connections, bytes_max, batch_bytes, options.seconds)
                context.measure(f"fetch_{name}_{connections}", fetch.fetch, *arguments)
