"""The transaction coordinator: state changes, EndTxn without partitions, expiry of transactional ids."""

from __future__ import annotations

import pytest

from ottla.base.errors import Error
from ottla.coordination.batch import RECORDS_MAX
from ottla.transactions.transaction import VALID_TRANSITIONS, ProducerIdAndEpoch, TransactionMetadata, TransactionState
from ottla.transactions.transaction_coordinator import (
    NextTransactionRequested,
    TransactionCoordinator,
    TransactionSettings,
)
from ottla.transactions.transaction_log import transaction_record


@pytest.mark.parametrize("state", TransactionState)
@pytest.mark.parametrize("following", TransactionState)
def test_state_changes_follow_the_transition_table(state: TransactionState, following: TransactionState) -> None:
    transaction = TransactionMetadata("t", 1, 60_000)
    transaction.state = state
    if following in VALID_TRANSITIONS[state]:
        transaction.transition_to(following)
        assert transaction.state is following
    else:
        with pytest.raises(AssertionError, match=f"cannot become {following.name}"):
            transaction.transition_to(following)


def test_change_to_an_older_epoch_is_refused() -> None:
    machine = TransactionCoordinator(TransactionSettings())
    known = machine.transactions["t"] = TransactionMetadata("t", 1, 60_000)
    known.producer_epoch = 5
    older = known.copy()
    older.producer_epoch = 4
    with pytest.raises(AssertionError, match="cannot return to epoch 4"):
        machine._write_transition(older)


def test_only_one_change_is_in_flight_for_each_transaction() -> None:
    machine = TransactionCoordinator(TransactionSettings())
    known = machine.transactions["t"] = TransactionMetadata("t", 1, 60_000)
    known.producer_epoch = 0
    known.has_pending_transition = True
    with pytest.raises(AssertionError, match="has a change in flight"):
        machine._write_transition(known.copy())
    decision = machine.add_partitions("t", ProducerIdAndEpoch(1, 0), [("p", 0)], 0, "client", 0)
    assert decision.replies[0].response is Error.CONCURRENT_TRANSACTIONS


# ---- EndTxn

WHO = ProducerIdAndEpoch(7, 3)
NO_ERROR, INVALID = Error.NONE, Error.INVALID_TXN_STATE
PREPARES = None  # a record is written and the epoch is raised; there are no markers to send

# EndTxn in every state in which no partition takes part, with the answers of Apache Kafka 4.3.1 where they differ.
# State, has_next -> commit and abort with version 1, commit and abort with version 2.
ANSWERS = {
    (TransactionState.EMPTY, False): (INVALID, NO_ERROR, INVALID, PREPARES),  # Kafka: INVALID for version 1
    (TransactionState.COMPLETE_COMMIT, False): (NO_ERROR, INVALID, INVALID, PREPARES),
    (TransactionState.COMPLETE_COMMIT, True): (
        NO_ERROR,
        NO_ERROR,
        INVALID,
        PREPARES,
    ),  # Kafka: INVALID for version 1
    (TransactionState.COMPLETE_ABORT, False): (INVALID, NO_ERROR, INVALID, PREPARES),
}


def machine_in(state: TransactionState, has_next: bool) -> TransactionCoordinator:
    machine = TransactionCoordinator(TransactionSettings())
    transaction = machine.transactions["t"] = TransactionMetadata("t", WHO.producer_id, 60_000)
    transaction.producer_epoch, transaction.state = WHO.epoch, state
    if has_next:
        machine.on_write_completed(NextTransactionRequested("t"), Error.NONE, 0)
    return machine


@pytest.mark.parametrize(("state", "has_next"), ANSWERS)
@pytest.mark.parametrize(("version", "is_commit"), [(0, True), (0, False), (2, True), (2, False)])
def test_end_without_partitions_is_answered_by_state_and_version(
    state: TransactionState, has_next: bool, version: int, is_commit: bool
) -> None:
    machine = machine_in(state, has_next)
    expected = ANSWERS[state, has_next][version + (not is_commit)]
    decision = machine.end_transaction("t", WHO, is_commit, version, -1, "client", 1)
    answer = decision.replies[0].response
    if expected is PREPARES:
        assert (answer.error, answer.epoch, len(decision.records)) == (Error.NONE, WHO.epoch + 1, 1)
    else:
        assert (answer.error, decision.records) == (expected, [])
    assert machine.transactions["t"].state is state  # nothing changes before a record is applied


def test_repeated_abort_with_version_2_refers_to_the_committed_transaction() -> None:
    machine = machine_in(TransactionState.COMPLETE_COMMIT, has_next=True)
    decision = machine.end_transaction(
        "t", ProducerIdAndEpoch(WHO.producer_id, WHO.epoch - 1), False, 2, -1, "client", 1
    )
    assert decision.replies[0].response.error is INVALID


@pytest.mark.parametrize(
    ("who", "error"),
    [(ProducerIdAndEpoch(8, 3), Error.INVALID_PRODUCER_ID_MAPPING), (ProducerIdAndEpoch(7, 2), Error.PRODUCER_FENCED)],
)
def test_another_producer_cannot_abort(who: ProducerIdAndEpoch, error: Error) -> None:
    decision = machine_in(TransactionState.EMPTY, has_next=False).end_transaction("t", who, False, 0, -1, "client", 1)
    assert decision.replies[0].response.error is error


# ---- expiry

SETTINGS = TransactionSettings()
NOW_MS = 3 * SETTINGS.id_expiration_ms
MANY = 2 * RECORDS_MAX + 50


def machine_with(
    ids: dict[str, int], state: TransactionState = TransactionState.COMPLETE_COMMIT
) -> TransactionCoordinator:
    """`ids` maps transactional ids to the times of their last use."""
    machine = TransactionCoordinator(SETTINGS)
    for transactional_id, used_ms in ids.items():
        transaction = TransactionMetadata(transactional_id, 7, 60_000)
        transaction.producer_epoch, transaction.state, transaction.last_update_timestamp_ms = 3, state, used_ms
        record = transaction_record(transaction)
        machine.replay(record.key, record.value, None)
    machine.on_loaded(0)
    return machine


def sweep(machine: TransactionCoordinator, bytes_max: int = 1 << 20) -> list[int]:
    """The number of records in each decision."""
    sizes = []
    decisions = machine.sweep(NOW_MS, bytes_max)
    assert decisions is not None
    for decision in decisions:
        for key, value in decision.records:
            machine.replay(key, value, None)
        sizes.append(len(decision.records))
    return sizes


def test_sweep_starts_only_when_it_is_due() -> None:
    machine = machine_with({})
    assert machine.sweep(SETTINGS.id_expiration_interval_ms - 1, 1 << 20) is None
    assert machine.sweep(SETTINGS.id_expiration_interval_ms, 1 << 20) is not None
    assert machine.sweep(SETTINGS.id_expiration_interval_ms, 1 << 20) is None


def test_many_unused_ids_are_expired_in_batches() -> None:
    old_ms = NOW_MS - SETTINGS.id_expiration_ms
    machine = machine_with({f"old{n}": old_ms for n in range(MANY)} | {f"new{n}": old_ms + 1 for n in range(3)})
    assert sweep(machine) == [RECORDS_MAX, RECORDS_MAX, 50]
    assert set(machine.transactions) == {"new0", "new1", "new2"}


def test_batch_never_exceeds_the_maximum_size() -> None:
    machine = machine_with({f"{n}" * 1_000: 0 for n in range(10, 20)})
    assert sweep(machine, 7_000) == [3, 3, 3, 1]


def test_id_that_is_used_during_the_sweep_stays() -> None:
    machine = machine_with({f"t{n}": 0 for n in range(MANY)})
    decisions = machine.sweep(NOW_MS, 1 << 20)
    assert decisions is not None
    next(decisions)
    for transaction in machine.transactions.values():
        transaction.has_pending_transition = True
    assert [len(decision.records) for decision in decisions] == [0]


def test_id_with_an_open_transaction_does_not_expire() -> None:
    machine = machine_with({"t": 0}, TransactionState.ONGOING)
    assert sweep(machine) == [0]


# ---- the system clock


def ongoing_since(start_ms: int, loaded_ms: int) -> TransactionCoordinator:
    """A coordinator that has loaded a transaction with a time-out of a minute."""
    machine = TransactionCoordinator(TransactionSettings())
    transaction = TransactionMetadata("t", 1, 60_000)
    transaction.producer_epoch, transaction.state = 0, TransactionState.ONGOING
    transaction.start_timestamp_ms, transaction.topic_partitions = start_ms, {("p", 0)}
    machine.replay(*transaction_record(transaction), None)
    machine.on_loaded(loaded_ms)
    return machine


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
def test_transaction_times_out_after_the_same_time_when_the_system_clock_is_set(step_ms: int) -> None:
    now_ms = 10_000_000
    machine = ongoing_since(now_ms, now_ms)
    machine.on_clock_step(step_ms)
    now_ms += step_ms
    added = machine.add_partitions("t", ProducerIdAndEpoch(1, 0), [("p", 1)], 0, "client", now_ms)
    machine.replay(*added.records[0], None)
    machine.on_write_completed(added.event, NO_ERROR, now_ms)
    assert machine.tick(now_ms + 50_000) == []
    assert len(machine.tick(now_ms + 61_000)) == 1


def test_transaction_that_starts_in_the_future_times_out_as_if_it_had_started_at_the_load() -> None:
    """The clock of the coordinator that wrote it was ahead."""
    machine = ongoing_since(10_000_000, 5_000_000)
    assert machine.tick(5_050_000) == []
    assert len(machine.tick(5_061_000)) == 1
