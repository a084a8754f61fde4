"""Verdicts at each commit interval with both protocols, as a monitor of a real broker gives them in ten minutes."""

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.paced_readers import PacedReader, Writer, saw_tooth, share_of
from tests.conformance.peer import Peer
from tests.conformance.test_monitor import Monitor

pytestmark = [pytest.mark.faults, pytest.mark.needs_ottla]

TOPIC = "orders"
TOLD_SECONDS_MAX = 120.0
TEN_MINUTES = 600.0
CONFIG = "http: {{port: 0}}\nclusters:\n  default: {{bootstrap-server: '{bootstrap}'}}\n"
PACES = {"slow": share_of(0.8), "very-slow": share_of(0.15), "saw-tooth": saw_tooth(50), "keeps-up": share_of(2)}


def test_verdicts_at_each_commit_interval(broker_factory: Any, tmp_path: Path) -> None:
    broker = broker_factory(group_initial_rebalance_delay_ms=0)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic(TOPIC, 1)
    config = tmp_path / "monitor.yaml"
    config.write_text(CONFIG.format(bootstrap=broker.bootstrap))
    with contextlib.ExitStack() as ends:
        monitor = Monitor(config)
        ends.callback(monitor.process.kill)
        writer = Writer(broker.bootstrap, TOPIC)
        ends.callback(writer.close)
        readers = {
            (name, protocol, commit_s): PacedReader(broker.bootstrap, TOPIC, protocol, commit_s, pace, name)
            for name, pace in PACES.items()
            for protocol in ("classic", "consumer")
            for commit_s in (0.2, 1, 5, 30)
        }
        for reader in readers.values():
            ends.callback(reader.close)
        began = time.monotonic()
        told: dict[tuple[str, str, float], float] = {}
        while (seconds := time.monotonic() - began) < TEN_MINUTES:
            for key, reader in readers.items():
                if monitor.status(reader.group).get("ottla_status", "OK") not in ("OK", "NOTFOUND"):
                    told.setdefault(key, seconds)
            time.sleep(1)
        print({key: round(seconds) for key, seconds in told.items()})
        assert {key for key in told if key[0] not in ("slow", "very-slow")} == set()
        assert told.keys() == {key for key in readers if key[0] in ("slow", "very-slow")}
        assert max(told.values()) <= TOLD_SECONDS_MAX, told
