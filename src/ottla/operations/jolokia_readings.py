"""Reads Kafka's MBeans through Jolokia, from any broker with that agent or from ottla's own `/jolokia`.

MBeans become samples under the names of jmx_exporter (metrics/prometheus.py), so readings of Apache Kafka and of ottla
yield the same rates. Process metrics have other names in Java than in Prometheus; ALIASES maps them. A JVM reports its
heap, not its resident memory, so that stays unknown.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from ottla.metrics.beans import SUM, BadNameError, Bean, ObjectName, parse_pattern
from ottla.metrics.prometheus import families_of
from ottla.operations.errors import OperationError
from ottla.operations.metric_readings import TIMEOUT_SECONDS, Reading, Sample, read_metrics, read_url

AGENT, PATH = "/jolokia", "/jolokia/"  # Jolokia's standalone server only knows the second
BEANS: Final = (
    "kafka.server:type=BrokerTopicMetrics,*",
    "kafka.server:type=ReplicaManager,*",
    "kafka.server:type=KafkaServer,*",
    "kafka.server:type=KafkaRequestHandlerPool,*",
    "kafka.server:type=socket-server-metrics,*",
    "kafka.controller:type=KafkaController,*",
    "kafka.network:type=RequestMetrics,name=RequestsPerSec,*",
    "kafka.network:type=RequestMetrics,name=TotalTimeMs,*",
    "java.lang:type=OperatingSystem",
    "java.lang:type=Memory",
    "java.lang:type=Runtime",
)
# no further keys, so without the beans of single topics
ALL_TOPICS: Final = "kafka.server:type=BrokerTopicMetrics,name=*"
ALIASES: Final = {
    "java_lang_operatingsystem_processcputime": ("process_cpu_seconds_total", 1e-9),
    "java_lang_operatingsystem_openfiledescriptorcount": ("process_open_fds", 1.0),
    "java_lang_operatingsystem_maxfiledescriptorcount": ("process_max_fds", 1.0),
    "java_lang_runtime_starttime": ("process_start_time_seconds", 1e-3),
}
REMEDY: Final = "A broker in Java needs Jolokia's agent: KAFKA_OPTS=-javaagent:jolokia-agent-jvm.jar=port=8778"
OK: Final = 200


def read_jolokia(
    url: str, remedy: str = REMEDY, seconds_max: float = TIMEOUT_SECONDS, prefixes: tuple[str, ...] = ()
) -> Reading:
    """The current metrics; `url` is the agent's address, with or without /jolokia. `prefixes` keeps only samples whose
    names have one of these prefixes, without those of single topics.
    """
    names = (ALL_TOPICS, *BEANS[1:]) if prefixes else BEANS
    body = json.dumps([{"type": "read", "mbean": name} for name in names]).encode()
    page = read_url(url.rstrip("/").removesuffix(AGENT), PATH, remedy, body, seconds_max)
    reading = parse_jolokia(page, time.monotonic())
    if prefixes:
        kept = (*prefixes, "kafka_server_")
        reading.samples = {name: each for name, each in reading.samples.items() if name.startswith(kept)}
    if not any(name.startswith("kafka_server_") for name in reading.samples):
        raise OperationError(f"{url.rpartition('@')[2]} has no metrics of a Kafka broker")
    return reading


def is_jolokia(url: str) -> bool:
    """Whether the address is that of a Jolokia agent; all others are ottla's own /metrics."""
    return AGENT in urlsplit(url).path


def read_endpoint(url: str) -> Reading:
    """The current metrics, from either kind of endpoint."""
    return read_jolokia(url) if is_jolokia(url) else read_metrics(url)


def parse_jolokia(text: str, taken_s: float) -> Reading:
    """The samples in responses to BEANS; missing or malformed beans are left out."""
    try:
        answers = json.loads(text)
    except ValueError:
        raise OperationError("the response is not JSON: the address is not a Jolokia agent") from None
    samples: dict[str, list[Sample]] = {}
    for asked, answer in zip(BEANS, answers if isinstance(answers, list) else (), strict=False):
        for bean in _beans(asked, answer):
            for name, sample in _samples(bean):
                samples.setdefault(name, []).append(sample)
    for name, (alias, factor) in ALIASES.items():
        if name in samples:
            samples[alias] = [item._replace(value=item.value * factor) for item in samples[name]]
    return Reading(samples, taken_s)


def _samples(bean: Bean) -> list[tuple[str, Sample]]:
    try:
        families = list(families_of(bean))
    except KeyError:  # the bean lacks an attribute
        return []
    return [
        (family.name + item.suffix, Sample(dict(item.labels), item.value))
        for family in families
        for item in family.samples
    ]


def _beans(object_name: str, answer: Any) -> Iterator[Bean]:
    """A request for one name returns its attributes; one for a pattern returns names with their attributes."""
    if not isinstance(answer, dict) or answer.get("status") != OK or not isinstance(answer.get("value"), dict):
        return
    found = answer["value"] if object_name.endswith("*") else {object_name: answer["value"]}
    for name, attributes in found.items():
        try:
            pattern = parse_pattern(name)
        except BadNameError:
            continue
        if isinstance(attributes, dict):
            yield Bean(ObjectName(pattern.domain, pattern.keys), _numbers(attributes))


def _numbers(attributes: Mapping[str, Any]) -> dict[str, float]:
    """Numeric attributes; nested ones as `outer_inner`."""
    flat = dict(attributes)
    for name, value in attributes.items():
        flat |= {f"{name}_{word}": inner for word, inner in value.items()} if isinstance(value, dict) else {}
    found = {
        name: value
        for name, value in flat.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
    if "Mean" in found and "Count" in found:
        found[SUM] = found["Mean"] * found["Count"]
    return found
