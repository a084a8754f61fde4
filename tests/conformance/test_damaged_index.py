"""Indexes that were damaged while the broker was down: readers wait for a rebuild, and get what is right."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from tests.conformance.peer import Peer
from tests.conformance.raw_batches import batch
from tests.conftest import BrokerFactory

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


@pytest.mark.needs_ottla
@pytest.mark.parametrize("damage", ["gone", "another producer"])
def test_a_wrong_transaction_index_is_not_trusted(broker_factory: BrokerFactory, damage: str) -> None:
    broker = broker_factory()
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("damaged")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"})
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        producer.produce("damaged", b"%d" % number)
        producer.flush()
        (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    broker.stop()
    path = Path(broker.data_directory) / "damaged-0" / f"{0:020d}.txnindex"
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content[:9] + bytes([content[9] ^ 1]) + content[10:])
    broker.start()

    assert committed_values(broker.bootstrap, 3) == [b"0", b"2", b"4"]
    assert path.read_bytes() == content
    assert broker.log_text.count("Found a corrupted transaction index") == 1
    broker.assert_no_traceback()


def committed_values(bootstrap: str, count: int) -> list[bytes]:
    """So many values, and what comes with them."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(
        {**settings, "isolation.level": "read_committed", "enable.partition.eof": True, "fetch.wait.max.ms": 10}
    )
    consumer.assign([TopicPartition("damaged", 0, 0)])
    values: list[bytes] = []
    try:
        while message := consumer.poll(30):
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                break
            values.append(message.value())
    finally:
        consumer.close()
    assert len(values) == count, values
    return values
