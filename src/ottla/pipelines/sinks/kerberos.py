"""Sinks that log in by Kerberos, which confluent-kafka's packages are built without: kafka-python writes instead.

At least once only: kafka-python's transactions are not those that publishing.py is proven with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.client.configs import Resource, describe_configs
from ottla.client.errors import ClientError
from ottla.client.kafka_python import KafkaPythonError, has_kerberos, make, wants_kerberos
from ottla.client.opening import open_client
from ottla.pipelines.sinks.batch import SinkError
from ottla.security.jaas import JaasError

NOT_EXACTLY_ONCE = (
    "topic {topic}: a sink that logs in by Kerberos delivers at least once, since confluent-kafka is built without "
    "Kerberos: set delivery: at-least-once, or use another login (SCRAM, for instance)"
)


def needs_kafka_python(settings: Mapping[str, Any]) -> bool:
    import confluent_kafka  # noqa: PLC0415 (loaded where it is used)

    return wants_kerberos(settings) and not has_kerberos(confluent_kafka)


def make_producer(settings: Mapping[str, Any]) -> Any:
    """librdkafka's, unless the login needs the other one. Raises SinkError."""
    import confluent_kafka  # noqa: PLC0415 (loaded in Spark's workers)

    if not needs_kafka_python(settings):
        return confluent_kafka.Producer(dict(settings))
    try:
        return make("Producer", confluent_kafka, settings, lambda _: None)  # most of them are librdkafka's own
    except (KafkaPythonError, JaasError) as problem:
        raise SinkError(str(problem)) from None


def topic_setting(settings: Mapping[str, str], topic: str, name: str) -> str:
    """Of a topic, asked by our own client. Raises SinkError."""
    try:
        with open_client(settings["bootstrap.servers"], settings) as client:
            found = describe_configs(client, Resource.TOPIC, [topic])[topic]
    except ClientError as problem:
        raise SinkError(f"topic {topic} cannot be looked at: {problem}") from None
    return next(config.value or "" for config in found if config.name == name)
