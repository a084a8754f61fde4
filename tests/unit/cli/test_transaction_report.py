"""Lines about transactions, and which of them hang; the tables were printed by Kafka's own tool."""

from __future__ import annotations

from ottla.base.names import TopicPartition
from ottla.cli.transactions.report import (
    DESCRIBE_COLUMNS,
    LIST_COLUMNS,
    PRODUCER_COLUMNS,
    column_lines,
    described_row,
    hanging_row,
    list_rows,
    producer_row,
)
from ottla.client.transactions import Described
from ottla.operations.hanging_transactions import OpenTransaction, hanging
from ottla.protocol.messages.transaction_steps import ListedTransaction
from ottla.protocol.messages.transactions import ProducerState

X0, X1 = TopicPartition("i-x", 0), TopicPartition("i-x", 1)
OPEN = Described(1, "i-tx-open", 46, 0, "Ongoing", 60_000, 1_794_750_814_027, [X1, X0])


def producer(producer_id: int, start: int = 0) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=0,
        last_sequence=0,
        last_timestamp=1_794_750_814_025,
        coordinator_epoch=-1,
        current_txn_start_offset=start,
    )


def test_every_column_ends_with_a_tab() -> None:
    listed = ListedTransaction(transactional_id="i-tx-open", producer_id=46, transaction_state="Ongoing")
    assert column_lines(LIST_COLUMNS, list_rows({1: [listed]})) == [
        "TransactionalId\tCoordinator\tProducerId\tTransactionState\t",
        "i-tx-open      \t1          \t46        \tOngoing         \t",
    ]
    assert column_lines(LIST_COLUMNS, []) == ["TransactionalId\tCoordinator\tProducerId\tTransactionState\t"]


def test_a_transaction_that_runs_has_a_duration() -> None:
    assert column_lines(DESCRIBE_COLUMNS, [described_row(OPEN, 1_794_750_820_095)])[1] == (
        "1            \ti-tx-open      \t46        \t0            \tOngoing         \t60000               \t"
        "1794750814027                \t6068                 \ti-x-0,i-x-1    \t"
    )
    empty = OPEN._replace(state="Empty", start_ms=None, partitions=[])
    assert described_row(empty, 5)[-3:] == ("None", "None", "")


def test_a_producer_without_a_transaction_has_none() -> None:
    assert column_lines(PRODUCER_COLUMNS, [producer_row(producer(46))])[1] == (
        "46        \t0            \t-1                    \t0           \t1794750814025\t"
        "0                            \t"
    )
    assert producer_row(producer(46, start=-1))[-1] == "None"


def test_a_transaction_hangs_when_no_coordinator_will_end_it() -> None:
    known, unknown, elsewhere = (OpenTransaction(X0, producer(number)) for number in (1, 2, 3))
    ids = {1: "a", 3: "c"}
    descriptions = {"a": OPEN._replace(partitions=[X0]), "c": OPEN._replace(partitions=[X1])}
    assert hanging([known, unknown, elsewhere], ids, descriptions) == [unknown, elsewhere]
    assert hanging([known], ids, {}) == [known]


def test_a_hanging_transaction_is_told_in_minutes() -> None:
    row = hanging_row(OpenTransaction(X1, producer(46, start=7)), 1_794_750_814_025 + 61_000)
    assert row == ("i-x", "1", "46", "0", "-1", "7", "1794750814025", "1")
