"""W3: a disk that fails a sync or a write: nothing is acknowledged, its folder is out, a restart puts it right."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.peer import Peer
from tests.conformance.raw_batches import batch
from tests.conformance.waiting import eventually
from tests.faults.folders import broker_with_two_folders, create_in

KAFKA_STORAGE_ERROR = 56
BrokerFactory = Callable[..., Any]


def values(peer: Peer, topic: str) -> list[int]:
    """Offsets that a consumer sees."""
    return [header.base_offset for header in peer.stored_batches(topic)]


def test_no_acknowledgement_after_a_failed_sync(
    broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broker, faults, folders = broker_with_two_folders(broker_factory, monkeypatch, tmp_path)
    with Peer(broker.bootstrap) as peer:
        create_in(peer, folders.second, "sick", flush_messages=1)
        create_in(peer, folders.first, "well", flush_messages=1)
        assert peer.produce("sick", batch([b"kept"])).base_offset == 0
        with faults.during("sync", "EIO", "/sick-0"):
            answer = peer.produce("sick", batch([b"unsafe"]))
            assert answer.error_code == KAFKA_STORAGE_ERROR
            assert peer.produce("well", batch([b"kept"])).base_offset == 0
        # The disk answers again, but the state of the pages that it refused is unknown: no second try.
        assert peer.produce("sick", batch([b"unsafe too"])).error_code == KAFKA_STORAGE_ERROR
        assert peer.produce("sick", batch([b"unsafe too"]), acks=1).error_code == KAFKA_STORAGE_ERROR
        assert peer.fetch("sick", 0).error_code == KAFKA_STORAGE_ERROR
        assert peer.produce("well", batch([b"kept"])).base_offset == 1
    assert "out of service" in broker.log_text
    broker.kill9()
    broker.start()
    with Peer(broker.bootstrap) as peer:
        offset = peer.produce("sick", batch([b"after"])).base_offset
        assert offset in (1, 2), "the record of the failed sync may be there: it was never denied either"
        assert values(peer, "sick") == list(range(offset + 1))
    broker.assert_no_traceback()


@pytest.mark.faults
def test_a_log_with_a_failed_sync_is_recovered_after_an_orderly_stop(
    broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broker, faults, folders = broker_with_two_folders(broker_factory, monkeypatch, tmp_path)
    with Peer(broker.bootstrap) as peer:
        create_in(peer, folders.second, "sick", flush_messages=1)
        assert peer.produce("sick", batch()).base_offset == 0
        with faults.during("sync", "EIO", "/sick-0"):
            assert peer.produce("sick", batch()).error_code == KAFKA_STORAGE_ERROR
    broker.stop()
    assert not (folders.second / ".kafka_cleanshutdown").exists(), "the next start must look at the log"
    assert (folders.first / ".kafka_cleanshutdown").exists()
    broker.start()
    with Peer(broker.bootstrap) as peer:
        assert peer.produce("sick", batch()).error_code == 0


@pytest.mark.faults
def test_a_sync_that_fails_in_the_background_stops_the_folder(
    broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With flush.ms the sync comes after the acknowledgement; from then on nothing more is acknowledged."""
    settings = {"log_flush_scheduler_interval_ms": 20, "log_initial_task_delay_ms": 0}
    broker, faults, folders = broker_with_two_folders(broker_factory, monkeypatch, tmp_path, **settings)
    with Peer(broker.bootstrap) as peer:
        create_in(peer, folders.second, "sick", flush_ms=20)
        with faults.during("sync", "EIO", "/sick-0"):
            assert peer.produce("sick", batch()).base_offset == 0
            assert eventually(lambda: "out of service" in broker.log_text)
        assert peer.produce("sick", batch()).error_code == KAFKA_STORAGE_ERROR
    broker.restart()
    with Peer(broker.bootstrap) as peer:
        assert values(peer, "sick") == [0]
    broker.assert_no_traceback()


@pytest.mark.faults
@pytest.mark.parametrize("acks", [1, -1])
def test_a_failed_write_is_not_acknowledged_and_stops_the_folder(
    broker_factory: BrokerFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, acks: int
) -> None:
    broker, faults, folders = broker_with_two_folders(broker_factory, monkeypatch, tmp_path)
    with Peer(broker.bootstrap) as peer:
        create_in(peer, folders.second, "sick")
        assert peer.produce("sick", batch(), acks=acks).base_offset == 0
        with faults.during("write_at", "EIO", "/sick-0"):
            assert peer.produce("sick", batch(), acks=acks).error_code == KAFKA_STORAGE_ERROR
        assert peer.produce("sick", batch(), acks=acks).error_code == KAFKA_STORAGE_ERROR
    broker.kill9()
    broker.start()
    with Peer(broker.bootstrap) as peer:
        assert peer.produce("sick", batch(), acks=acks).base_offset == 1
        assert values(peer, "sick") == [0, 1]
    broker.assert_no_traceback()
