"""Transactional ids that nobody has used for long: looked for some at a time."""

from __future__ import annotations

from ottla.coordination.batch import RECORDS_MAX
from ottla.transactions.machine import TransactionMachine, TransactionSettings
from ottla.transactions.records import transaction_record
from ottla.transactions.transaction import State, Transaction

SETTINGS = TransactionSettings()
NOW_MS = 3 * SETTINGS.id_expiration_ms
MANY = 2 * RECORDS_MAX + 50


def machine_with(ids: dict[str, int], state: State = State.COMPLETE_COMMIT) -> TransactionMachine:
    """Each was used last at this time."""
    machine = TransactionMachine(SETTINGS)
    for transactional_id, used_ms in ids.items():
        transaction = Transaction(transactional_id, 7, 60_000)
        transaction.producer_epoch, transaction.state, transaction.last_update_ms = 3, state, used_ms
        record = transaction_record(transaction)
        machine.apply(record.key, record.value, None)
    machine.loaded(0)
    return machine


def sweep(machine: TransactionMachine, bytes_max: int = 1 << 20) -> list[int]:
    """How many records each decision has."""
    sizes = []
    decisions = machine.sweep(NOW_MS, bytes_max)
    assert decisions is not None
    for decision in decisions:
        for key, value in decision.records:
            machine.apply(key, value, None)
        sizes.append(len(decision.records))
    return sizes


def test_they_are_looked_for_when_it_is_due() -> None:
    machine = machine_with({})
    assert machine.sweep(SETTINGS.id_expiration_interval_ms - 1, 1 << 20) is None
    assert machine.sweep(SETTINGS.id_expiration_interval_ms, 1 << 20) is not None
    assert machine.sweep(SETTINGS.id_expiration_interval_ms, 1 << 20) is None


def test_many_of_them_go_some_at_a_time() -> None:
    old_ms = NOW_MS - SETTINGS.id_expiration_ms
    machine = machine_with({f"old{n}": old_ms for n in range(MANY)} | {f"new{n}": old_ms + 1 for n in range(3)})
    assert sweep(machine) == [RECORDS_MAX, RECORDS_MAX, 50]
    assert set(machine.transactions) == {"new0", "new1", "new2"}


def test_a_batch_of_them_is_never_too_large_for_the_topic() -> None:
    machine = machine_with({f"{n}" * 1_000: 0 for n in range(10, 20)})
    assert sweep(machine, 7_000) == [3, 3, 3, 1]


def test_one_that_is_used_meanwhile_stays() -> None:
    machine = machine_with({f"t{n}": 0 for n in range(MANY)})
    decisions = machine.sweep(NOW_MS, 1 << 20)
    assert decisions is not None
    next(decisions)
    for transaction in machine.transactions.values():
        transaction.is_pending = True
    assert [len(decision.records) for decision in decisions] == [0]


def test_an_open_transaction_is_no_unused_id() -> None:
    machine = machine_with({"t": 0}, State.ONGOING)
    assert sweep(machine) == [0]
