"""Creates missing target topics of a pipeline with the cluster's defaults."""

from __future__ import annotations

from collections.abc import Collection

from ottla.pipelines.model.pipeline import Pipeline
from ottla.pipelines.model.problems import PipelineError, Problem
from ottla.pipelines.model.sink_specs import TopicSink
from ottla.pipelines.sinks.batch_markers import LOG_LEVEL

Settings = dict[str, str | int | float | bool]

REQUEST_SECONDS = 30.0
CLUSTER_DEFAULT = -1
QUIET: Settings = {"log_level": LOG_LEVEL}  # suppresses librdkafka's debug output


def make_topics(pipeline: Pipeline) -> None:
    """Raises PipelineError if the cluster rejects a topic."""
    for servers, missing in missing_topics(pipeline).items():
        _make({**pipeline.fields.client, "bootstrap.servers": servers}, missing)


def missing_topics(pipeline: Pipeline) -> dict[str, dict[str, int]]:
    """Topics to create: brokers -> topic -> partitions. Raises PipelineError."""
    missing: dict[str, dict[str, int]] = {}
    for servers, topics in wanted_topics(pipeline).items():
        existing = _existing({**pipeline.fields.client, "bootstrap.servers": servers})
        missing[servers] = {name: partitions for name, partitions in topics.items() if name not in existing}
    return missing


def wanted_topics(pipeline: Pipeline) -> dict[str, dict[str, int]]:
    """Brokers -> topic -> partitions."""
    wanted: dict[str, dict[str, int]] = {}
    own = pipeline.fields.bootstrap_servers
    for stream in pipeline.queries():
        for sink in stream.sinks:
            if isinstance(sink, TopicSink) and sink.create:
                partitions = sink.partitions or CLUSTER_DEFAULT
                wanted.setdefault(sink.bootstrap_servers or own, {}).setdefault(sink.topic, partitions)
    for topic in (pipeline.dead_letter_topic, pipeline.fields.late_rows):
        if topic is not None:
            wanted.setdefault(own, {}).setdefault(topic, CLUSTER_DEFAULT)
    return wanted


def _existing(settings: Settings) -> Collection[str]:
    from confluent_kafka import KafkaException  # noqa: PLC0415 (loaded where it is used)
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    try:
        return AdminClient(settings | QUIET).list_topics(timeout=REQUEST_SECONDS).topics
    except KafkaException as problem:
        cause = f"{settings['bootstrap.servers']} does not answer: {problem.args[0].str()}"
        raise PipelineError([Problem((), cause, "start the brokers, or correct bootstrap.servers")]) from problem


def _make(settings: Settings, missing: dict[str, int]) -> None:
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415
    from confluent_kafka.cimpl import NewTopic  # noqa: PLC0415

    if not missing:
        return
    wanted = [NewTopic(name, partitions) for name, partitions in missing.items()]
    admin = AdminClient(settings | QUIET)  # must live until all futures are complete
    for name, answer in admin.create_topics(wanted, request_timeout=REQUEST_SECONDS).items():
        try:
            answer.result()
        except KafkaException as problem:
            if problem.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # created concurrently
                raise _refused(name, problem.args[0].str()) from problem


def _refused(name: str, words: str) -> PipelineError:
    return PipelineError(
        [Problem((), f"topic {name!r} cannot be created: {words}", "create it first, or ask an administrator")]
    )
