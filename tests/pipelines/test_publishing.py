"""One process publishes for months: brokers come and go meanwhile."""

from __future__ import annotations

from typing import Any

from ottla.pipelines.sinks.ledger import Recorded
from ottla.pipelines.sinks.markers import MarkerReader, marker_partition
from ottla.pipelines.sinks.producing import Target
from ottla.pipelines.sinks.publishing import Publisher, Settings, Work
from pipelines.sink_helpers import committed, new_topic


def test_a_publisher_goes_on_after_a_broker_was_killed(broker_factory: Any) -> None:
    """What it read markers with has the broker's old epochs, and librdkafka does not ask for new ones."""
    broker = broker_factory()
    topic = new_topic(broker.bootstrap, 1)
    client = {"bootstrap.servers": broker.bootstrap}
    reader = MarkerReader(client)
    partition = marker_partition("query", 0, reader.topic_partitions())
    reader.close()
    settings = Settings(client, Target(topic, 1_000_000), 30.0, "query", needs_marker=False)
    publisher = Publisher()
    for number in range(3):
        work = Work(0, Recorded(number, f"rows {number}"), partition)  # no holder: it looks at the markers first
        assert publisher.publish(settings, work, lambda: iter(())).what == "published"
        broker.kill9()
        broker.start()
    markers = [message for message in committed(broker.bootstrap, "ottla_pipeline_markers") if message.value()]
    assert len(markers) == 3
