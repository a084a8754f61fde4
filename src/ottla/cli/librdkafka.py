"""confluent-kafka (librdkafka) under the names of the Java client's properties.

Kafka's tools and their users speak of Java properties. Most have the same name in librdkafka; the table below has
the others. What librdkafka does not know is left out with a warning, as a Java client would do.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ottla.cli.terminal import ToolError, warn

RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "sasl.mechanism": "sasl.mechanisms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
# Java classes and limits of the Java client that have no meaning here.
WITHOUT_MEANING = frozenset(
    {
        "auto.include.jmx.reporter",
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "max.block.ms",
        "max.poll.records",
        "metric.reporters",
        "partitioner.class",
        "value.deserializer",
        "value.serializer",
    }
)
UNKNOWN_PROPERTIES_MAX = 100
METADATA_SECONDS = 1.0
START_SECONDS = 1.0
QUIET_SECONDS = 60.0
SERIOUS = frozenset({"_ALL_BROKERS_DOWN", "_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED"})
_NO_SUCH_PROPERTY = re.compile(r'No such configuration property: "([^"]+)"')


def translate(properties: Mapping[str, str]) -> dict[str, Any]:
    """Java client properties as librdkafka knows them."""
    found: dict[str, Any] = {}
    for name, value in properties.items():
        if name in WITHOUT_MEANING:
            continue
        if name == "buffer.memory" and value.strip().isdecimal():
            found["queue.buffering.max.kbytes"] = max(1, int(value) // 1024)
        else:
            found[RENAMED.get(name, name)] = value.strip()
    return found


def make_producer(settings: Mapping[str, Any]) -> Any:
    return _make("Producer", settings)


def make_consumer(settings: Mapping[str, Any]) -> Any:
    return _make("Consumer", settings)


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


def _make(kind: str, settings: Mapping[str, Any]) -> Any:
    module = library()
    wanted = dict(settings)
    wanted["log_level"] = wanted.get("log_level", 2)  # librdkafka's own log lines are for developers
    wanted["error_cb"] = ErrorReporter()
    for _ in range(UNKNOWN_PROPERTIES_MAX):
        try:
            return getattr(module, kind)(wanted)
        except module.KafkaException as problem:
            sentence = problem.args[0].str()
            unknown = _NO_SUCH_PROPERTY.search(sentence)
            if unknown is None or wanted.pop(unknown.group(1), None) is None:
                raise ToolError(f"the client cannot be configured like this: {sentence}") from None
            warn(f"warning: the property {unknown.group(1)} is not known here and has no effect")
    raise ToolError("too many unknown client properties")


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
