"""Confluent's console tools: Kafka's, with a reader and a formatter that know schemas of a registry.

`kafka-avro-console-producer`, `kafka-json-schema-console-producer`, `kafka-protobuf-console-producer`, and consumers.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.cli.kafka import consume, produce

AVRO, JSON_SCHEMA, PROTOBUF = "avro", "json-schema", "protobuf"


def avro_producer(arguments: Sequence[str]) -> int:
    return _produce(AVRO, arguments)


def avro_consumer(arguments: Sequence[str]) -> int:
    return _consume(AVRO, arguments)


def json_schema_producer(arguments: Sequence[str]) -> int:
    return _produce(JSON_SCHEMA, arguments)


def json_schema_consumer(arguments: Sequence[str]) -> int:
    return _consume(JSON_SCHEMA, arguments)


def protobuf_producer(arguments: Sequence[str]) -> int:
    return _produce(PROTOBUF, arguments)


def protobuf_consumer(arguments: Sequence[str]) -> int:
    return _consume(PROTOBUF, arguments)


def _produce(name: str, arguments: Sequence[str]) -> int:
    return produce.run(arguments, f"kafka-{name}-console-producer", produce.SCHEMA_READERS[name])


def _consume(name: str, arguments: Sequence[str]) -> int:
    return consume.run(arguments, f"kafka-{name}-console-consumer", consume.SCHEMA_FORMATTERS[name])
