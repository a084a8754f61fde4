"""Creates confluent-kafka (librdkafka) clients for the tools and reports their errors.

Properties that librdkafka does not know are skipped with a warning, as in a Java client. kafka-python replaces
librdkafka for Kerberos logins if librdkafka was built without Kerberos, and always for delegation tokens.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ottla.cli.terminal import ToolError, warn
from ottla.client.kafka_python import KafkaPythonError, has_kerberos, make_client, wants_kerberos, wants_token
from ottla.client.librdkafka_properties import NO_TOKENS, make_without_unknown
from ottla.security.jaas import JaasError

METADATA_SECONDS = 1.0
START_SECONDS = 1.0
QUIET_SECONDS = 60.0
NO_KERBEROS_MEASUREMENT = (
    "this tool measures librdkafka, and confluent-kafka's is built without Kerberos: measure at a listener with "
    "another mechanism, or with the tools of Apache Kafka"
)
REPORTED_ERRORS = frozenset({"_ALL_BROKERS_DOWN", "_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED"})
COORDINATOR_ERRORS = frozenset(
    {"COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
)  # librdkafka retries after other errors


def make_producer(settings: Mapping[str, Any], *, requires_librdkafka: bool = False) -> Any:
    """Create a producer. `is_measured` requires librdkafka, because the tool reports its performance."""
    return _make("Producer", settings, requires_librdkafka)


def make_consumer(settings: Mapping[str, Any], *, requires_librdkafka: bool = False) -> Any:
    return _make("Consumer", settings, requires_librdkafka)


def is_coordinator_error(error: Any) -> bool:
    """Whether a group member found no coordinator because the coordinator moved. librdkafka finds the new coordinator
    and does not query it again (librdkafka issue 5586), so the member's partitions stop until it rejoins.
    """
    return error.name() in COORDINATOR_ERRORS


def rejoin_group(consumer: Any, topics: list[str]) -> bool:
    """Leave and rejoin the group; returns whether that succeeded.

    The new coordinator must answer first. Otherwise the leave request is lost and the other members wait until this
    member's session expires.
    """
    assigned = consumer.assignment()
    try:
        if assigned:
            consumer.committed(assigned, timeout=METADATA_SECONDS)
    except library().KafkaException:
        return False
    consumer.unsubscribe()
    consumer.subscribe(topics)
    return True


def prefetch_metadata(client: Any, topic: str | None) -> None:
    """Request metadata now. Otherwise librdkafka needs half a second to find the leaders and a producer id."""
    with suppress(library().KafkaException):  # librdkafka retries by itself
        client.list_topics(topic, timeout=METADATA_SECONDS)


def library() -> Any:
    """The confluent_kafka module. It takes 40 ms to load, so only tools that move records import it."""
    try:
        import confluent_kafka  # noqa: PLC0415
    except ImportError:
        raise ToolError("this needs the package confluent-kafka: pip install 'ottla[cli]'") from None
    return confluent_kafka


def _make(kind: str, settings: Mapping[str, Any], is_measured: bool) -> Any:
    module = library()
    wanted = dict(settings)
    wanted["log_level"] = wanted.get("log_level", 2)  # librdkafka's own log lines are for developers
    wanted["error_cb"] = ErrorReporter()
    if wants_token(wanted) or (wants_kerberos(wanted) and not has_kerberos(module)):
        if is_measured:
            raise ToolError(NO_TOKENS if wants_token(wanted) else NO_KERBEROS_MEASUREMENT)
        return _make_kafka_python(kind, wanted)
    if "log_level" not in settings:
        # librdkafka logs fatal errors at every level, and the tool reports them itself
        wanted["logger"] = _silent_logger()
    try:
        return make_without_unknown(getattr(module, kind), wanted, module.KafkaException, _warn_unknown)
    except module.KafkaException as problem:
        raise ToolError(f"the client cannot be configured like this: {problem.args[0].str()}") from None


def _silent_logger() -> logging.Logger:
    logger = logging.getLogger("ottla.librdkafka")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


def _make_kafka_python(kind: str, settings: Mapping[str, Any]) -> Any:
    try:
        return make_client(kind, library(), settings, _warn_unknown)
    except (KafkaPythonError, JaasError) as problem:
        raise ToolError(str(problem)) from None


def _warn_unknown(name: str) -> None:
    warn(f"warning: the property {name} is unknown and has no effect")


class ErrorReporter:
    """Prints librdkafka errors at most once a minute; librdkafka retries by itself.

    Errors right after the start are skipped: a host name may have two addresses of which only one accepts connections.
    """

    def __init__(self, say: Callable[[str], None] = warn, seconds: Callable[[], float] = time.monotonic) -> None:
        self.say = say
        self.seconds = seconds
        self.silent_until_s = seconds() + START_SECONDS

    def __call__(self, error: Any) -> None:
        is_serious = error.name() in REPORTED_ERRORS or error.fatal()
        if is_serious and self.seconds() >= self.silent_until_s:
            self.silent_until_s = self.seconds() + QUIET_SECONDS
            self.say(f"warning: {error.str()}; trying again")

    def __repr__(self) -> str:
        return f"<ErrorReporter quiet_until={self.silent_until_s:.1f}>"
