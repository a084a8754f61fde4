"""One process publishes for months while brokers come and go."""

from __future__ import annotations

from typing import Any

from tests.pipelines.sink_helpers import committed, new_topic

from ottla.pipelines.sinks.batch_ledger import LastBatch
from ottla.pipelines.sinks.batch_markers import MarkerReader, marker_partition
from ottla.pipelines.sinks.file_publisher import PublisherSettings, PublishTask, TransactionalPublisher
from ottla.pipelines.sinks.record_sender import Target


def test_a_publisher_goes_on_after_a_broker_was_killed(broker_factory: Any) -> None:
    """What it read markers with has the broker's old epochs, and librdkafka does not ask for new ones."""
    broker = broker_factory()
    topic = new_topic(broker.bootstrap, 1)
    client = {"bootstrap.servers": broker.bootstrap}
    reader = MarkerReader(client)
    partition = marker_partition("query", 0, reader.ensure_topic())
    reader.close()
    settings = PublisherSettings(client, Target(topic, 1_000_000), 30.0, "query", needs_marker=False)
    publisher = TransactionalPublisher()
    for number in range(3):
        work = PublishTask(
            0, LastBatch(number, f"rows {number}"), partition
        )  # no holder: it looks at the markers first
        assert publisher.publish(settings, work, lambda: iter(())).what == "published"
        broker.kill9()
        broker.start()
    markers = [message for message in committed(broker.bootstrap, "ottla_pipeline_markers") if message.value()]
    assert len(markers) == 3
