"""EndTxn in every state in which no partition takes part: Apache Kafka 4.3.1's answers, and where ours is another."""

from __future__ import annotations

import pytest

from ottla.base.errors import Error
from ottla.transactions.machine import AskedForNext, TransactionMachine, TransactionSettings
from ottla.transactions.transaction import Identity, State, Transaction

WHO = Identity(7, 3)
FINE, WRONG = Error.NONE, Error.INVALID_TXN_STATE
PREPARES = None  # a record is written: the epoch goes up, and markers are sent to nobody

# state, has the producer asked for its next transaction -> commit and abort with version 1, commit and abort with 2
ANSWERS = {
    (State.EMPTY, False): (WRONG, FINE, WRONG, PREPARES),  # Kafka: WRONG for the abort with version 1
    (State.COMPLETE_COMMIT, False): (FINE, WRONG, WRONG, PREPARES),
    (State.COMPLETE_COMMIT, True): (FINE, FINE, WRONG, PREPARES),  # Kafka: WRONG for the abort with version 1
    (State.COMPLETE_ABORT, False): (WRONG, FINE, WRONG, PREPARES),
}


def machine_in(state: State, has_next: bool) -> TransactionMachine:
    machine = TransactionMachine(TransactionSettings())
    transaction = machine.transactions["t"] = Transaction("t", WHO.producer_id, 60_000)
    transaction.producer_epoch, transaction.state = WHO.epoch, state
    if has_next:
        machine.settle(AskedForNext("t"), Error.NONE, 0)
    return machine


@pytest.mark.parametrize(("state", "has_next"), ANSWERS)
@pytest.mark.parametrize(("version", "is_commit"), [(0, True), (0, False), (2, True), (2, False)])
def test_the_end_of_a_transaction_in_which_nothing_happened(
    state: State, has_next: bool, version: int, is_commit: bool
) -> None:
    machine = machine_in(state, has_next)
    expected = ANSWERS[state, has_next][version + (not is_commit)]
    decision = machine.end("t", WHO, is_commit, version, -1, "client", 1)
    answer = decision.replies[0].response
    if expected is PREPARES:
        assert (answer.error, answer.epoch, len(decision.records)) == (Error.NONE, WHO.epoch + 1, 1)
    else:
        assert (answer.error, decision.records) == (expected, [])
    assert machine.transactions["t"].state is state  # nothing changes before a record is applied


def test_a_repeated_abort_of_version_2_still_means_the_committed_one() -> None:
    machine = machine_in(State.COMPLETE_COMMIT, has_next=True)
    decision = machine.end("t", Identity(WHO.producer_id, WHO.epoch - 1), False, 2, -1, "client", 1)
    assert decision.replies[0].response.error is WRONG


@pytest.mark.parametrize(
    ("who", "error"),
    [(Identity(8, 3), Error.INVALID_PRODUCER_ID_MAPPING), (Identity(7, 2), Error.PRODUCER_FENCED)],
)
def test_whoever_is_somebody_else_aborts_nothing(who: Identity, error: Error) -> None:
    decision = machine_in(State.EMPTY, has_next=False).end("t", who, False, 0, -1, "client", 1)
    assert decision.replies[0].response.error is error
