"""A broker that may open few files: reading many partitions at once must not use them up."""

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conformance.peer import Peer, fetch_partition, fetch_topic, fetch_topics_request
from tests.conformance.raw import assert_others_are_served
from tests.conformance.raw_batches import batch
from tests.conformance.waiting import eventually

FETCH_BY_NAME = 12
OPEN_FILES_MAX = 256
PARTITIONS = 400


def launch_with_few_files(broker: Any) -> None:
    broker.launch()
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (OPEN_FILES_MAX, OPEN_FILES_MAX))
    assert eventually(lambda: "ready on" in broker.log_text, 20)


def test_one_reader_of_very_many_partitions(broker_factory: Callable[..., Any]) -> None:
    broker = broker_factory(start=False)
    launch_with_few_files(broker)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("many", PARTITIONS)
        for partition in range(PARTITIONS):
            assert peer.produce("many", batch([b"value"]), partition).error_code == 0
        left = set(range(PARTITIONS))
        while left:
            rows = [fetch_partition(partition, 0) for partition in sorted(left)]
            (answer,) = peer.ask(fetch_topics_request([fetch_topic("many", rows)]), FETCH_BY_NAME).responses
            assert {row.error_code for row in answer.partitions} == {0}
            read = {row.partition_index for row in answer.partitions if row.records}
            assert read, "every fetch gets on"
            left -= read
        assert_others_are_served(broker.bootstrap)
        assert len(os.listdir(f"/proc/{broker.pid}/fd")) < OPEN_FILES_MAX * 3 // 4
    broker.stop()
    assert "Too many open files" not in broker.log_text, broker.log_text[-3000:]
    assert (Path(broker.data_directory) / ".kafka_cleanshutdown").exists()
