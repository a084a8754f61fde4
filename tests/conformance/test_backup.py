"""The drill of docs/backup.md for one broker: copied, wiped, put back, and a client finds what was acknowledged."""

import os
import signal
from collections.abc import Callable

import pytest
from tests.backup_records import commit, committed, copy, create, read, send, setting, transaction
from tests.conftest import Broker, BrokerFactory

BEFORE = [b"before-%03d" % number for number in range(200)]
AFTER = [b"after-%03d" % number for number in range(50)]
AGAIN = [b"again-%03d" % number for number in range(50)]
PARTITIONS = 2


@pytest.mark.needs_ottla
@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "snapshot"])
def test_records_acknowledged_before_the_copy_are_restored(broker_factory: BrokerFactory, is_stopped: bool) -> None:
    broker = broker_factory(offsets_topic_num_partitions=2, transaction_state_log_num_partitions=2)
    address, backup = broker.bootstrap, broker.directory / "backup"
    create(address, "orders", PARTITIONS, 1, retention_ms="123456789")
    send(address, "orders", BEFORE)
    commit(address, "billing", "orders", 7)
    transaction(address, "orders", b"committed", is_committed=True)
    left_open = transaction(address, "orders", b"open", is_committed=False)
    if is_stopped:
        broker.stop()
        copy(broker.data_directory, backup)
        broker.start()
    else:
        snapshot(broker, lambda: copy(broker.data_directory, backup))
    left_open.abort_transaction(30)
    send(address, "orders", AFTER)
    commit(address, "billing", "orders", 9)
    assert len(read(address, "orders", PARTITIONS)) == len(BEFORE) + 1 + len(AFTER)

    broker.kill9()
    copy(backup, broker.data_directory)
    broker.start()
    # Who had the transaction open does so again, and ends it: until then readers wait at its first record.
    transaction(address, "orders", b"open", is_committed=True)
    assert read(address, "orders", PARTITIONS) == sorted([*BEFORE, b"committed", b"open"])
    assert committed(address, "billing", "orders") == 7
    assert setting(address, "orders", "retention.ms") == "123456789"
    send(address, "orders", AGAIN)
    assert len(read(address, "orders", PARTITIONS)) == len(BEFORE) + 2 + len(AGAIN)


def snapshot(broker: Broker, take: Callable[[], None]) -> None:
    """All files at one moment, as a file system's snapshot has them: the broker is paused meanwhile."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        take()
    finally:
        os.kill(broker.pid, signal.SIGCONT)
