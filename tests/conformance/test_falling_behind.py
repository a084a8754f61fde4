"""A group that read 15 of 100 records a second and committed each second was OK for ever."""

import contextlib
import time
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.conformance.conftest import NewTopic
from tests.conformance.in_process import run_here
from tests.conformance.paced_readers import PacedReader, Writer, saw_tooth, share_of
from tests.conformance.test_monitor import Monitor
from tests.conformance.waiting import eventually
from tests.webhooks import Inbox

TOLD_SECONDS_MAX = 120.0
CONFIG = """
http: {{port: 0}}
clusters:
  default: {{bootstrap-server: '{bootstrap}'}}
state: {folder}/monitor.db
channels:
  here: {{type: slack, url: 'http://127.0.0.1:{port}/hook', allow-private: true}}
alerts:
  - {{name: slow, when: verdict, status: [WARN, ERR], group: '{group}*', to: [here]}}
"""


def test_a_group_that_falls_behind_is_warn_in_answers_metrics_and_alerts(
    bootstrap: str, new_topic: NewTopic, coordinator: None, tmp_path: Path
) -> None:
    topic = new_topic()
    config = tmp_path / "monitor.yaml"
    with contextlib.ExitStack() as ends:
        inbox = Inbox()
        ends.callback(inbox.close)
        config.write_text(CONFIG.format(bootstrap=bootstrap, folder=tmp_path, port=inbox.port, group=topic))
        monitor = Monitor(config)
        ends.callback(monitor.process.kill)
        writer = Writer(bootstrap, topic)
        ends.callback(writer.close)
        slow = [
            PacedReader(bootstrap, topic, protocol, 1, share_of(0.15), "slow") for protocol in ("classic", "consumer")
        ]
        quick = PacedReader(bootstrap, topic, "classic", 1, saw_tooth(20), "quick")
        for reader in (*slow, quick):
            ends.callback(reader.close)
        began = time.monotonic()
        for reader in slow:
            assert eventually(
                lambda group=reader.group: monitor.status(group).get("ottla_status") == "WARN", TOLD_SECONDS_MAX
            )
        assert eventually(lambda: all(reader.group in str(inbox.texts) for reader in slow), 10)
        assert time.monotonic() - began <= TOLD_SECONDS_MAX
        assert monitor.status(quick.group)["ottla_status"] == "OK"
        assert quick.group not in str(inbox.texts)
        found = run_here("ottla", "doctor", "--bootstrap-server", bootstrap).out
        falling = next((line for line in found.splitlines() if "fall further and further behind" in line), "")
        assert all(reader.group in falling for reader in slow), found
        assert quick.group not in falling
        verdicts = {
            sample.labels["consumer_group"]: sample.value
            for family in text_string_to_metric_families(monitor.get("/metrics")[1])
            if family.name == "ottla_monitor_consumer_status"
            for sample in family.samples
        }
        assert [verdicts[reader.group] for reader in (*slow, quick)] == [2, 2, 1]
