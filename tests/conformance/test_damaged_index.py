"""Indexes that were damaged while the broker was down: readers wait for a rebuild, and get what is right."""

from pathlib import Path

import pytest

from conformance.peer import Peer
from conformance.raw_batches import batch
from conftest import BrokerFactory

BATCHES = 60
BATCH_BYTES = 50_000
FIRST_MS = 1_700_000_000_000


@pytest.mark.needs_ottla
def test_fetch_and_list_offsets_survive_damaged_indexes(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(log_retention_ms=-1)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("damaged")
        for number in range(BATCHES):
            peer.produce("damaged", batch([b"v" * BATCH_BYTES], timestamp=FIRST_MS + number))
    broker.stop()
    folder = Path(broker.data_directory) / "damaged-0"
    index, times = folder / f"{0:020d}.index", folder / f"{0:020d}.timeindex"
    last = index.read_bytes()[-8:]
    rising = b"".join(n.to_bytes(4, "big") + (n * 777).to_bytes(4, "big") for n in range(1, BATCHES - 2))
    index.write_bytes(rising + last)
    times.write_bytes(b"".join((FIRST_MS + n * 3).to_bytes(8, "big") + n.to_bytes(4, "big") for n in range(1, 30)))
    broker.start()

    with Peer(broker.bootstrap) as peer:
        assert peer.stored_batches("damaged", 40)[0].base_offset == 40
        assert peer.list_offset("damaged", FIRST_MS + 33).offset == 33
        assert peer.list_offset("damaged", -3).offset == BATCHES - 1
    assert "rebuilding both indexes from the log" in broker.log_text
