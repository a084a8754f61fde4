"""confluent-kafka (librdkafka) for our tools: made when needed, its trouble told to a person.

What librdkafka does not know is left out with a warning, as a Java client would do. Where it was built without
Kerberos, kafka-python takes its place for such logins, and for those with a delegation token anywhere.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ottla.cli.terminal import ToolError, warn
from ottla.client.java_properties import NO_TOKENS, make_without_unknown
from ottla.client.kafka_python import KafkaPythonError, has_kerberos, make, wants_kerberos, wants_token
from ottla.security.jaas import JaasError

METADATA_SECONDS = 1.0
START_SECONDS = 1.0
QUIET_SECONDS = 60.0
MEASURES_ITSELF = (
    "this tool measures librdkafka, and confluent-kafka's is built without Kerberos: measure at a listener with "
    "another mechanism, or with the tools of Apache Kafka"
)
SERIOUS = frozenset({"_ALL_BROKERS_DOWN", "_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED"})
NO_PLACE = frozenset({"COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"})  # with others the library asks again


def make_producer(settings: Mapping[str, Any], *, is_measured: bool = False) -> Any:
    """`is_measured`: figures are wanted, so nothing may take the place of librdkafka."""
    return _make("Producer", settings, is_measured)


def make_consumer(settings: Mapping[str, Any], *, is_measured: bool = False) -> Any:
    return _make("Consumer", settings, is_measured)


def has_no_place(error: Any) -> bool:
    """Whether a member of a group was not told where to begin, because its coordinator moves: the library finds the
    new one, and does not ask it (its issue 5586). Its partitions stand still until it joins again.
    """
    return error.name() in NO_PLACE


def join_again(consumer: Any, topics: list[str]) -> bool:
    """Whether it is done. First the new coordinator has to answer: else nobody hears that this member leaves, and the
    others wait for it until its session ends.
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


def hurry_metadata(client: Any, topic: str | None) -> None:
    """Without being asked the library takes half a second until it knows the leaders, and for a producer id."""
    with suppress(library().KafkaException):  # it will keep asking by itself
        client.list_topics(topic, timeout=METADATA_SECONDS)


def library() -> Any:
    """The confluent_kafka module; it takes 40 ms to load, so only the tools that move records do."""
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
            raise ToolError(NO_TOKENS if wants_token(wanted) else MEASURES_ITSELF)
        return _make_kafka_python(kind, wanted)
    if "log_level" not in settings:
        wanted["logger"] = _silent_logger()  # what ends a client is written whatever the level: the tool tells it
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
        return make(kind, library(), settings, _warn_unknown)
    except (KafkaPythonError, JaasError) as problem:
        raise ToolError(str(problem)) from None


def _warn_unknown(name: str) -> None:
    warn(f"warning: the property {name} is not known here and has no effect")


class ErrorReporter:
    """Tells a person about trouble, at most once a minute; the library goes on trying by itself.

    Trouble right after the start means little: a name may have two addresses of which only one is listened on.
    """

    def __init__(self, say: Callable[[str], None] = warn, seconds: Callable[[], float] = time.monotonic) -> None:
        self.say = say
        self.seconds = seconds
        self.quiet_until = seconds() + START_SECONDS

    def __call__(self, error: Any) -> None:
        is_serious = error.name() in SERIOUS or error.fatal()
        if is_serious and self.seconds() >= self.quiet_until:
            self.quiet_until = self.seconds() + QUIET_SECONDS
            self.say(f"warning: {error.str()}; trying again")

    def __repr__(self) -> str:
        return f"<ErrorReporter quiet_until={self.quiet_until:.1f}>"
