"""Reads Kafka's MBeans through Jolokia, of any broker with that agent, and of ottla's own `/jolokia`.

Beans become samples under the names that jmx_exporter gives them (metrics/prometheus.py), so that a reading of Apache
Kafka looks as one of ottla, and the same rates are made of both. What the process itself needs has other names in Java
than in Prometheus; ALIASES has them. Java tells its heap, not its resident memory: that stays unknown.
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
from ottla.operations.metric_readings import TIMEOUT_SECONDS, Reading, Sample, ask_page, read_metrics

AGENT, PATH = "/jolokia", "/jolokia/"  # Jolokia's own server knows only the second
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
ALL_TOPICS: Final = "kafka.server:type=BrokerTopicMetrics,name=*"  # no further keys: not those of each topic
ALIASES: Final = {
    "java_lang_operatingsystem_processcputime": ("process_cpu_seconds_total", 1e-9),
    "java_lang_operatingsystem_openfiledescriptorcount": ("process_open_fds", 1.0),
    "java_lang_operatingsystem_maxfiledescriptorcount": ("process_max_fds", 1.0),
    "java_lang_runtime_starttime": ("process_start_time_seconds", 1e-3),
}
CURE: Final = "A broker in Java needs Jolokia's agent: KAFKA_OPTS=-javaagent:jolokia-agent-jvm.jar=port=8778"
OK: Final = 200


def read_jolokia(
    url: str, cure: str = CURE, seconds_max: float = TIMEOUT_SECONDS, wanted: tuple[str, ...] = ()
) -> Reading:
    """What a broker tells now; `url` is that of the agent, with or without /jolokia. With `wanted`: samples whose names
    begin so, without those of single topics.
    """
    names = (ALL_TOPICS, *BEANS[1:]) if wanted else BEANS
    body = json.dumps([{"type": "read", "mbean": name} for name in names]).encode()
    page = ask_page(url.rstrip("/").removesuffix(AGENT), PATH, cure, body, seconds_max)
    reading = parse_jolokia(page, time.monotonic())
    if wanted:
        kept = (*wanted, "kafka_server_")
        reading.samples = {name: each for name, each in reading.samples.items() if name.startswith(kept)}
    if not any(name.startswith("kafka_server_") for name in reading.samples):
        raise OperationError(f"{url.rpartition('@')[2]} tells nothing about a Kafka broker")
    return reading


def is_jolokia(url: str) -> bool:
    """Whether an address is that of an agent; others are those of ottla's own /metrics."""
    return AGENT in urlsplit(url).path


def read_any(url: str) -> Reading:
    """What a broker tells now, whichever of the two its address is."""
    return read_jolokia(url) if is_jolokia(url) else read_metrics(url)


def parse_jolokia(text: str, taken_s: float) -> Reading:
    """The answers to BEANS; a bean that is not there, or that makes no sense, is left out."""
    try:
        answers = json.loads(text)
    except ValueError:
        raise OperationError("the answer is not JSON: that is no Jolokia agent") from None
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
    except KeyError:  # an attribute that such a bean should have
        return []
    return [
        (family.name + item.suffix, Sample(dict(item.labels), item.value))
        for family in families
        for item in family.samples
    ]


def _beans(asked: str, answer: Any) -> Iterator[Bean]:
    """A question for one name is answered with its attributes, one for a pattern with names and their attributes."""
    if not isinstance(answer, dict) or answer.get("status") != OK or not isinstance(answer.get("value"), dict):
        return
    found = answer["value"] if asked.endswith("*") else {asked: answer["value"]}
    for name, attributes in found.items():
        try:
            pattern = parse_pattern(name)
        except BadNameError:
            continue
        if isinstance(attributes, dict):
            yield Bean(ObjectName(pattern.domain, pattern.keys), _numbers(attributes))


def _numbers(attributes: Mapping[str, Any]) -> dict[str, float]:
    """Numbers only, those inside of others under the names of both."""
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
